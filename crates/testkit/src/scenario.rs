//! Parses and runs scenario files: a small cluster as text, and the expected placement of its pods.
//!
//! ```text
//! nodes    n1..n2  gpu=4
//! queues   team quota=8 | team/alice weight=2 | team/bob weight=1
//! groups   train  queue=team/alice min=2 pods=2x{gpu=2}
//!          notes  queue=team/bob   pods=1x{gpu=0.5} running@n1#0
//! expect   train  running@n2*2
//!          notes  running@n1#0
//! ```
//!
//! A scenario runs until its expectation holds, and then for five more cycles that must not change it. In every cycle a
//! cluster built from scratch must decide the same as the incrementally updated one, and the audit must find no
//! violation. With `UPDATE=1` in the environment the expectations are rewritten instead. `docs/scenarios.md` lists the
//! keywords.

mod groups;
mod nodes;
mod pods;
mod resources;
mod results;
mod settings;
mod syntax;

use crate::test_cluster::TestCluster;
use anyhow::{Context, Result, bail, ensure};
use kai_engine::audit::audit;
use kai_engine::input::{Key, QueueInput, QueueShare};
use kai_engine::policy::Policy;
use kai_engine::{CarryOver, Cluster, ClusterState, Cycle, Delta, Observer, plan_observed};
use kai_units::Timestamp;
use results::Listed;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use syntax::{Entry, Section};

/// Maximum number of cycles until the expectation holds.
const CYCLES_MAX: usize = 10;
/// Cycles after that, which must not change the result.
const CYCLES_STABLE: usize = 5;
/// The time of every cycle.
const NOW: Timestamp = Timestamp(1_000_000_000_000_000);

