//! Serialisable Kubernetes objects with the fields that shapes use. Field order is the order in the file.

use serde::Serialize as Derive;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;

/// A map in insertion order.
#[derive(Clone, Default)]
pub(super) struct Pairs<'a>(pub(super) Vec<(&'a str, Cow<'a, str>)>);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, text) in &self.0 {
            map.serialize_entry(name, text)?;
        }
        map.end()
    }
}

#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object<'a, B> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    pub(super) metadata: Meta<'a>,
    #[serde(flatten)]
    pub(super) body: B,
}

/// Object metadata.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) uid: String,
    pub(super) creation_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<Pairs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) labels: Option<Pairs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<&'a str>,
}

#[derive(Derive)]
pub(super) struct Body<Spec, Status> {
    pub(super) spec: Spec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
}

/// A part without fields.
#[derive(Derive)]
pub(super) struct Empty {}

/// Node status.
#[derive(Derive)]
pub(super) struct NodeStatus<'a> {
    pub(super) capacity: Pairs<'a>,
    pub(super) allocatable: Pairs<'a>,
    pub(super) conditions: [Condition<'a>; 1],
}

/// A condition that holds.
#[derive(Derive)]
pub(super) struct Condition<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
}

impl<'a> Condition<'a> {
    /// The condition of a name, true.
    pub(super) fn holds(kind: &'a str) -> Self {
        Self { kind, status: "True" }
    }
}

/// Topology spec.
#[derive(Derive)]
pub(super) struct TopologySpec<'a> {
    pub(super) levels: [TopologyLevel<'a>; 3],
}

/// One level of a topology.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopologyLevel<'a> {
    pub(super) node_label: &'a str,
}

/// Queue spec.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueSpec<'a> {
    pub(super) resources: QueueResources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<usize>,
}

/// A queue's bounds per resource.
#[derive(Derive)]
pub(super) struct QueueResources {
    pub(super) gpu: QueueBounds,
    pub(super) cpu: QueueBounds,
    pub(super) memory: QueueBounds,
}

/// A queue's bounds for one resource; -1 is unlimited.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueBounds {
    pub(super) quota: i64,
    pub(super) over_quota_weight: usize,
    pub(super) limit: i64,
}

/// Pod group spec.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupSpec<'a> {
    pub(super) queue: &'a str,
    pub(super) min_member: usize,
    pub(super) priority_class_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) topology_constraint: Option<TopologyConstraint<'a>>,
}

#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopologyConstraint<'a> {
    pub(super) topology: &'a str,
    pub(super) required_topology_level: &'a str,
    pub(super) preferred_topology_level: &'a str,
}

/// Pod spec.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec<'a> {
    pub(super) scheduler_name: &'a str,
    pub(super) priority_class_name: &'a str,
    pub(super) containers: [Container<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_selector: Option<Pairs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tolerations: Option<[Toleration; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) affinity: Option<Affinity<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_name: Option<&'a str>,
}

/// A container.
#[derive(Derive)]
pub(super) struct Container<'a> {
    pub(super) name: &'a str,
    pub(super) image: &'a str,
    pub(super) resources: ContainerResources<'a>,
}

#[derive(Derive)]
pub(super) struct ContainerResources<'a> {
    pub(super) requests: Pairs<'a>,
    pub(super) limits: Pairs<'a>,
}

/// A toleration of any value of a key.
#[derive(Derive)]
pub(super) struct Toleration {
    pub(super) key: String,
    pub(super) operator: &'static str,
}

/// Affinity, of the one kind that shapes use.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct Affinity<'a> {
    pub(super) pod_anti_affinity: AntiAffinity<'a>,
}

/// Anti-affinity between pods.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct AntiAffinity<'a> {
    pub(super) required_during_scheduling_ignored_during_execution: [AntiAffinityTerm<'a>; 1],
}

/// One term of anti-affinity.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct AntiAffinityTerm<'a> {
    pub(super) label_selector: LabelSelector<'a>,
    pub(super) topology_key: &'a str,
}

/// Labels that must match.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct LabelSelector<'a> {
    pub(super) match_labels: Pairs<'a>,
}

/// Pod status.
#[derive(Derive)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStatus<'a> {
    pub(super) phase: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_time: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conditions: Option<[Condition<'a>; 2]>,
}

#[derive(Derive)]
pub(super) struct PriorityValue {
    pub(super) value: i32,
}
