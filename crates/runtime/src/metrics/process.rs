//! Metrics of the operating system process: `process_*`, read from `/proc` when they are asked for.

use super::{VALID, gauge, opts, register};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Registry};
use std::fs;

/// Registers the metrics of this process; a value that cannot be read keeps its last state.
pub fn register_process(metrics: &Registry) {
    let cpu = opts("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", &[]);
    register(
        metrics,
        ProcessCollector {
            cpu: Counter::with_opts(cpu).expect(VALID),
            cpu_counted: Mutex::default(),
            open_fds: gauge("process_open_fds", "Number of open file descriptors.", &[]),
            max_fds: gauge("process_max_fds", "Maximum number of open file descriptors.", &[]),
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", &[]),
            virtual_memory_max: gauge(
                "process_virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
                &[],
            ),
            resident_memory: gauge("process_resident_memory_bytes", "Resident memory size in bytes.", &[]),
            start_time: gauge(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                &[],
            ),
        },
    );
}

struct ProcessCollector {
    cpu: Counter,
    /// The seconds that `cpu` has: a counter can only be increased.
    cpu_counted: Mutex<f64>,
    open_fds: Gauge,
    max_fds: Gauge,
    virtual_memory: Gauge,
    virtual_memory_max: Gauge,
    resident_memory: Gauge,
    start_time: Gauge,
}

impl ProcessCollector {
    fn gauges(&self) -> [&Gauge; 6] {
        [
            &self.open_fds,
            &self.max_fds,
            &self.virtual_memory,
            &self.virtual_memory_max,
            &self.resident_memory,
            &self.start_time,
        ]
    }

    fn update(&self) {
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open_fds.set(open.count() as f64);
        }
        if let Ok(limits) = fs::read_to_string("/proc/self/limits") {
            self.max_fds.set(soft_limit(&limits, "Max open files"));
            self.virtual_memory_max.set(soft_limit(&limits, "Max address space"));
        }
        let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text))
        else {
            return;
        };
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        self.virtual_memory.set(stat.virtual_bytes as f64);
        self.resident_memory.set(stat.resident_pages as f64 * rustix::param::page_size() as f64);
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text));
        if let Some(boot) = boot {
            self.start_time.set(boot as f64 + stat.start_ticks as f64 / ticks);
        }
        let cpu = stat.cpu_ticks as f64 / ticks;
        let mut counted = self.cpu_counted.lock();
        if cpu > *counted {
            self.cpu.inc_by(cpu - *counted);
            *counted = cpu;
        }
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.cpu.desc().into_iter().chain(self.gauges().into_iter().flat_map(Collector::desc)).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.update();
        self.cpu.collect().into_iter().chain(self.gauges().into_iter().flat_map(Collector::collect)).collect()
    }
}

/// The fields of `/proc/PID/stat` that are used (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain anything.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // The first field after the name is number 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// The soft limit of a row of `/proc/PID/limits`; an absent limit is the largest integer, as in other client libraries.
fn soft_limit(limits: &str, name: &str) -> f64 {
    let value = limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(u64::MAX) as f64
}

/// Seconds since the epoch.
fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_program_does_not_shift_the_fields() {
        let rest = "S 1 1 1 0 -1 4194560 1 0 0 0 7 5 0 0 20 0 9 0 3000 4096 12 18446744073709551615";
        let stat = Stat { cpu_ticks: 12, start_ticks: 3_000, virtual_bytes: 4_096, resident_pages: 12 };
        assert_eq!(Stat::parse(&format!("7 (a) b (c) {rest}")), Some(stat));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_descriptors_and_a_start_time() {
        let metrics = Registry::new();
        register_process(&metrics);
        let families = metrics.gather();
        assert_eq!(families.len(), 7);
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).expect("it is registered");
            family.get_metric()[0].get_gauge().get_value()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_start_time_seconds") > 1.6e9);
    }
}
