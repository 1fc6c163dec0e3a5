//! Compares the result of a cycle with the expectations and observations of a case.
//!
//! Everything in `expected` must hold. Beyond it, the observed statuses and nodes, the multiset of decisions and the
//! queues' amounts must be equal, too. A node name that a record leaves on a pending pod is ignored.

use super::case::{Case, Event, Expected, Job, ObservedNode, Open, OpenShare, Round, Wanted, WantedNode};
use super::cycle::{CycleResult, End, NodeEnd, PodEnd};
use kai_engine::explain;
use kai_engine::input::WHOLE_GPU;
use kai_engine::outcome::{Decision, QueueReport};
use std::collections::BTreeMap;

/// Recorded numbers are rounded to nine decimals.
const TOLERANCE: f64 = 1e-6;

/// Differences, one line each.
#[derive(Default)]
pub(super) struct Diff(Vec<String>);

impl Diff {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// All lines, indented.
    pub(super) fn text(&self) -> String {
        self.0.iter().fold(String::new(), |text, line| text + "    " + line + "\n")
    }
    pub(super) fn add(&mut self, line: String) {
        self.0.push(line);
    }
    fn same_number(&mut self, what: &str, expected: f64, actual: f64) {
        if (expected - actual).abs() > TOLERANCE {
            self.add(format!("{what}: expected {expected}, got {actual}"));
        }
    }
    fn same_text(&mut self, what: &str, expected: Option<&str>, actual: Option<&str>) {
        if expected != actual {
            let name = |text: Option<&str>| text.map_or("none".to_owned(), |t| format!("`{t}`"));
            self.add(format!("{what}: expected {}, got {}", name(expected), name(actual)));
        }
    }
}

/// State of the groups besides their pods.
pub(super) struct Groups<'a> {
    /// Names of groups that began to run in this session.
    pub(super) started: &'a [String],
}

/// Checks everything that a case's table asserts about a state.
pub(super) fn expected(case: &Case, wanted: &Expected, end: &End, groups: &Groups<'_>, diff: &mut Diff) {
    for job in &case.input.jobs {
        let started = groups.started.contains(&job.name);
        if let Some(wanted) = wanted.jobs.get(&job.name) {
            let pods: Vec<_> = job.tasks.iter().filter_map(|task| entry(task, end)).collect();
            results(job, started, wanted, &pods, diff);
        }
        for task in &job.tasks {
            if let Some(wanted) = wanted.tasks.get(&task.name) {
                let pods: Vec<_> = entry(task, end).into_iter().collect();
                results(job, started, wanted, &pods, diff);
            }
        }
    }
    for (name, wanted) in &wanted.nodes {
        match end.nodes.get(name) {
            Some(node) => node_result(name, wanted, node, diff),
            None => diff.add(format!("node `{name}` is not there")),
        }
    }
}

/// A pod's name and state; a finished pod that the objects no longer have is left out.
fn entry<'a>(task: &'a super::case::Task, end: &'a End) -> Option<(&'a str, Option<&'a PodEnd>)> {
    let pod = end.pods.get(&task.name);
    let finished = task.status == "Failed" || task.status == "Succeeded";
    (pod.is_some() || !finished).then_some((task.name.as_str(), pod))
}

fn results(job: &Job, started: bool, wanted: &Wanted, pods: &[(&str, Option<&PodEnd>)], diff: &mut Diff) {
    let mut sums = [0.0; 4];
    for (name, pod) in pods {
        let Some(pod) = pod else {
            diff.add(format!("pod `{name}` is not there"));
            continue;
        };
        if let Some(status) = &wanted.status {
            diff.same_text(&format!("{name}: status"), Some(status), Some(pod.status));
            let allocated = ["Allocated", "Binding", "Bound", "Running"].contains(&status.as_str());
            if allocated && job.last_start_age_s.is_none() && !started {
                diff.add(format!("group `{}` runs without ever having started", job.name));
            }
        }
        if let Some(node) = wanted.node.as_deref().filter(|_| wanted.status.as_deref() != Some("Pending")) {
            diff.same_text(&format!("{name}: node"), Some(node), pod.node.as_deref());
        }
        if let Some(zones) = wanted.numa_zones.as_ref().filter(|zones| **zones != pod.zones) {
            diff.add(format!("{name}: expected the zones {zones:?}, got {:?}", pod.zones));
        }
        sums[0] += pod.gpus_required;
        sums[1] += pod.gpus_accepted;
        sums[2] += pod.cpu_milli as f64;
        sums[3] += pod.memory_bytes as f64;
    }
    let finished = job.tasks.iter().any(|t| t.status == "Failed" || t.status == "Succeeded");
    let expected =
        [wanted.gpus_required, wanted.gpus_accepted, wanted.cpu_milli_required, wanted.memory_bytes_required];
    let names = ["requested GPUs", "allocated GPUs", "requested CPU", "requested memory"];
    // The requests of finished pods are not kept.
    for i in (0..4).filter(|_| !finished) {
        if let Some(expected) = expected[i] {
            diff.same_number(&format!("{}: {}", job.name, names[i]), expected, sums[i]);
        }
    }
    if let Some(age) = wanted.last_start_older_than_s {
        let last = if started { Some(0) } else { job.last_start_age_s };
        if last.is_none_or(|last| last < age) {
            diff.add(format!("group `{}` started {last:?} s ago, not {age} s ago or earlier", job.name));
        }
    }
}