/// A parsed scenario file.
pub struct Scenario {
    pub cluster: TestCluster,
    pub policy: Policy,
    groups: Vec<Listed>,
    expected: BTreeMap<Key, String>,
    shares: Option<Vec<String>>,
    evictions: Option<Vec<String>>,
    notices: Option<Vec<String>>,
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Self> {
        let sections = syntax::sections(text)?;
        let mut cluster = TestCluster::default();
        let mut groups = Vec::new();
        let mut queues: Vec<Delta> = Vec::new();
        for section in &sections {
            for entry in &section.entries {
                let at = || format!("line {}", entry.line);
                match section.name.as_str() {
                    "queues" => queues.push(nodes::queue(entry, queues.len()).with_context(at)?),
                    "groups" => {
                        let template = groups::group(entry, groups.len(), NOW).with_context(at)?;
                        cluster.deltas.extend(template.deltas);
                        let title = entry.words[0].clone();
                        groups.push(Listed { key: groups::key(&title), title, pods: template.pods });
                    }
                    name => cluster.deltas.extend(object(name, entry).with_context(at)?),
                }
            }
        }
        add_parents(&mut queues);
        cluster.deltas.extend(queues);
        let named = |name: &'static str| sections.iter().filter(move |s: &&Section| s.name == name);
        let policy: Vec<Entry> = named("policy").flat_map(|s| s.entries.clone()).collect();
        let lines = |name: &'static str| {
            named(name).next().map(|s| s.entries.iter().map(|e| e.words.join(" ")).collect::<Vec<_>>())
        };
        Ok(Self {
            cluster,
            policy: settings::policy(&policy)?,
            groups,
            expected: named("expect").flat_map(|s| &s.entries).map(expectation).collect(),
            shares: lines("shares"),
            evictions: lines("evictions"),
            notices: lines("notices"),
        })
    }

    /// Runs cycles without comparing an expectation; an error names the violated invariant.
    pub fn run_cycles(&self, cycles: usize) -> Result<()> {
        let mut run = Run::new(self);
        for _ in 0..cycles {
            run.cycle()?;
        }
        Ok(())
    }

    /// Runs the scenario. An error contains the differences.
    pub fn check(&self) -> Result<()> {
        let missing = self.groups.iter().find(|g| !self.expected.contains_key(&g.key));
        if let Some(group) = missing {
            bail!("group `{}` has no expectation; hint: run with `UPDATE=1`", group.title);
        }
        let mut run = Run::new(self);
        let mut found = run.cycle()?;
        if let Some(shares) = &self.shares {
            ensure!(*shares == run.shares, "shares are {:?}, not {shares:?}", run.shares);
        }
        for _ in 1..CYCLES_MAX {
            if found == self.expected {
                break;
            }
            found = run.cycle()?;
        }
        self.compare(&found, "when the cycles end")?;
        for _ in 0..CYCLES_STABLE {
            self.compare(&run.cycle()?, "in a cycle after the expectation held")?;
        }
        if let Some(evictions) = &self.evictions {
            ensure!(*evictions == run.evicted(), "evictions are {:?}, not {evictions:?}", run.evicted());
        }
        if let Some(notices) = &self.notices {
            ensure!(*notices == run.notices(), "notices are {:?}, not {notices:?}", run.notices());
        }
        Ok(())
    }

    fn compare(&self, found: &BTreeMap<Key, String>, when: &str) -> Result<()> {
        let mut lines = String::new();
        for group in &self.groups {
            let (wanted, got) = (&self.expected[&group.key], &found[&group.key]);
            if wanted != got {
                let (title, gap) = (&group.title, " ".repeat(group.title.len()));
                write!(lines, "\n  {title}: expected `{wanted}`\n  {gap}      got `{got}`")?;
            }
        }
        ensure!(lines.is_empty(), "the cluster differs {when}:{lines}");
        Ok(())
    }

    /// The file with its expectations rewritten.
    fn updated(&self, text: &str) -> Result<String> {
        let mut run = Run::new(self);
        let mut found = run.cycle()?;
        let shares = run.shares.clone();
        for _ in 1..CYCLES_MAX {
            found = run.cycle()?;
        }
        let mut kept: Vec<&str> = Vec::new();
        let mut dropping = false;
        for line in text.lines() {
            if !line.starts_with(char::is_whitespace) && !line.is_empty() {
                dropping = line.starts_with("expect")
                    || (self.shares.is_some() && line.starts_with("shares"))
                    || (self.evictions.is_some() && line.starts_with("evictions"))
                    || (self.notices.is_some() && line.starts_with("notices"));
            }
            if !dropping {
                kept.push(line);
            }
        }
        let width = self.groups.iter().map(|g| g.title.len()).max().unwrap_or(0);
        let mut text = kept.join("\n").trim_end().to_owned() + "\n";
        for (i, line) in shares.iter().enumerate().filter(|_| self.shares.is_some()) {
            writeln!(text, "{:<9}{line}", if i == 0 { "shares" } else { "" })?;
        }
        for (i, line) in run.evicted().iter().enumerate().filter(|_| self.evictions.is_some()) {
            writeln!(text, "{:<11}{line}", if i == 0 { "evictions" } else { "" })?;
        }
        for (i, line) in run.notices().iter().enumerate().filter(|_| self.notices.is_some()) {
            writeln!(text, "{:<9}{line}", if i == 0 { "notices" } else { "" })?;
        }
        for (i, group) in self.groups.iter().enumerate() {
            let head = if i == 0 { "expect" } else { "" };
            writeln!(text, "{head:<9}{:<width$}  {}", group.title, found[&group.key])?;
        }
        Ok(text)
    }
}

/// Runs the scenario in a file; with `UPDATE=1` rewrites its expectations first.
pub fn run_file(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut scenario = Scenario::parse(&text)?;
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        let text = scenario.updated(&text)?;
        std::fs::write(path, &text).with_context(|| format!("cannot write `{}`", path.display()))?;
        scenario = Scenario::parse(&text)?;
    }
    scenario.check()
}

fn object(section: &str, entry: &Entry) -> Result<Vec<Delta>> {
    Ok(match section {
        "nodes" => nodes::nodes(entry)?,
        "topologies" => vec![nodes::topology(entry)],
        "pods" => vec![groups::lone_pod(entry, NOW)?],
        "slices" => vec![resources::slice(entry)?],
        "classes" => vec![resources::device_class(entry)],
        "claims" => vec![resources::claim(entry)?],
        "storageclasses" => vec![resources::storage_class(entry)?],
        "volumes" => vec![resources::volume(entry)?],
        "volumeclaims" => vec![resources::volume_claim(entry)?],
        "capacities" => vec![resources::capacity(entry)?],
        "configmaps" => entry.words.iter().map(|name| resources::config_map(name)).collect(),
        "budgets" => vec![resources::budget(entry)?],
        "policy" | "expect" | "shares" | "evictions" | "notices" => Vec::new(),
        other => bail!("there is no section `{other}`"),
    })
}

