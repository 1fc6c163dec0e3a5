//! What a cycle would do if some changes were made: to submitted groups, to other groups and to queues.

use crate::amounts::{Amount, ByResource};
use crate::evictions::{self, EvictionsView};
use crate::hints::{HintsView, sentence};
use crate::reader::ClusterView;
use crate::verdicts::{self, VerdictView};
use crate::workload::Workload;
use kai_engine::input::Key;
use kai_engine::outcome::{Decision, Outcome};
use kai_engine::{Cluster, Cycle, Policy};
use kai_whatif::{Change, Model, hints};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What is asked.
pub struct Question<'a> {
    pub changes: &'a [Change],
    /// Groups whose fate is asked.
    pub submitted: &'a [Key],
    /// The configuration with the changes, where it is another one.
    pub policy: Option<&'a Policy>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhatIfView {
    /// The changes as sentences, without submitted objects.
    pub changes: Vec<String>,
    pub submitted: Vec<Prediction>,
    pub evictions: Vec<EvictionsView>,
    /// Other groups that start with the changes and not without them.
    pub starts: Vec<String>,
    /// Other groups that start without the changes and not with them.
    pub no_longer_starts: Vec<String>,
    pub queues: Vec<QueueChange>,
}

/// What becomes of a submitted group.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Prediction {
    pub group: String,
    /// What the user submitted, such as `Job/hello`.
    pub workload: Workload,
    pub queue: String,
    pub starts: Start,
    pub pods: Vec<PodPlace>,
    /// Pods that stay pending.
    pub pending: u32,
    pub verdict: Option<VerdictView>,
    pub hints: Option<HintsView>,
}

impl Prediction {
    /// `Job team/hello`, or `PodGroup team/train` where nothing owns the pod group.
    pub fn name(&self) -> String {
        let namespace = self.group.split('/').next().unwrap_or_default();
        format!("{} {namespace}/{}", self.workload.kind, self.workload.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    Now,
    /// When evicted or terminating pods have ended.
    AfterTerminations,
    Not,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PodPlace {
    pub pod: String,
    pub node: String,
    /// It waits for pods that terminate.
    pub waits: bool,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueChange {
    pub queue: String,
    pub parent: Option<String>,
    pub resources: ByResource<AmountChange>,
}

/// Allocations: now, after the next cycle, and after the next cycle with the changes.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AmountChange {
    pub quota: Option<Amount>,
    pub limit: Option<Amount>,
    pub fair_share: Amount,
    pub now: Amount,
    pub without: Amount,
    pub with: Amount,
}

/// Makes the changes to a view of a cluster, plans, and compares. Returns the outcome with the changes, too.
pub fn predict(view: &mut ClusterView, policy: &Policy, question: &Question<'_>) -> (WhatIfView, Outcome) {
    let without = view.outcome.clone();
    let placed_without = placed(&view.cluster, &without);
    let cycle = Cycle { now: view.now, seed: 0 };
    let policy = question.policy.unwrap_or(policy);
    let mut model = Model { store: &mut view.store, cluster: &mut view.cluster, policy, cycle };
    model.apply(question.changes);
    let with = model.plan();
    let effort = hints::Effort::of(&view.cluster);
    let mut submitted = Vec::new();
    for group in question.submitted {
        let mut model = Model { store: &mut view.store, cluster: &mut view.cluster, policy, cycle };
        let hints = hints::find(&mut model, &with, group, effort);
        let workload = view.store.objects().pod_groups.get(group).map(|group| Workload::of(group));
        let hints = HintsView::new(&hints);
        submitted.push(Prediction {
            workload: workload.unwrap_or_else(|| Workload::group(group)),
            ..prediction(&view.cluster, &with, group, &hints)
        });
    }
    let placed_with = placed(&view.cluster, &with);
    let other = |of: &BTreeMap<Key, usize>, than: &BTreeMap<Key, usize>| -> Vec<String> {
        let groups =
            of.keys().filter(|group| !than.contains_key(group) && !question.submitted.contains(group));
        groups.map(ToString::to_string).collect()
    };
    let answer = WhatIfView {
        changes: question.changes.iter().filter(|of| !matches!(of, Change::Put(_))).map(sentence).collect(),
        submitted,
        evictions: evictions::view(&with),
        starts: other(&placed_with, &placed_without),
        no_longer_starts: other(&placed_without, &placed_with),
        queues: queues(&without, &with),
    };
    view.outcome = with.clone();
    (answer, with)
}

fn prediction(cluster: &Cluster, outcome: &Outcome, group: &Key, hints: &HintsView) -> Prediction {
    let index = cluster.group(group);
    let members: BTreeSet<Key> = index
        .map(|index| cluster.groups[index].pods.iter().map(|pod| cluster.pod_key(*pod)).collect())
        .unwrap_or_default();
    let mut pods: Vec<PodPlace> = Vec::new();
    for decision in outcome.decisions.iter().filter(|decision| members.contains(decision.pod())) {
        let (pod, node, waits) = match decision {
            Decision::Bind(bind) => (&bind.pod, &bind.node, false),
            Decision::Pipeline { pod, node, moved: false, .. } => (pod, node, true),
            Decision::Pipeline { moved: true, .. } | Decision::Evict { .. } => continue,
        };
        pods.push(PodPlace { pod: pod.to_string(), node: node.clone(), waits });
    }
    pods.sort_by(|one, other| crate::natural_order(&one.pod, &other.pod));
    let starts = match pods.as_slice() {
        [] => Start::Not,
        pods if pods.iter().any(|pod| pod.waits) => Start::AfterTerminations,
        _ => Start::Now,
    };
    let verdict = outcome.verdicts.iter().find(|verdict| verdict.group == *group);
    let queue = index.map(|index| cluster.text(cluster.groups[index].queue_name).to_owned());
    Prediction {
        group: group.to_string(),
        workload: Workload::group(group),
        queue: queue.unwrap_or_default(),
        starts,
        pending: (members.len() - pods.len()) as u32,
        pods,
        verdict: verdict.map(verdicts::view),
        hints: (starts == Start::Not).then(|| hints.clone()),
    }
}

/// Groups with the number of their pods that a plan places.
fn placed(cluster: &Cluster, outcome: &Outcome) -> BTreeMap<Key, usize> {
    let mut groups = BTreeMap::new();
    for decision in &outcome.decisions {
        if let Decision::Bind(_) | Decision::Pipeline { moved: false, .. } = decision
            && let Some(group) = cluster.pod(decision.pod()).and_then(|pod| cluster.pods[pod].group)
        {
            *groups.entry(cluster.group_key(group)).or_default() += 1;
        }
    }
    groups
}

fn queues(without: &Outcome, with: &Outcome) -> Vec<QueueChange> {
    let all = crate::queues::tree(with).into_iter().map(|(queue, _)| {
        let before = without.queues.iter().find(|before| before.name == queue.name);
        let resources = ByResource::from_fn(|resource| {
            let amount = |value| Amount { resource, value };
            AmountChange {
                quota: queue.quota[resource].map(amount),
                limit: queue.limit[resource].map(amount),
                fair_share: amount(queue.fair_share[resource]),
                now: amount(before.map_or(0, |before| before.allocated[resource])),
                without: amount(before.map_or(0, |before| before.allocated_after[resource])),
                with: amount(queue.allocated_after[resource]),
            }
        });
        QueueChange { queue: queue.name.clone(), parent: queue.parent.clone(), resources }
    });
    all.collect()
}
