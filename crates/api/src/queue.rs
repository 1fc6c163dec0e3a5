//! Queues: who may use how much of the cluster, as a tree.

use crate::{ResourceAmounts, schema::custom_resource_schema, value::null_is_empty};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an administrator wants of a queue.
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
    // Lets an object without a spec be read; kube takes serde attributes in no other form.
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
    /// Entitlement to each resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<QueueResources>,
}

/// Entitlement of a queue, by resource.
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

/// Entitlement of a queue to one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueResource {
    /// Guaranteed amount; -1 is unlimited, absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
    /// Weight in dividing what others leave unused; absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_quota_weight: Option<f64>,
    /// Most the queue may ever use; -1 is unlimited, 0 allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// What the cluster reports of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueStatus {
    /// Conditions of the queue.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub conditions: Vec<QueueCondition>,
    /// Queues that name this one as their parent.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub child_queues: Vec<String>,
    /// Held by running work of the queue and of its children.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub allocated: ResourceAmounts,
    /// The part of `allocated` that cannot be preempted.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub allocated_non_preemptible: ResourceAmounts,
    /// Wanted by running and pending work of the queue and of its children.
    #[serde(skip_serializing_if = "ResourceAmounts::is_empty", deserialize_with = "null_is_empty")]
    pub requested: ResourceAmounts,
}

/// One condition of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the condition was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word for the last change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The last change in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

custom_resource_schema!(
    Queue,
    "A queue: a share of the cluster that pod groups draw from.",
    { spec: optional QueueSpec, status: QueueStatus }
);
