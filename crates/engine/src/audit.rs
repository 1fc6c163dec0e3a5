//! Verifies an outcome violations the scheduling invariants, independently of the code that planned it.
//!
//! Input: the cluster at the start of the cycle (planning leaves it unchanged), the policy and the outcome.
//! Output: every invariant that the decisions violate; empty for a correct outcome.
//! A violation that existed before the cycle is ignored unless the cycle aggravates it.
//! Ledgers, columns, counters and classes that planning reads are not read here: every sum is computed again from the
//! pods, and every selector is matched again by its text.

mod after;
mod constraints;
mod eviction;
mod eviction_batches;
mod fairness;
mod gang;
mod matching;
mod node;
mod protection;
mod queue;
mod queue_allocation;
mod time_limit;
mod topology;

use crate::cluster::Cluster;
use crate::cluster::pod::Status;
use crate::ids::PodIdx;
use crate::input::Key;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::verdict::Verdict;
use after::{After, Presence};
use std::collections::BTreeSet;
use std::fmt;

/// An invariant that an outcome violates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// Description of the violation.
    pub what: String,
}

/// Scheduling invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Decisions refer to existing objects, once, in a valid state.
    Consistency,
    /// No node is overcommitted.
    NodeCapacity,
    /// No GPU is shared beyond its memory.
    GpuMemory,
    /// No device is allocated to two claims.
    Devices,
    /// No queue exceeds its limit.
    QueueLimit,
    /// Non-preemptible groups stay within the quota of their queues.
    NonPreemptibleQuota,
    /// A group has at least its minimum of pods, or none.
    Gang,
    /// Every placement satisfies the node's and the pods' constraints.
    Placement,
    /// Required topology constraints are satisfied.
    Topology,
    /// Only preemptible pods are evicted, once, and for a preemptor that is placed.
    Eviction,
    /// Consolidation moves pods and evicts none for good.
    Consolidation,
    /// Reclaim respects the fair share and quota of reclaimer and victims.
    Reclaim,
    /// Groups keep their minimum until their minimum run time has elapsed.
    MinRuntime,
    /// Groups end at their maximum run time, as a whole and for good.
    TimeLimit,
    /// Disruption budgets are respected.
    DisruptionBudget,
    /// Every pending group has exactly one verdict.
    Verdicts,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, invariant: Invariant, what: String) {
        self.0.push(Violation { invariant, what });
    }
}

/// All violations of an outcome, sorted by invariant.
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
    time_limit::check(before, &after, outcome, &mut findings);
    if policy.registry.builtin.predicates {
        constraints::check(before, policy, &after, &mut findings);
    }
    if policy.registry.builtin.topology {
        topology::check(before, &after, &mut findings);
    }
    verdicts(before, &after, outcome, &mut findings);
    findings.0.sort();
    findings.0
}

/// Every group with unplaced pods has exactly one verdict.
fn verdicts(before: &Cluster, after: &After, outcome: &Outcome, findings: &mut Findings) {
    let mut named: Vec<&Key> = outcome.verdicts.iter().map(|v| &v.group).collect();
    named.sort();
    for pair in named.windows(2).filter(|pair| pair[0] == pair[1]) {
        findings.add(Invariant::Verdicts, format!("group `{}` has two verdicts", pair[0]));
    }
    for group in &outcome.verdicts {
        for verdict in std::iter::once(&group.leading).chain(&group.further) {
            if let Verdict::NoNode(fit) | Verdict::GangNotSatisfied { fit, .. } = verdict
                && fit.nodes > 0
                && fit.reasons.is_empty()
            {
                findings.add(
                    Invariant::Verdicts,
                    format!("verdict of pod `{}` has no reasons per node", fit.pod),
                );
            }
        }
    }
    let bound: BTreeSet<PodIdx> =
        after.held.iter().filter(|h| h.presence == Presence::Bound).map(|h| h.pod).collect();
    let left = |pod: &PodIdx| before.pods[*pod].state.status == Status::Pending && !bound.contains(pod);
    for (index, _) in before.present_groups().filter(|(_, group)| group.pods.iter().any(left)) {
        let key = before.group_key(index);
        if named.binary_search(&&key).is_err() {
            findings.add(Invariant::Verdicts, format!("group `{key}` has pending pods and no verdict"));
        }
    }
}
