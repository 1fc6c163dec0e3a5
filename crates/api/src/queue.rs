//! `Queue` (`scheduling.run.ai/v2`): quota, limit and over-quota weight, in a tree.

use crate::{ResourceAmounts, schema::custom_resource_schema, value::null_is_empty};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Place in the tree, priority and resources of a queue. Fields follow KAI's `QueueSpec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2",
    kind = "Queue",
    plural = "queues",
    doc = "A queue: a share of the cluster that pod groups draw from.",
    status = "QueueStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    // Accepts an object without a spec; kube takes serde attributes in no other form.
    attr = "cfg_attr(all(), serde(default))",
    printcolumn = r#"{"name": "Priority", "type": "string", "jsonPath": ".spec.priority"}"#,
    printcolumn = r#"{"name": "Parent", "type": "string", "jsonPath": ".spec.parentQueue"}"#,
    printcolumn = r#"{"name": "Children", "type": "string", "jsonPath": ".status.childQueues"}"#,
    printcolumn = r#"{"name": "DisplayName", "type": "string", "jsonPath": ".spec.displayName"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSpec {
    /// Name shown in messages and metrics instead of the object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The queue this one is part of; empty for a top-level queue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_queue: String,
    /// Queues with a higher value are served first and reclaimed from last; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// How long work must have run before it may be preempted, as a duration such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<String>,
    /// How long work must have run before it may be reclaimed, as a duration such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<String>,
    /// Quota, limit and over-quota weight by resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<QueueResources>,
}

/// Quota, limit and over-quota weight of a queue, by resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QueueResources {
    /// GPUs, in devices; parts of a device are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<QueueResource>,
    /// CPU, in thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<QueueResource>,
    /// Memory, in millions of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<QueueResource>,
}

/// Quota, limit and over-quota weight of a queue for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueResource {
    /// Deserved (guaranteed) amount; -1 is unlimited, absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
    /// Weight in the division of unused resources beyond the quotas; absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_quota_weight: Option<f64>,
    /// Maximum allocation; -1 is unlimited, absent is 0, which allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// Status of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueStatus {
    /// Conditions of the queue.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub conditions: Vec<QueueCondition>,
    /// Queues that name this one as their parent.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub child_queues: Vec<String>,
    /// Allocated to pods of the queue and of its children.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub allocated: ResourceAmounts,
    /// The non-preemptible part of `allocated`.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub allocated_non_preemptible: ResourceAmounts,
    /// Requested by running and pending pods of the queue and of its children.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub requested: ResourceAmounts,
}

/// One condition of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Time of the last probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// Time of the last change of `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason of the last transition in `CamelCase`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message about the last transition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

custom_resource_schema!(
    Queue,
    "A queue: a share of the cluster that pod groups draw from.",
    { spec: optional QueueSpec, status: QueueStatus }
);
