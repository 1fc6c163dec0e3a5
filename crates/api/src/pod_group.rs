//! `PodGroup` (`scheduling.run.ai/v2alpha2`): pods that are gang-scheduled.

use crate::{
    ResourceAmounts,
    json::known_or_none,
    schema::{DNS_LABEL, custom_resource_schema},
    value::null_is_empty,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Queue, priority, minimum and placement constraints of a pod group. Fields follow KAI's `PodGroupSpec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2alpha2",
    kind = "PodGroup",
    plural = "podgroups",
    shortname = "pg",
    namespaced,
    doc = "A pod group: pods of one workload that are scheduled together.",
    status = "PodGroupStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    // Accepts an object without a spec; kube takes serde attributes in no other form.
    attr = "cfg_attr(all(), serde(default))"
)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// How many pods must run at once; 0 lets any number run. Not read where there are subgroups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// How many of the top-level subgroups must run at once; all of them when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// The queue the group runs in, which must be a leaf of the queue tree.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queue: String,
    /// The priority class of the group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
    /// Whether pods of the group may be evicted; derived from the priority when absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_none")]
    pub preemptibility: Option<Preemptibility>,
    /// Where the pods must or should be together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
    /// Subsets of the pods, each with its own minimum; together they form a tree.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub sub_groups: Vec<SubGroup>,
    /// Whether pods that cannot be placed are marked so in their own status; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_unschedulable: Option<bool>,
    /// Failed attempts after which the group waits for another node pool: -1 is never, 1 is after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_backoff: Option<i32>,
    /// How long the group waits before it may cause evictions, as a duration such as `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_delay: Option<String>,
    /// How long the group may run below its minimum before it is stopped; a negative duration is for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_grace_period: Option<String>,
}

/// Whether running pods may be evicted by preemption, reclaim or consolidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemptibility {
    /// Pods may be evicted.
    Preemptible,
    /// Pods are not evicted once they run.
    NonPreemptible,
}

/// Where pods must or should be together, in terms of a `Topology`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyConstraint {
    /// Name of the topology; without it the constraint has no effect.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub topology: String,
    /// The level (node label or alias) inside one domain of which all pods must run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub required_topology_level: String,
    /// The level (node label or alias) inside one domain of which the pods should run if possible.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred_topology_level: String,
}

/// A subset of the pods of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// Unique in the group; pods name it in a label.
    #[schemars(length(min = 1), regex(pattern = DNS_LABEL))]
    pub name: String,
    /// The subgroup this one is part of; absent for a top-level one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DNS_LABEL))]
    pub parent: Option<String>,
    /// How many pods of a subgroup without children must run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// How many children of the subgroup must run at once; all of them when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// Where the pods of the subgroup must or should be together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
}

/// Status of a pod group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// Conditions of the group.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    /// Why the group does not run: at most one entry a node pool, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub scheduling_conditions: Vec<SchedulingCondition>,
    /// Requested and allocated resources of the group's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources_status: Option<PodGroupResources>,
}

/// One condition of a pod group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupCondition {
    /// The type of the condition.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Counter of transitions.
    #[serde(rename = "transitionID", skip_serializing_if = "String::is_empty")]
    pub transition_id: String,
    /// Time of the last transition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason of the last transition in `CamelCase`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message about the last transition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Why a pod group does not run in one node pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingCondition {
    /// The type of the condition: `UnschedulableOnNodePool`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// The node pool that was tried.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_pool: String,
    /// Reason in `CamelCase`; `reasons` has the details.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// All explanations as one text; programs read `reasons`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// One explanation for each reason.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub reasons: Vec<UnschedulableExplanation>,
    /// Counter of transitions over all node pools, in decimal.
    #[serde(rename = "transitionID", skip_serializing_if = "String::is_empty")]
    pub transition_id: String,
    /// When the condition was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// `True`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
}

impl SchedulingCondition {
    /// The only `type` there is.
    pub const UNSCHEDULABLE_ON_NODE_POOL: &str = "UnschedulableOnNodePool";
    /// The only `reason` of a condition.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
}

/// One reason why a pod group is unschedulable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UnschedulableExplanation {
    /// The reason in `CamelCase`, such as `OverLimit`; further reasons may be added.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason as a message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The quantities that led to the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<UnschedulableDetails>,
}

impl UnschedulableExplanation {
    /// Non-preemptible allocation would exceed the quota of the queue or of an ancestor.
    pub const NON_PREEMPTIBLE_OVER_QUOTA: &str = "NonPreemptibleOverQuota";
    /// The allocation would exceed the limit of the queue or of an ancestor.
    pub const OVER_LIMIT: &str = "OverLimit";
    /// The preemption delay of the group has not elapsed.
    pub const PREEMPTION_DELAY_NOT_ELAPSED: &str = "PreemptionDelayNotElapsed";
    /// The queue is missing, or an ancestor of it is.
    pub const QUEUE_DOES_NOT_EXIST: &str = "QueueDoesNotExist";
}

/// Quantities that led to a reason; the set field depends on the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UnschedulableDetails {
    /// The queue whose quota or limit would be exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_details: Option<QueueDetails>,
}

/// State of a queue, and demand of a group on it, when the group was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueDetails {
    /// Name of the queue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Requested by all pods of the queue.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub queue_requested_resources: ResourceAmounts,
    /// Quota of the queue.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub queue_deserved_resources: ResourceAmounts,
    /// Allocated to pods of the queue.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub queue_allocated_resources: ResourceAmounts,
    /// Allocated to non-preemptible pods of the queue.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub queue_allocated_non_preemptible_resources: ResourceAmounts,
    /// Limit of the queue.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub queue_resource_limits: ResourceAmounts,
    /// Requested by the group to reach its minimum.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub pod_group_requested_resources: ResourceAmounts,
    /// The non-preemptible part of that request.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub pod_group_requested_non_preemptible_resources: ResourceAmounts,
}

/// Requested and allocated resources of a group's pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupResources {
    /// Allocated to running and bound pods.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub allocated: ResourceAmounts,
    /// The non-preemptible part of `allocated`.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub allocated_non_preemptible: ResourceAmounts,
    /// Requested by running and pending pods.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub requested: ResourceAmounts,
}

/// The name of the pod group of an object, as KAI forms it. The uid makes it unique, so that a name which would become too
/// long for an object is cut; KAI does not schedule such a workload.
pub fn name_of(name: &str, uid: &str) -> String {
    let start = kai_object::name_start(name, kai_object::NAME_MAX.saturating_sub("pg--".len() + uid.len()));
    format!("pg-{start}-{uid}")
}

custom_resource_schema!(
    PodGroup,
    "A pod group: pods of one workload that are scheduled together.",
    { spec: optional PodGroupSpec, status: PodGroupStatus }
);
