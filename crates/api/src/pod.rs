//! Pods (`core/v1`), reduced to the fields that scheduling reads.
//!
//! Every field is the upstream field of the same name; docs mention only how scheduling uses it.

use crate::implicit_group::{self, PodFacts as _};
use crate::meta::Meta;
use crate::selector::{LabelSelector, NodeSelector, NodeSelectorTerm, Toleration};
use crate::value::{Labels, List, Resources, Text, null_is_empty};
use crate::well_known::{annotation, label_value};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Object metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// The specification.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PodSpec,
    /// The reported status.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: PodStatus,
}

/// Specification of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that the pod is bound to.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_name: Text,
    /// The scheduler that is responsible for the pod.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub scheduler_name: Text,
    /// Name of the priority class.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub priority_class_name: Text,
    /// Value of the priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub node_selector: Labels,
    /// Node affinity, pod affinity and pod anti-affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Box<Affinity>>,
    /// Tolerated taints.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tolerations: List<Toleration>,
    /// The regular containers.
    pub containers: List<Container>,
    /// Init containers; those with restart policy `Always` are sidecars.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub init_containers: List<Container>,
    /// Ephemeral containers. They request no resources; only their config map references are read.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub ephemeral_containers: List<Container>,
    /// Pod-level resources (KEP-2837).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<ContainerResources>>,
    /// Overhead of the runtime class (KEP-688).
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub overhead: Resources,
    /// Volumes from config maps and volume claims.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub volumes: List<Volume>,
    /// Resource claims of the pod.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resource_claims: List<PodResourceClaim>,
    /// Gates that must be removed before the pod is scheduled (KEP-3521).
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub scheduling_gates: List<SchedulingGate>,
    /// Topology spread constraints.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub topology_spread_constraints: List<SpreadConstraint>,
    /// The group of Kubernetes that the pod names (KEP-4671); only its presence is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_group: Option<Empty>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name, unique in its list.
    pub name: Text,
    /// Requests and limits.
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: ContainerResources,
    /// Ports; only host ports are read.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub ports: List<ContainerPort>,
    /// Environment variables.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub env: List<EnvVar>,
    /// Sources of environment variables.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub env_from: List<EnvFrom>,
    /// Mounted volumes.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub volume_mounts: List<VolumeMount>,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub restart_policy: Text,
}

/// Requests and limits of a container or of a whole pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    /// Requested quantities by resource name.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub requests: Resources,
    /// Limits by resource name.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub limits: Resources,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Port in the container.
    #[serde(deserialize_with = "null_is_empty")]
    pub container_port: i32,
    /// Port on the node; 0 is none.
    #[serde(deserialize_with = "null_is_empty")]
    pub host_port: i32,
    /// Address on the node.
    #[serde(rename = "hostIP", skip_serializing_if = "Text::is_empty")]
    pub host_ip: Text,
    /// Protocol; TCP when empty.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub protocol: Text,
}

/// An environment variable; only references to config maps are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Name, unique in its list.
    pub name: Text,
    /// The source of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// The source of the value of an environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvSource {
    /// A key of a config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapRef>,
}

/// A source of environment variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFrom {
    /// A config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
}

/// A reference to a config map in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapRef {
    /// Name of the config map.
    pub name: Text,
    /// The key; empty for the whole config map.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub key: Text,
    /// Whether the config map or key may be missing.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub optional: bool,
}

/// A mounted volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// Name of the volume.
    pub name: Text,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Name, unique in its list.
    pub name: Text,
    /// A config map volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<Box<ConfigMapRef>>,
    /// A projected volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<Box<Projected>>,
    /// A volume from a persistent volume claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<Box<ClaimRef>>,
    /// A generic ephemeral volume (KEP-1698).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Empty>,
}

/// A volume with several sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projected {
    /// Sources of the volume.
    pub sources: List<ProjectedSource>,
}

/// One source of a projected volume; only config maps are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedSource {
    /// A config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapRef>,
}

/// A reference to a persistent volume claim in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    /// Name of the claim.
    pub claim_name: Text,
}

/// A field of which only the presence is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// One entry of `spec.resourceClaims` (dynamic resource allocation).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Name of the entry.
    pub name: Text,
    /// The ResourceClaim, unless a template is given.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resource_claim_name: Text,
    /// The ResourceClaimTemplate from which a claim is created for the pod.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resource_claim_template_name: Text,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    /// Name of the gate.
    pub name: Text,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// Largest difference in the number of matching pods between two domains.
    #[serde(deserialize_with = "null_is_empty")]
    pub max_skew: i32,
    /// Node label that names the domain.
    pub topology_key: Text,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: Text,
    /// Selects the pods that are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Minimum number of eligible domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// `Honor` (the default) or `Ignore`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_affinity_policy: Text,
    /// `Honor` or `Ignore` (the default).
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_taints_policy: Text,
    /// Keys of the pod's own labels whose values are added to the selector.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_label_keys: List<Text>,
}

/// Affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Node affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Pod affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// Pod anti-affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Required terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// Preferred terms with their weights.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: List<PreferredNodeTerm>,
}

/// A node selector term with a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredNodeTerm {
    /// Weight from 1 to 100.
    #[serde(deserialize_with = "null_is_empty")]
    pub weight: i32,
    /// The weighted term.
    #[serde(deserialize_with = "null_is_empty")]
    pub preference: NodeSelectorTerm,
}

/// Pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// Required terms.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub required_during_scheduling_ignored_during_execution: List<PodAffinityTerm>,
    /// Preferred terms with their weights.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: List<WeightedPodAffinityTerm>,
}

/// A pod affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Selects pods; absent selects none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Namespaces by name.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub namespaces: List<Text>,
    /// Namespaces by label; an empty selector selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Node label whose values are the topology domains.
    pub topology_key: Text,
    /// Keys of the pod's own labels that the other pods must share.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_label_keys: List<Text>,
    /// Keys of the pod's own labels that the other pods must not share.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub mismatch_label_keys: List<Text>,
}

/// A pod affinity term with a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// Weight from 1 to 100.
    #[serde(deserialize_with = "null_is_empty")]
    pub weight: i32,
    /// The weighted term.
    #[serde(deserialize_with = "null_is_empty")]
    pub pod_affinity_term: PodAffinityTerm,
}

/// Status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub phase: Text,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub qos_class: Text,
    /// The preferred node: resources are expected to become free there.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub nominated_node_name: Text,
    /// Claims created from templates.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resource_claim_statuses: List<PodClaimStatus>,
    /// Statuses of the containers whose resources differ from their requests (KEP-1287).
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub container_statuses: List<ContainerStatus>,
    /// Statuses of the sidecars whose resources differ from their requests.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub init_container_statuses: List<ContainerStatus>,
    /// Conditions of an in-place resize (KEP-1287), and `PodBound` of a pod without a node.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: List<PodCondition>,
    /// State of an in-place resize on servers before 1.33.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resize: Text,
}

/// Status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name of the container.
    pub name: Text,
    /// Resources in effect; absent before the container runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    /// Resources that the kubelet has allocated to the container.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocated_resources: Resources,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub kind: Text,
    /// The reason in `CamelCase`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub reason: Text,
}

impl PodStatus {
    /// The condition that reports the result of a binding.
    pub const BOUND_CONDITION: &str = "PodBound";

    /// Whether the kubelet has rejected the pending resize for good.
    pub fn is_resize_infeasible(&self) -> bool {
        let pending = self.conditions.iter().find(|condition| condition.kind == "PodResizePending");
        pending.map_or(self.resize == "Infeasible", |pending| pending.reason == "Infeasible")
    }
}

/// The claim created for one entry of `spec.resourceClaims`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaimStatus {
    /// Name of the entry.
    pub name: Text,
    /// Name of the ResourceClaim.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resource_claim_name: Text,
}