fn node_result(name: &str, wanted: &WantedNode, node: &NodeEnd, diff: &mut Diff) {
    let gpus =
        |amounts: &BTreeMap<String, i64>| amounts.get("gpu").copied().unwrap_or(0) as f64 / WHOLE_GPU as f64;
    diff.same_number(&format!("{name}: idle GPUs"), wanted.idle_gpus, gpus(&node.idle));
    diff.same_number(&format!("{name}: releasing GPUs"), wanted.releasing_gpus, gpus(&node.releasing));
    for (zone, amounts) in &wanted.numa_zones_available {
        for (resource, quantity) in amounts {
            let Ok(quantity) = quantity.parse::<kai_units::Quantity>() else {
                diff.add(format!("{name}: zone {zone}: `{quantity}` is not a quantity"));
                continue;
            };
            let wanted = match resource.as_str() {
                "memory" => quantity.units(),
                "nvidia.com/gpu" => quantity.units() * WHOLE_GPU,
                _ => quantity.milli(),
            };
            let ours = if resource == "nvidia.com/gpu" { "gpu" } else { resource };
            let left = node.zones.get(*zone).and_then(|z| z.get(ours)).copied().unwrap_or(0);
            diff.same_number(&format!("{name}: zone {zone}: {resource} left"), wanted as f64, left as f64);
        }
    }
}

/// Checks the upper bounds on decisions of one round; 0 allows none.
pub(super) fn counts(wanted: &Expected, decisions: &[Decision], diff: &mut Diff) {
    let count = |test: fn(&Decision) -> bool| decisions.iter().filter(|d| test(d)).count();
    let bounds = [
        ("binds", wanted.max_binds_per_round, count(|d| matches!(d, Decision::Bind(_)))),
        ("evictions", wanted.max_evictions_per_round, count(|d| matches!(d, Decision::Evict { .. }))),
        ("pipelines", wanted.max_pipelines_per_round, count(|d| matches!(d, Decision::Pipeline { .. }))),
    ];
    for (name, most, made) in bounds {
        if let Some(most) = most.filter(|most| made > *most) {
            diff.add(format!("at most {most} {name} are allowed, got {made}"));
        }
    }
}

/// Checks the texts that explain groups.
pub(super) fn messages(case: &Case, wanted: &Expected, done: &CycleResult, diff: &mut Diff) {
    for job in &case.input.jobs {
        let Some(message) = wanted.jobs.get(&job.name).and_then(|w| w.job_error_message.as_ref()) else {
            continue;
        };
        let verdict = done.outcome.verdicts.iter().find(|v| v.group.name == job.name);
        let text = verdict.map(explain::detailed).unwrap_or_default();
        // The record's namespace may be empty, which no object can have.
        let text = if job.namespace.is_empty() { text.replace("default/", "/") } else { text };
        diff.same_text(&format!("{}: explanation", job.name), Some(message), Some(&text));
    }
}

/// Compares one round with the observation; `tasks` are those of the newest round that has them.
pub(super) fn observed(case: &Case, upto: usize, done: &CycleResult, diff: &mut Diff) {
    let rounds = &case.observed.rounds;
    let Some(round) = rounds.get(upto) else { return };
    let mut renaming = Renaming::default();
    let newest = |f: fn(&Round) -> bool| rounds[..=upto].iter().rev().find(|r| f(r));
    if let Some(tasks) = newest(|r| r.tasks.is_some()).and_then(|r| r.tasks.as_ref()) {
        for (_, task) in case.tasks() {
            let (Some(seen), Some((name, Some(pod)))) = (tasks.get(&task.name), entry(task, &done.end))
            else {
                continue;
            };
            diff.same_text(&format!("{name}: observed status"), Some(&seen.status), Some(pod.status));
            if seen.status != "Pending" {
                diff.same_text(&format!("{name}: observed node"), seen.node.as_deref(), pod.node.as_deref());
                renaming.note(name, &seen.gpu_groups, &pod.gpu_groups, diff);
            }
        }
    }
    if let Some(nodes) = newest(|r| r.nodes.is_some()).and_then(|r| r.nodes.as_ref()) {
        for (name, seen) in nodes {
            if let Some(node) = done.end.nodes.get(name) {
                accounts(name, seen, node, diff);
            }
        }
    }
    events(&round.events, &done.outcome.decisions, diff);
    if let Some(open) = newest(|r| r.open.is_some()).and_then(|r| r.open.as_ref()) {
        shares(open, done, diff);
    }
}

/// Generated GPU groups have other names here; the mapping between both must be one to one.
#[derive(Default)]
struct Renaming(BTreeMap<String, String>, BTreeMap<String, String>);

