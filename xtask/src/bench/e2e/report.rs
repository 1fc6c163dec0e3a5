//! Results of filling a cluster, their targets, and their sections of `docs/performance.md`.

use super::load::Filled;
use super::usage::Usage;
use super::writes::Writes;
use std::fmt::Write;

/// The size at which targets hold.
const TARGET_NODES: usize = 500;
/// KAI v0.17 on the same machine with its default limits.
const KAI_SECONDS: f64 = 160.0;
const KAI_WRITES: f64 = 14.0;
const KAI_MB: f64 = 1050.0;
const KAI_CPU_SECONDS: f64 = 142.0;
const KAI_SERVER_CPU_SECONDS: f64 = 160.0;
/// Targets.
const SECONDS_MAX: f64 = 25.0;
const SERVER_CPU_SECONDS_MAX: f64 = 35.0;
const CPU_SECONDS_MAX: f64 = 30.0;
const MB_MAX: f64 = 300.0;
const WRITES_MAX: f64 = 5.0;
/// A pod on the idle cluster, median and 99th percentile, in milliseconds, and a gang of 64.
const SINGLE_MS_MAX: (f64, f64) = (12.0, 30.0);
const SINGLE_BY_REQUEST_MS_MAX: (f64, f64) = (25.0, 60.0);
const GANG_MS_MAX: f64 = 150.0;
/// Targets of the embedded server.
const PODS_PER_SECOND_MIN: f64 = 500.0;
const IDLE_MS_MAX: f64 = 100.0;

/// What was measured on a real control plane.
pub(super) struct Real {
    pub(super) nodes: usize,
    pub(super) filled: Filled,
    pub(super) idle: Latency,
    /// As `idle`, with bind requests.
    pub(super) compatible: Latency,
    pub(super) writes: Writes,
    pub(super) ours: Vec<(&'static str, Usage)>,
    pub(super) server: Usage,
}

/// From creation to binding on the idle cluster, in milliseconds, ascending.
#[derive(Default)]
pub(super) struct Latency {
    /// Of single pods.
    pub(super) singles: Vec<f64>,
    /// From the creation of the last pod of a gang of 64 to its last binding.
    pub(super) gangs: Vec<f64>,
}

/// What was measured of another scheduler on a real control plane.
pub(super) struct Other {
    pub(super) filled: Filled,
    pub(super) singles: Vec<f64>,
    pub(super) writes: Writes,
    pub(super) usage: Usage,
    pub(super) server: Usage,
}

/// What was measured on the embedded server.
pub(super) struct Embedded {
    pub(super) nodes: usize,
    pub(super) filled: Filled,
    /// From creation to binding of single pods on the idle cluster, in milliseconds, ascending.
    pub(super) idle: Vec<f64>,
    pub(super) usage: Usage,
}

impl Real {
    fn writes_per_pod(&self) -> f64 {
        self.writes.total() as f64 / self.filled.pods as f64
    }

    fn together(&self) -> Usage {
        let mut sum = Usage::default();
        for (_, usage) in &self.ours {
            sum.cpu_seconds += usage.cpu_seconds;
            sum.peak_mb += usage.peak_mb;
        }
        sum
    }

    pub(super) fn text(&self) -> String {
        let Filled { pods, seconds, .. } = self.filled;
        let together = self.together();
        let mut text = format!(
            "{} nodes of eight GPUs and {pods} single-GPU pods on a real kube-apiserver, every component a process of \
             its own. Written by `cargo xtask bench e2e --write`. KAI's figures are of v0.17 on the same kind of \
             machine, with its default client limits.\n\n\
             | | ours | KAI |\n|---|---|---|\n",
            self.nodes
        );
        let mut row = |what: &str, ours: String, theirs: f64| {
            writeln!(text, "| {what} | {ours} | {theirs} |").expect("writing to a string");
        };
        row("seconds until all are bound", format!("{seconds:.1}"), KAI_SECONDS);
        row("writes per pod", format!("{:.2}", self.writes_per_pod()), KAI_WRITES);
        row("CPU seconds of the components", format!("{:.1}", together.cpu_seconds), KAI_CPU_SECONDS);
        row("peak memory of the components, MB", format!("{:.0}", together.peak_mb), KAI_MB);
        row(
            "CPU seconds of kube-apiserver",
            format!("{:.1}", self.server.cpu_seconds),
            KAI_SERVER_CPU_SECONDS,
        );
        writeln!(
            text,
            "\nThe pods were created within {:.1} s. {}",
            self.filled.creating_seconds,
            waits(&self.filled.waits_ms)
        )
        .expect("writing to a string");
        text.push_str(
            "\n| on the idle cluster, ms | median | 99th percentile | gang of 64, from its last pod on, median |\n\
             |---|---|---|---|\n",
        );
        for (what, latency) in [("direct binding", &self.idle), ("bind requests", &self.compatible)] {
            let (median, most) = (percentile(&latency.singles, 50), percentile(&latency.singles, 99));
            let gang = percentile(&latency.gangs, 50);
            writeln!(text, "| {what} | {median:.1} | {most:.1} | {gang:.0} |").expect("writing to a string");
        }
        text.push_str("\n| process | CPU s | peak MB |\n|---|---|---|\n");
        let server = [("kube-apiserver", self.server)];
        for (name, usage) in self.ours.iter().chain(&server) {
            writeln!(text, "| {name} | {:.1} | {:.0} |", usage.cpu_seconds, usage.peak_mb)
                .expect("writing to a string");
        }
        text.push_str("\n| resource | verb | answer | writes | per pod |\n|---|---|---|---|---|\n");
        for (resource, verb, code, count) in self.writes.rows() {
            let share = count as f64 / pods as f64;
            writeln!(text, "| {resource} | {verb} | {code} | {count} | {share:.2} |")
                .expect("writing to a string");
        }
        text
    }