/// Parents that no entry describes are unlimited.
fn add_parents(queues: &mut Vec<Delta>) {
    let free = QueueShare { quota: None, limit: None, weight: 1.0 };
    let mut at = 0;
    while at < queues.len() {
        if let Delta::Queue(queue) = &queues[at] {
            let parent = queue.parent.clone();
            let known = |name: &str| queues.iter().any(|d| matches!(d, Delta::Queue(q) if q.name == name));
            if let Some(name) = parent.filter(|name| !known(name)) {
                queues.push(Delta::Queue(Box::new(QueueInput {
                    parent: name.rsplit_once('/').map(|(parent, _)| parent.to_owned()),
                    name,
                    priority: 100,
                    cpu: free,
                    memory: free,
                    gpu: free,
                    ..QueueInput::default()
                })));
            }
        }
        at += 1;
    }
}

fn expectation(entry: &Entry) -> (Key, String) {
    (groups::key(&entry.words[0]), entry.words[1..].join(" "))
}

/// A scenario being run: its objects, and the cluster that is updated incrementally from them.
struct Run<'s> {
    scenario: &'s Scenario,
    objects: TestCluster,
    cluster: ClusterState,
    carried_over: CarryOver,
    shares: Vec<String>,
    cycles: u32,
    evictions: Vec<String>,
    notices: Vec<String>,
}

impl<'s> Run<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let objects = scenario.cluster.clone();
        Self {
            scenario,
            cluster: objects.build(),
            objects,
            carried_over: CarryOver::default(),
            shares: Vec::new(),
            cycles: 0,
            evictions: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn notices(&self) -> Vec<String> {
        if self.notices.is_empty() { vec!["none".to_owned()] } else { self.notices.clone() }
    }

    fn evicted(&self) -> Vec<String> {
        if self.evictions.is_empty() { vec!["none".to_owned()] } else { self.evictions.clone() }
    }

    /// Runs one cycle, applies its decisions to the objects, and returns the state of every group.
    fn cycle(&mut self) -> Result<BTreeMap<Key, String>> {
        let policy = &self.scenario.policy;
        let mut observer = EndState { groups: &self.scenario.groups, states: BTreeMap::new() };
        let cycle = Cycle { now: NOW, seed: u64::from(self.cycles) + 1 };
        let outcome = plan_observed(&mut self.cluster, policy, cycle, &mut observer);
        let violations = audit(&self.cluster, policy, &outcome);
        ensure!(violations.is_empty(), "the audit found violations: {}", joined(&violations));
        let mut rebuilt = self.objects.build();
        rebuilt.carry_over(self.carried_over.clone());
        let rebuilt = kai_engine::plan(&mut rebuilt, policy, cycle);
        ensure!(rebuilt == outcome, "a cluster built from scratch decides differently");
        let again = kai_engine::plan(&mut self.cluster, policy, cycle);
        ensure!(again == outcome, "planning the same cluster twice decides differently");
        self.carried_over.clone_from(&outcome.carry_over);
        self.cluster.carry_over(outcome.carry_over.clone());
        for name in self.objects.apply_decisions(&outcome.decisions) {
            if let Some(pod) = self.objects.pod_mut(&name) {
                self.cluster.apply(Delta::Pod(Box::new(pod.clone())));
            }
        }
        self.apply_claims();
        for delta in self.objects.apply_notices(&outcome.time_limits, NOW) {
            self.cluster.apply(delta);
        }
        let mut states = observer.states;
        for (key, state) in &mut states {
            if let Some(verdict) = results::verdict(&outcome, key) {
                write!(state, " -- {verdict}")?;
            }
        }
        self.shares = results::shares(&outcome);
        self.cycles += 1;
        let cycles = self.cycles;
        self.evictions.extend(results::evictions(&outcome).iter().map(|line| format!("{cycles} {line}")));
        let known = |line: &String| self.notices.iter().any(|known| known.ends_with(line));
        let new: Vec<String> = results::notices(&outcome).into_iter().filter(|line| !known(line)).collect();
        self.notices.extend(new.iter().map(|line| format!("{cycles} {line}")));
        Ok(states)
    }

    fn apply_claims(&mut self) {
        for delta in self.objects.deltas.iter().filter(|d| matches!(d, Delta::Claim(_))) {
            self.cluster.apply(delta.clone());
        }
    }
}

fn joined(violations: &[kai_engine::audit::Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Records the state of the groups at the end of a cycle.
struct EndState<'s> {
    groups: &'s [Listed],
    states: BTreeMap<Key, String>,
}

impl Observer for EndState<'_> {
    fn cycle_ended(&mut self, cluster: &Cluster) {
        self.states = results::states(cluster, self.groups);
    }
}
