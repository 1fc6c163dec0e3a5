//! Explains why a pod group, a pod or a workload is pending: verdict, planned decisions, conditions and events.

mod lookup;
mod record;

pub use lookup::{Ungrouped, is_type};
pub use record::{ConditionView, EventView, Record};

use crate::evictions::by_preemptor;
use crate::findings;
use crate::groups::{self, GroupView};
use crate::hints::HintsView;
use crate::reader::{ClusterReader, ClusterView};
use crate::workload::is_type_of;
use kai_engine::cluster::pod::Status;
use kai_engine::input::Key;
use kai_engine::outcome::Decision;
use kai_runtime::api::{self, Api};
use lookup::Found;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum groups of one workload that are explained; a Deployment may have one for each of its pods.
const GROUPS_MAX: usize = 5;

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A pod group, a pod, or a workload that owns pods; only those of a type, where one is named.
    Object {
        kind: Option<String>,
        key: Key,
    },
    /// The pending groups of a queue and of those below it.
    Queue(String),
    Groups(Vec<Key>),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// With names that resemble the wanted one, as `NAMESPACE/NAME`.
    #[error("pod group, pod or workload `{wanted}` not found")]
    NotFound { wanted: Key, similar: Vec<String> },
    #[error("queue `{0}` not found")]
    NoSuchQueue(String),
    #[error("cannot look up `{wanted}`")]
    Request { wanted: Key, source: api::Error },
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum WhyView {
    Groups {
        groups: Vec<GroupExplanation>,
        /// Further groups of the workload.
        #[serde(skip)]
        omitted: usize,
    },
    /// A pod that no cycle considers.
    Pod { pod: String, why: String, hint: Option<String>, groups: [(); 0] },
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum GroupExplanation {
    Group(Box<ExplainedGroup>),
    /// A group of another node pool.
    OtherNodePool {
        group: String,
        why: String,
        hint: String,
        record: Record,
    },
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ExplainedGroup {
    #[serde(flatten)]
    pub group: GroupView,
    pub plan: Plan,
    /// What would run it, proven by plans; `None` where nothing is pending, and where objects have to be corrected first.
    pub hints: Option<HintsView>,
    pub record: Record,
    #[serde(skip)]
    pub pods: Vec<PodView>,
}

/// What a cycle would do for a group.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Plan {
    #[serde(rename = "places")]
    pub decisions: Vec<PodDecision>,
    /// Evictions for the group, as sentences.
    #[serde(rename = "takes")]
    pub evictions: Vec<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PodDecision {
    pub pod: String,
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodView {
    pub name: String,
    pub status: &'static str,
    pub node: Option<String>,
    /// What a cycle would do with it.
    pub decision: Option<String>,
}

/// Explains what is pending.
pub async fn explain(reader: &mut ClusterReader, api: &Api, wanted: &Wanted) -> Result<WhyView, Error> {
    let view = reader.view();
    let found = match wanted {
        Wanted::Object { kind, key } => find(view, api, kind.as_deref(), key).await?,
        Wanted::Queue(queue) => {
            let pending = lookup::pending_of_queue(view, queue);
            Found::Groups(pending.ok_or_else(|| Error::NoSuchQueue(queue.clone()))?)
        }
        Wanted::Groups(keys) => Found::Groups(keys.clone()),
    };
    match found {
        Found::Groups(keys) => {
            let mut groups = Vec::new();
            for key in keys.iter().take(GROUPS_MAX) {
                let record = Record::read(reader.view(), api, key).await;
                let mut explained = explain_group(reader.view(), key, record);
                if let GroupExplanation::Group(group) = &mut explained
                    && group.group.verdict.is_some()
                    && !group.group.is_placeable
                    && !group.group.is_invalid()
                {
                    group.hints = Some(reader.hints(key));
                }
                groups.push(explained);
            }
            Ok(WhyView::Groups { groups, omitted: keys.len().saturating_sub(GROUPS_MAX) })
        }
        Found::Ungrouped(pod, why) => {
            let why = lookup::with_cause(view, api, &pod, why).await;
            let sentence = why.sentence(&view.store.settings().scheduler_name);
            Ok(WhyView::Pod { pod: pod.to_string(), why: sentence.text, hint: sentence.hint, groups: [] })
        }
    }
}

async fn find(view: &ClusterView, api: &Api, kind: Option<&str>, wanted: &Key) -> Result<Found, Error> {
    if let Some(found) = lookup::find(view, kind, wanted) {
        return Ok(found);
    }
    if kind.is_none_or(|kind| is_type_of(kind, "Pod")) {
        match lookup::failed_pod(api, wanted).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(source) => return Err(Error::Request { wanted: wanted.clone(), source }),
        }
    }
    Err(Error::NotFound { wanted: wanted.clone(), similar: lookup::similar(view, wanted) })
}

fn explain_group(view: &ClusterView, key: &Key, record: Record) -> GroupExplanation {
    let Some(group) = groups::one(view, key) else { return other_node_pool(view, key, record) };
    let decisions = decisions(view, key);
    let pods = pods(view, key, &decisions);
    let decision = |(pod, what): (Key, String)| PodDecision { pod: pod.to_string(), what };
    let plan =
        Plan { decisions: decisions.into_iter().map(decision).collect(), evictions: evictions(view, key) };
    GroupExplanation::Group(Box::new(ExplainedGroup { group, plan, hints: None, record, pods }))
}

fn other_node_pool(view: &ClusterView, key: &Key, record: Record) -> GroupExplanation {
    let object = view.store.objects().pod_groups.get(key);
    let label = &view.store.settings().node_pool_key;
    let pool = object.and_then(|group| group.metadata.labels.as_ref()?.get(label).cloned());
    let (why, hint) = match pool {
        Some(pool) => (
            format!("it belongs to the node pool `{pool}`, which another scheduler serves"),
            format!("use --node-pool {pool}"),
        ),
        None => (
            "it belongs to no node pool, and the scheduler of a node pool was selected".to_owned(),
            "omit --node-pool".to_owned(),
        ),
    };
    GroupExplanation::OtherNodePool { group: key.to_string(), why, hint, record }
}

/// The decisions on the pods of a group, as text.
fn decisions(view: &ClusterView, group: &Key) -> BTreeMap<Key, String> {
    let is_member = |pod: &Key| {
        let pod = view.cluster.pod(pod).and_then(|pod| view.cluster.pods[pod].group);
        pod.is_some_and(|of| view.cluster.group_key(of) == *group)
    };
    let of_group = view.outcome.decisions.iter().filter(|decision| is_member(decision.pod()));
    let decision = |decision: &Decision| match decision {
        Decision::Bind(bind) => (bind.pod.clone(), format!("would be bound to {}", bind.node)),
        Decision::Pipeline { pod, node, moved: true, .. } => {
            (pod.clone(), format!("would be moved to {node}"))
        }
        Decision::Pipeline { pod, node, moved: false, .. } => {
            (pod.clone(), format!("would be nominated to {node}, once resources are released"))
        }
        Decision::Evict { pod, action, .. } => (pod.clone(), format!("would be evicted by {action}")),
    };
    of_group.map(decision).collect()
}

/// The evictions that a cycle would make for a group, as sentences.
fn evictions(view: &ClusterView, group: &Key) -> Vec<String> {
    let all = by_preemptor(&view.outcome);
    let for_group = all.iter().filter(|evictions| evictions.preemptor == Some(group));
    let sentences = for_group.flat_map(|evictions| &evictions.victims).flat_map(|victims| {
        let rule = kai_engine::explain::rule(victims.why);
        victims.pods.iter().map(move |pod| format!("pod `{pod}`: {rule}"))
    });
    sentences.collect()
}

fn pods(view: &ClusterView, group: &Key, decisions: &BTreeMap<Key, String>) -> Vec<PodView> {
    let cluster = &view.cluster;
    let Some(group) = cluster.group(group) else { return Vec::new() };
    let mut pods: Vec<PodView> = cluster.groups[group]
        .pods
        .iter()
        .map(|pod| {
            let key = cluster.pod_key(*pod);
            let node = cluster.pods[*pod].state.node().map(|node| cluster.text(cluster.nodes[node].name));
            let observed = cluster.observed_status(*pod);
            let is_invalid = observed == Status::Gated && findings::is_invalid(&view.store, &key);
            let status = if is_invalid { "Pending (invalid)" } else { status(observed) };
            PodView {
                status,
                node: node.map(str::to_owned),
                decision: decisions.get(&key).cloned(),
                name: key.name,
            }
        })
        .collect();
    pods.sort_unstable();
    pods
}

/// The state of a pod as kubectl shows it, with what the scheduler knows besides.
fn status(status: Status) -> &'static str {
    match status {
        Status::Pending => "Pending",
        Status::InBackoff => "Pending (backoff)",
        Status::Gated => "SchedulingGated",
        Status::Allocated | Status::Binding => "Pending (binding)",
        Status::Pipelined => "Pending (nominated)",
        Status::Bound => "ContainerCreating",
        Status::Running => "Running",
        Status::Releasing => "Terminating",
        Status::Stuck => "Terminating (stuck)",
        Status::Succeeded => "Completed",
        Status::Failed => "Error",
        Status::Unknown => "Unknown",
    }
}
