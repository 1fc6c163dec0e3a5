//! Checks an outcome against the laws, slowly and apart from the code that decided it.
//!
//! Input: the cluster as it was when the cycle began (planning leaves it so), the policy, and the outcome.
//! Output: every law that the decisions break. An empty list is the only good answer.
//! What was wrong before the cycle is not held against it; making it worse is.
//! Independent: ledgers, columns, counters and classes that planning reads are not read here; every sum is made
//! again from the pods, every selector is matched again by its text.

mod after;
mod books;
mod eviction;
mod fairness;
mod gang;
mod matching;
mod node;
mod protection;
mod queue;
mod rules;
mod takings;
mod topology;

use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::PodIdx;
use crate::input::Key;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::verdict::Verdict;
use after::{After, How};
use std::collections::BTreeSet;
use std::fmt;

/// A law that an outcome breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Which law.
    pub invariant: Invariant,
    /// What breaks it, in words.
    pub what: String,
}

/// The laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Decisions name things that exist, once, in a state that allows them.
    Consistency,
    /// No node holds more than it has.
    NodeCapacity,
    /// No GPU is shared beyond its memory.
    GpuMemory,
    /// No device serves two claims.
    Devices,
    /// No queue passes its limit.
    QueueLimit,
    /// Groups that cannot be evicted stay within the quota of their queues.
    NonPreemptibleQuota,
    /// Groups are whole or absent.
    Gang,
    /// A node takes only pods that its description and the pods on it allow.
    Placement,
    /// Pods that must be near each other are.
    Topology,
    /// Only what may be evicted is, once, and for somebody who gains by it.
    Eviction,
    /// Consolidation moves pods; it takes nothing from anybody.
    Consolidation,
    /// No queue loses to reclaim what it is entitled to, nor takes more than it is entitled to.
    Reclaim,
    /// Groups keep their minimum until their minimum run time is over.
    MinRuntime,
    /// Disruption budgets are kept.
    DisruptionBudget,
    /// Every pending group has one verdict.
    Verdicts,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// Collects what is found.
#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn say(&mut self, invariant: Invariant, what: String) {
        self.0.push(Violation { invariant, what });
    }
}

/// Everything that an outcome breaks, by law.
pub fn audit(before: &Cluster, policy: &Policy, outcome: &Outcome) -> Vec<Violation> {
    let mut findings = Findings::default();
    let after = After::build(before, outcome, &mut findings);
    node::check(before, &after, &mut findings);
    node::check_devices(before, outcome, &mut findings);
    if policy.registry.builtin.proportion.is_some() && policy.registry.builtin.predicates {
        queue::check(before, &after, &mut findings);
    }
    gang::check(before, &after, &mut findings);
    gang::check_losses(before, &after, &mut findings);
    eviction::check(before, policy, &after, outcome, &mut findings);
    if policy.registry.builtin.predicates {
        rules::check(before, policy, &after, &mut findings);
    }
    if policy.registry.builtin.topology {
        topology::check(before, &after, &mut findings);
    }
    verdicts(before, &after, outcome, &mut findings);
    findings.0.sort();
    findings.0
}

/// Every group with pods that are left without a place has exactly one verdict.
fn verdicts(before: &Cluster, after: &After, outcome: &Outcome, findings: &mut Findings) {
    let mut named: Vec<&Key> = outcome.verdicts.iter().map(|v| &v.group).collect();
    named.sort();
    for pair in named.windows(2).filter(|pair| pair[0] == pair[1]) {
        findings.say(Invariant::Verdicts, format!("group `{}` has two verdicts", pair[0]));
    }
    for group in &outcome.verdicts {
        for verdict in std::iter::once(&group.leading).chain(&group.further) {
            if let Verdict::NoNode(fit) | Verdict::GangNotSatisfied { fit, .. } = verdict
                && fit.nodes > 0
                && fit.reasons.is_empty()
            {
                findings.say(
                    Invariant::Verdicts,
                    format!("no reason is given why pod `{}` found no node", fit.pod),
                );
            }
        }
    }
    let bound: BTreeSet<PodIdx> = after.held.iter().filter(|h| h.how == How::Bound).map(|h| h.pod).collect();
    let left = |pod: &PodIdx| before.pods[*pod].state.status == Status::Pending && !bound.contains(pod);
    for (index, _) in before.present_groups().filter(|(_, group)| group.pods.iter().any(left)) {
        let key = before.group_key(index);
        if named.binary_search(&&key).is_err() {
            findings.say(Invariant::Verdicts, format!("group `{key}` has pending pods and no verdict"));
        }
    }
}