    /// The figures of another scheduler in the same run beside ours.
    pub(super) fn beside(&self, name: &str, other: &Other) -> String {
        let mut text = format!(
            "\nThe same load with {name}, afterwards in the same run, alone on a fresh control plane:\n\n\
             | | ours | {name} | ratio |\n|---|---|---|---|\n"
        );
        let together = self.together();
        let other_writes = other.writes.total() as f64 / other.filled.pods.max(1) as f64;
        let rows = [
            ("seconds until all are bound", self.filled.seconds, other.filled.seconds),
            ("seconds until all were created", self.filled.creating_seconds, other.filled.creating_seconds),
            ("writes per pod", self.writes_per_pod(), other_writes),
            ("CPU seconds of the scheduler's processes", together.cpu_seconds, other.usage.cpu_seconds),
            ("peak memory of these, MB", together.peak_mb, other.usage.peak_mb),
            ("CPU seconds of kube-apiserver", self.server.cpu_seconds, other.server.cpu_seconds),
            (
                "single pod on the idle cluster, median ms",
                percentile(&self.idle.singles, 50),
                percentile(&other.singles, 50),
            ),
            ("the same, 99th percentile", percentile(&self.idle.singles, 99), percentile(&other.singles, 99)),
        ];
        for (what, ours, theirs) in rows {
            let ratio = ours / theirs.max(f64::MIN_POSITIVE);
            writeln!(text, "| {what} | {ours:.1} | {theirs:.1} | {ratio:.2} |").expect("writing to a string");
        }
        text
    }

    pub(super) fn misses(&self) -> Vec<String> {
        if self.nodes != TARGET_NODES {
            return Vec::new();
        }
        let together = self.together();
        let limits = [
            ("seconds until all are bound", self.filled.seconds, SECONDS_MAX),
            // A few conflicts and the queues' status are not counted by the pod.
            ("writes per pod", self.writes_per_pod(), WRITES_MAX * 1.01),
            ("CPU seconds of kube-apiserver", self.server.cpu_seconds, SERVER_CPU_SECONDS_MAX),
            ("CPU seconds of our processes", together.cpu_seconds, CPU_SECONDS_MAX),
            ("MB of memory of our processes", together.peak_mb, MB_MAX),
            ("ms for a single pod at the median", percentile(&self.idle.singles, 50), SINGLE_MS_MAX.0),
            (
                "ms for a single pod at the 99th percentile",
                percentile(&self.idle.singles, 99),
                SINGLE_MS_MAX.1,
            ),
            (
                "ms for a single pod with bind requests at the median",
                percentile(&self.compatible.singles, 50),
                SINGLE_BY_REQUEST_MS_MAX.0,
            ),
            (
                "ms for a single pod with bind requests at the 99th percentile",
                percentile(&self.compatible.singles, 99),
                SINGLE_BY_REQUEST_MS_MAX.1,
            ),
            ("ms for a gang of 64 at the median", percentile(&self.idle.gangs, 50), GANG_MS_MAX),
        ];
        over(&limits)
    }
}

impl Embedded {
    fn pods_per_second(&self) -> f64 {
        self.filled.pods as f64 / self.filled.seconds.max(0.001)
    }

    pub(super) fn text(&self) -> String {
        format!(
            "The same in one process, with simulated nodes that start the pods: `kai up --nodes {}x8`, the load from \
             outside. Written by `cargo xtask bench e2e --embedded --write`.\n\n\
             | | |\n|---|---|\n\
             | pods | {} |\n| seconds until all are bound | {:.1} |\n| pods a second | {:.0} |\n\
             | CPU seconds | {:.1} |\n| peak memory, MB | {:.0} |\n\
             | single pod on the idle cluster, creation to binding, median ms | {:.0} |\n\
             | the same, 99th percentile | {:.0} |\n",
            self.nodes,
            self.filled.pods,
            self.filled.seconds,
            self.pods_per_second(),
            self.usage.cpu_seconds,
            self.usage.peak_mb,
            percentile(&self.idle, 50),
            percentile(&self.idle, 99),
        )
    }