impl Pod {
    /// The name of the pod's group: of its annotation, else of the group that is implied.
    pub fn group_name(&self) -> Option<Cow<'_, str>> {
        self.named_group().map(Cow::Borrowed).or_else(|| self.implied_group().map(Cow::Owned))
    }

    /// The group that the pod's annotation names; an empty name counts as none.
    pub fn named_group(&self) -> Option<&str> {
        self.metadata.annotation(annotation::POD_GROUP).filter(|name| !name.is_empty())
    }

    /// The group that the pod grouper makes for a pod without owners or of a Deployment, or for its Job; it may not exist. Such a
    /// pod is scheduled as soon as the group exists, and gets the annotation with its binding.
    fn implied_group(&self) -> Option<String> {
        let metadata = &self.metadata;
        if metadata.annotation(annotation::SKIP_GROUPING) == Some(label_value::TRUE) {
            return None;
        }
        let (name, uid) = match &*metadata.owner_references {
            [] => (&metadata.name, &metadata.uid),
            [owner] if owner.kind == "Job" && owner.api_version == "batch/v1" => (&owner.name, &owner.uid),
            [_] if implicit_group::is_of_deployment(self, self.owners()) => (&metadata.name, &metadata.uid),
            _ => return None,
        };
        (!name.is_empty() && !uid.is_empty()).then(|| crate::pod_group::name_of(name, uid))
    }

    /// Drops the statuses of containers whose resources equal their requests, as nearly all do.
    fn compact_resize(&mut self) {
        // A binding that failed is reported in a condition, which is corrected when a later one succeeds.
        let is_pending = self.spec.node_name.is_empty();
        let reports_binding =
            |condition: &PodCondition| is_pending && condition.kind == PodStatus::BOUND_CONDITION;
        self.status.conditions = kept(std::mem::take(&mut self.status.conditions), |condition| {
            condition.kind == "PodResizePending" || reports_binding(condition)
        });
        let infeasible = self.status.is_resize_infeasible();
        let matters = |of: &[Container], status: &ContainerStatus| {
            let container = of.iter().find(|container| container.name == status.name);
            container.is_some_and(|container| status.differs(container, infeasible))
        };
        let (spec, status) = (&self.spec, &mut self.status);
        status.container_statuses =
            kept(std::mem::take(&mut status.container_statuses), |known| matters(&spec.containers, known));
        status.init_container_statuses = kept(std::mem::take(&mut status.init_container_statuses), |known| {
            matters(&spec.init_containers, known)
        });
        for known in status.container_statuses.iter_mut().chain(status.init_container_statuses.iter_mut()) {
            if let Some(resources) = &mut known.resources {
                resources.limits = Resources::default();
            }
        }
        if status.container_statuses.is_empty() && status.init_container_statuses.is_empty() {
            status.conditions = kept(std::mem::take(&mut status.conditions), reports_binding);
            status.resize = Text::default();
        }
    }

    /// Drops what scheduling does not read: the spec of succeeded pods, volumes and variables without a config map or
    /// claim, container ports without a host port, and limits once `qosClass` is known.
    pub fn compact(&mut self) {
        if self.status.phase == "Succeeded" {
            let labels = std::mem::take(&mut self.metadata.labels);
            let annotations = std::mem::take(&mut self.metadata.annotations);
            *self = Self {
                metadata: Meta {
                    name: std::mem::take(&mut self.metadata.name),
                    namespace: std::mem::take(&mut self.metadata.namespace),
                    uid: std::mem::take(&mut self.metadata.uid),
                    labels: labels.kept(|k| k == crate::well_known::label::SUBGROUP),
                    annotations: annotations.kept(|k| k == annotation::POD_GROUP),
                    ..Meta::default()
                },
                status: PodStatus { phase: std::mem::take(&mut self.status.phase), ..PodStatus::default() },
                spec: PodSpec::default(),
            };
            return;
        }
        self.compact_resize();
        let keep_limits = self.status.qos_class.is_empty();
        self.spec.volumes = kept(std::mem::take(&mut self.spec.volumes), Volume::matters);
        let spec = &mut self.spec;
        let volumes: BTreeSet<&str> = spec.volumes.iter().map(|v| &*v.name).collect();
        let lasting = spec.containers.iter_mut().chain(spec.init_containers.iter_mut());
        for container in lasting.chain(spec.ephemeral_containers.iter_mut()) {
            container.compact(&volumes, keep_limits);
        }
        if let Some(resources) = spec.resources.as_mut().filter(|_| !keep_limits) {
            resources.limits = Resources::default();
        }
    }
}

impl Container {
    /// Whether an init container is a sidecar (KEP-753).
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }

    fn compact(&mut self, volumes: &BTreeSet<&str>, keep_limits: bool) {
        self.ports = kept(std::mem::take(&mut self.ports), |p| p.host_port != 0);
        self.env = kept(std::mem::take(&mut self.env), |e| {
            e.value_from.as_ref().is_some_and(|s| s.config_map_key_ref.is_some())
        });
        self.env_from = kept(std::mem::take(&mut self.env_from), |e| e.config_map_ref.is_some());
        self.volume_mounts = kept(std::mem::take(&mut self.volume_mounts), |m| volumes.contains(&*m.name));
        if !keep_limits {
            self.resources.limits = Resources::default();
        }
    }
}

impl ContainerStatus {
    /// Whether the resources of the status count and differ from the request. Without `resources` they do not count, as
    /// in the scheduler library of Kubernetes.
    fn differs(&self, container: &Container, infeasible: bool) -> bool {
        let Some(resources) = &self.resources else { return false };
        let requested = &container.resources.requests;
        let beyond =
            |given: &Resources| given.iter().any(|(name, amount)| requested.get(name) != Some(amount));
        // With equal amounts the maximum of status and request is the request.
        beyond(&resources.requests)
            || beyond(&self.allocated_resources)
            || (infeasible && !requested.is_empty())
    }
}

impl Volume {
    fn matters(&self) -> bool {
        self.config_map.is_some()
            || self.persistent_volume_claim.is_some()
            || self.ephemeral.is_some()
            || self.projected.as_ref().is_some_and(|p| p.sources.iter().any(|s| s.config_map.is_some()))
    }
}

fn kept<T>(list: List<T>, keep: impl FnMut(&T) -> bool) -> List<T> {
    let mut items = list.into_vec();
    items.retain(keep);
    items.into()
}