impl Renaming {
    fn note(&mut self, pod: &str, theirs: &[String], ours: &[String], diff: &mut Diff) {
        if theirs.len() != ours.len() {
            diff.add(format!("{pod}: observed GPU groups {theirs:?}, got {ours:?}"));
            return;
        }
        // The order of the GPUs of a pod has no meaning.
        let known = |group: &&String| self.0.contains_key(*group);
        let (mut theirs, mut ours): (Vec<_>, Vec<_>) = (theirs.iter().collect(), ours.iter().collect());
        theirs.sort_by_key(|group| (!known(group), (*group).clone()));
        ours.sort_by_key(|group| (!self.1.contains_key(*group), self.1.get(*group).unwrap_or(group).clone()));
        for (a, b) in theirs.into_iter().zip(ours) {
            let there = self.0.entry(a.clone()).or_insert_with(|| b.clone()) == b;
            let back = self.1.entry(b.clone()).or_insert_with(|| a.clone()) == a;
            if !there || !back {
                diff.add(format!(
                    "{pod}: observed GPU group `{a}`, got `{b}`, which is another one elsewhere"
                ));
            }
        }
    }
}

/// Compares the idle and releasing amounts of a node.
fn accounts(name: &str, seen: &ObservedNode, node: &NodeEnd, diff: &mut Diff) {
    for (what, theirs, ours) in
        [("idle", &seen.idle, &node.idle), ("releasing", &seen.releasing, &node.releasing)]
    {
        for (resource, amount) in theirs {
            let (key, unit) = match resource.as_str() {
                "cpu_milli" => ("cpu", 1.0),
                "memory_bytes" => ("memory", 1.0),
                "gpu" => ("gpu", WHOLE_GPU as f64),
                "pods" => ("pods", 1.0),
                other => (other, 1000.0),
            };
            let actual = ours.get(key).copied().unwrap_or(0) as f64 / unit;
            diff.same_number(&format!("{name}: {what} {resource}"), *amount, actual);
        }
    }
}

fn events(expected: &[Event], decisions: &[Decision], diff: &mut Diff) {
    let mut balance: BTreeMap<String, i64> = BTreeMap::new();
    for event in expected {
        *balance.entry(event_line(event)).or_default() += 1;
    }
    for decision in decisions {
        *balance.entry(decision_line(decision)).or_default() -= 1;
    }
    for (line, count) in balance {
        if count > 0 {
            diff.add(format!("missing: {line}"));
        }
        if count < 0 {
            diff.add(format!("not expected: {line}"));
        }
    }
}

fn event_line(event: &Event) -> String {
    let node = event.node.as_deref().unwrap_or_default();
    let Event { event: kind, action, task, .. } = event;
    match (event.gang_size, &event.preemptor) {
        (Some(size), preemptor) => {
            let preemptor = preemptor.as_deref().unwrap_or_default();
            format!("{action}: {kind} {task} of {size} for `{preemptor}`")
        }
        (None, _) => format!("{action}: {kind} {task} on {node}"),
    }
}

fn decision_line(decision: &Decision) -> String {
    match decision {
        Decision::Bind(bind) => format!("{}: bind {} on {}", bind.action, bind.pod.name, bind.node),
        Decision::Pipeline { pod, node, action, .. } => format!("{action}: pipeline {} on {node}", pod.name),
        Decision::Evict { pod, gang_size, preemptor, action, .. } => {
            let preemptor = preemptor.as_ref().map_or("", |p| &p.name);
            format!("{action}: evict {} of {gang_size} for `{preemptor}`", pod.name)
        }
    }
}

fn shares(open: &Open, done: &CycleResult, diff: &mut Diff) {
    let scale = [1.0, 1.0, WHOLE_GPU as f64];
    let total = |key: &str| open.total.get(key).copied().unwrap_or(0.0);
    for (r, key) in ["cpu_milli", "memory_bytes", "gpu"].into_iter().enumerate() {
        diff.same_number(
            &format!("cluster total of {key}"),
            total(key),
            done.outcome.total[r] as f64 / scale[r],
        );
    }
    for (name, resources) in &open.queues {
        let Some(report) = done.outcome.queues.iter().find(|q| q.name == *name) else {
            diff.add(format!("queue `{name}` has no report"));
            continue;
        };
        for (r, key) in ["cpu", "memory", "gpu"].into_iter().enumerate() {
            let Some(share) = resources.get(key) else { continue };
            for (what, expected, actual) in figures(share, report, r) {
                let what = format!("queue `{name}`: {what} of {key}");
                diff.same_number(&what, expected, actual as f64 / scale[r]);
            }
        }
    }
}

fn figures(share: &OpenShare, report: &QueueReport, r: usize) -> [(&'static str, f64, i64); 4] {
    [
        ("request", share.requested, report.requested[r]),
        ("allocation", share.allocated, report.allocated[r]),
        ("non-preemptible allocation", share.allocated_non_preemptible, report.allocated_non_preemptible[r]),
        ("fair share", share.fair_share, report.fair_share[r]),
    ]
}