    pub(super) fn misses(&self) -> Vec<String> {
        if self.nodes != TARGET_NODES {
            return Vec::new();
        }
        let mut misses =
            over(&[("ms for a single pod at the median", percentile(&self.idle, 50), IDLE_MS_MAX)]);
        if self.pods_per_second() < PODS_PER_SECOND_MIN {
            misses.push(format!(
                "{:.0} pods a second, {PODS_PER_SECOND_MIN} are wanted",
                self.pods_per_second()
            ));
        }
        misses
    }
}

/// The components as processes of their own beside `kai all`.
pub(super) fn beside_combined(separate: &Real, combined: &Real) -> String {
    let mut text = String::from(
        "\nThe same load with all components in one process (`kai all`), afterwards in the same run:\n\n\
         | | separate | one process | ratio |\n|---|---|---|---|\n",
    );
    let (separately, together) = (separate.together(), combined.together());
    let rows = [
        ("seconds until all are bound", separate.filled.seconds, combined.filled.seconds),
        ("writes per pod", separate.writes_per_pod(), combined.writes_per_pod()),
        ("CPU seconds of the components", separately.cpu_seconds, together.cpu_seconds),
        ("peak memory of the components, MB", separately.peak_mb, together.peak_mb),
        ("CPU seconds of kube-apiserver", separate.server.cpu_seconds, combined.server.cpu_seconds),
        (
            "single pod on the idle cluster, median ms",
            percentile(&separate.idle.singles, 50),
            percentile(&combined.idle.singles, 50),
        ),
    ];
    for (what, separate, combined) in rows {
        let ratio = combined / separate.max(f64::MIN_POSITIVE);
        writeln!(text, "| {what} | {separate:.1} | {combined:.1} | {ratio:.2} |")
            .expect("writing to a string");
    }
    text
}

fn over(limits: &[(&str, f64, f64)]) -> Vec<String> {
    let over = limits.iter().filter(|(_, value, most)| value > most);
    over.map(|(what, value, most)| format!("{value:.1} {what}, at most {most:.1} are wanted")).collect()
}

fn waits(sorted: &[f64]) -> String {
    let at = |percent| percentile(sorted, percent) / 1000.0;
    format!("From a pod's creation to its binding: median {:.2} s, 99th percentile {:.2} s.", at(50), at(99))
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0.0)
}

/// A text with the targets that were missed below it.
pub(in crate::bench) fn with_misses(text: &str, misses: &[String]) -> String {
    let lines: Vec<String> = misses.iter().map(|miss| format!("- Missed: {miss}.\n")).collect();
    if lines.is_empty() {
        format!("{text}\nAll targets are met.\n")
    } else {
        format!("{text}\n{}", lines.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_sorted_values() {
        assert_eq!(
            (percentile(&[], 50), percentile(&[1.0, 2.0, 3.0], 50), percentile(&[1.0, 2.0], 99)),
            (0.0, 2.0, 2.0)
        );
    }
    fn filled(pods: usize, seconds: f64) -> Filled {
        Filled { pods, seconds, creating_seconds: seconds, waits_ms: vec![1.0] }
    }

    fn measured() -> Real {
        let latency = |ms: f64| Latency { singles: vec![ms], gangs: vec![ms] };
        Real {
            nodes: TARGET_NODES,
            filled: filled(4000, 20.0),
            idle: latency(10.0),
            compatible: latency(20.0),
            writes: Writes::default(),
            ours: vec![("scheduler", Usage { cpu_seconds: 3.0, peak_mb: 60.0, ..Usage::default() })],
            server: Usage { cpu_seconds: 30.0, ..Usage::default() },
        }
    }

    #[test]
    fn slow_pod_on_the_idle_cluster_is_a_miss() {
        assert_eq!(measured().misses(), Vec::<String>::new());
        let mut slow = measured();
        slow.idle.singles = vec![10.0, 31.0];
        let expected = "31.0 ms for a single pod at the 99th percentile, at most 30.0 are wanted";
        assert!(slow.misses().iter().any(|miss| miss == expected), "{:?}", slow.misses());
    }

    #[test]
    fn another_scheduler_stands_beside_ours_with_the_ratio() {
        let other = Other {
            filled: filled(4000, 10.0),
            singles: vec![10.0],
            writes: Writes::default(),
            usage: Usage { cpu_seconds: 6.0, ..Usage::default() },
            server: Usage { cpu_seconds: 15.0, ..Usage::default() },
        };
        let text = measured().beside("kube-scheduler", &other);
        assert!(text.contains("| seconds until all are bound | 20.0 | 10.0 | 2.00 |"), "{text}");
        assert!(text.contains("| CPU seconds of the scheduler's processes | 3.0 | 6.0 | 0.50 |"), "{text}");
    }
}
