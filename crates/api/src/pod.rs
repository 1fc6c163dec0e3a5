//! Pods, cut down to what scheduling reads.

use crate::meta::Meta;
use crate::selector::{LabelSelector, NodeSelector, NodeSelectorTerm, Toleration};
use crate::value::{Labels, List, Resources, Text, null_is_empty};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PodSpec,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: PodStatus,
}

/// What a pod wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is assigned to.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_name: Text,
    /// Which scheduler places it.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub scheduler_name: Text,
    /// Priority class.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub priority_class_name: Text,
    /// Priority value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Labels its node must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub node_selector: Labels,
    /// Affinity rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Box<Affinity>>,
    /// Taints it tolerates.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tolerations: List<Toleration>,
    /// Containers.
    pub containers: List<Container>,
    /// Init containers; those with restart policy `Always` are sidecars.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub init_containers: List<Container>,
    /// Containers added for debugging; they may need config maps, and count for nothing else.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub ephemeral_containers: List<Container>,
    /// What all containers may use together, where the pod itself says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<ContainerResources>>,
    /// What running it costs besides its containers.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub overhead: Resources,
    /// Volumes that matter: config maps and volume claims.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub volumes: List<Volume>,
    /// Device claims.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resource_claims: List<PodResourceClaim>,
    /// What must be lifted before it may be placed.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub scheduling_gates: List<SchedulingGate>,
    /// How it spreads.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub topology_spread_constraints: List<SpreadConstraint>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: Text,
    /// Requests and limits.
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: ContainerResources,
    /// Ports; only host ports matter.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub ports: List<ContainerPort>,
    /// Variables.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub env: List<EnvVar>,
    /// Sources of variables.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub env_from: List<EnvFrom>,
    /// Mounted volumes.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub volume_mounts: List<VolumeMount>,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub restart_policy: Text,
}

/// What a container, or a pod as a whole, wants and may use at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    /// Wanted.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub requests: Resources,
    /// At most.
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

/// A variable; only references to config maps matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Name.
    pub name: Text,
    /// Where its value comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// Where the value of a variable comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvSource {
    /// A key of a config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapRef>,
}

/// A source of variables.
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
    /// Its name.
    pub name: Text,
    /// The key, where one is meant.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub key: Text,
    /// It may be missing.
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
    /// Name.
    pub name: Text,
    /// From a config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<Box<ConfigMapRef>>,
    /// From several sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<Box<Projected>>,
    /// From a volume claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<Box<ClaimRef>>,
    /// From a volume claim made for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Empty>,
}

/// Several sources in one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projected {
    /// The sources.
    pub sources: List<ProjectedSource>,
}

/// One source of a projected volume; only config maps matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedSource {
    /// A config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapRef>,
}

/// A reference to a volume claim in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    /// Its name.
    pub claim_name: Text,
}

/// Something whose presence is all that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// A device claim as the pod names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// The pod's own name for it.
    pub name: Text,
    /// The claim, when it exists by itself.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resource_claim_name: Text,
    /// The template it is made from.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resource_claim_template_name: Text,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    /// Its name.
    pub name: Text,
}

/// How a pod spreads over domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// Largest difference.
    #[serde(deserialize_with = "null_is_empty")]
    pub max_skew: i32,
    /// Node label that names the domain.
    pub topology_key: Text,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: Text,
    /// Which pods count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Least number of domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// `Honor` (the default) or `Ignore`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_affinity_policy: Text,
    /// `Honor` or `Ignore` (the default).
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub node_taints_policy: Text,
    /// Labels of the pod itself that counted pods must share.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_label_keys: List<Text>,
}

/// Affinity rules of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Towards nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Towards pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// Away from pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Affinity towards nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// What must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// What is preferred.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: List<PreferredNodeTerm>,
}

/// A weighted node term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredNodeTerm {
    /// 1 to 100.
    #[serde(deserialize_with = "null_is_empty")]
    pub weight: i32,
    /// The term.
    #[serde(deserialize_with = "null_is_empty")]
    pub preference: NodeSelectorTerm,
}

/// Affinity towards or away from pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// What must hold.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub required_during_scheduling_ignored_during_execution: List<PodAffinityTerm>,
    /// What is preferred.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: List<WeightedPodAffinityTerm>,
}

/// Which pods, over which node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Which pods; absent selects none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Namespaces by name.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub namespaces: List<Text>,
    /// Namespaces by label; an empty selector is all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Node label whose equal value means "near".
    pub topology_key: Text,
    /// Labels of the pod itself that the other pods must share.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_label_keys: List<Text>,
    /// Labels of the pod itself that the other pods must not share.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub mismatch_label_keys: List<Text>,
}

/// A weighted pod affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// 1 to 100.
    #[serde(deserialize_with = "null_is_empty")]
    pub weight: i32,
    /// The term.
    #[serde(deserialize_with = "null_is_empty")]
    pub pod_affinity_term: PodAffinityTerm,
}

/// What is reported of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub phase: Text,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub qos_class: Text,
    /// A node it should preferably get.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub nominated_node_name: Text,
    /// Claims made from templates.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resource_claim_statuses: List<PodClaimStatus>,
    /// What its containers have been given, where that is not what they request.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub container_statuses: List<ContainerStatus>,
    /// What its sidecars have been given, where that is not what they request.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub init_container_statuses: List<ContainerStatus>,
    /// What has become of a change of its requests.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: List<PodCondition>,
    /// Where servers before 1.33 say what has become of it.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resize: Text,
}

/// What is reported of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: Text,
    /// What it runs with; absent before it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    /// What its node has set aside for it.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocated_resources: Resources,
}

/// Something that is so of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// What.
    #[serde(rename = "type")]
    pub kind: Text,
    /// Why.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub reason: Text,
}

impl PodStatus {
    /// Whether the node can never give the pod what it has come to request.
    pub fn is_resize_infeasible(&self) -> bool {
        let pending = self.conditions.iter().find(|condition| condition.kind == "PodResizePending");
        pending.map_or(self.resize == "Infeasible", |pending| pending.reason == "Infeasible")
    }
}

/// The claim made for one entry of `spec.resourceClaims`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaimStatus {
    /// The pod's own name for it.
    pub name: Text,
    /// The claim.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub resource_claim_name: Text,
}

impl Pod {
    /// Drops what is reported of containers that have what they request, as nearly all do.
    fn compact_resize(&mut self) {
        self.status.conditions = kept(std::mem::take(&mut self.status.conditions), |condition| {
            condition.kind == "PodResizePending"
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
            (status.conditions, status.resize) = (List::default(), Text::default());
        }
    }

    /// Drops what no rule reads: whole specs of finished pods, volumes and variables that name no config map or
    /// claim, ports that are not the node's, and limits once `qosClass` is known.
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
                    annotations: annotations.kept(|k| k == crate::well_known::annotation::POD_GROUP),
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
    /// Whether it is an init container that stays for as long as the pod runs.
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
    /// Whether what the container has been given counts, and is not what it requests. Without resources of its own
    /// nothing counts, as in Kubernetes.
    fn differs(&self, container: &Container, infeasible: bool) -> bool {
        let Some(resources) = &self.resources else { return false };
        let wanted = &container.resources.requests;
        let beyond = |given: &Resources| given.iter().any(|(name, amount)| wanted.get(name) != Some(amount));
        // With the same amounts under the same names the larger of the two is either.
        beyond(&resources.requests) || beyond(&self.allocated_resources) || (infeasible && !wanted.is_empty())
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
