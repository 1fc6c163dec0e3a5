//! Settings that components have in common: image, resources, availability, ports.

use crate::{ResourceAmounts, json::known_or_none, optional::all_optional};
use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

all_optional! {
    /// How a component is deployed.
    pub struct Service {
        /// Whether the component runs.
        pub enabled: bool,
        /// Its image.
        pub image: Image,
        /// What its container requests and may use.
        pub resources: ResourceRequirements,
        /// Client-side rate limit for the API server.
        pub k8s_client_config: ClientConfig,
        /// Where its pods run.
        pub affinity: Affinity,
        /// How many of its pods may be down for maintenance.
        pub pod_disruption_budget: PodDisruptionBudget,
    }

    /// A container image.
    pub struct Image {
        /// Image name without repository and tag.
        pub name: String,
        /// Repository, with the registry where it is not the default one.
        pub repository: String,
        /// Tag.
        pub tag: String,
        /// When the node pulls it: `Always`, `IfNotPresent` or `Never`.
        pub pull_policy: String,
    }

    /// Limits on requests to the API server.
    pub struct ClientConfig {
        /// Requests a second.
        pub qps: i64,
        /// Requests that may be made at once after a pause.
        pub burst: i64,
    }

    /// How many pods of a component may be down for maintenance.
    pub struct PodDisruptionBudget {
        /// Whether there is a budget.
        pub enabled: bool,
        /// Pods that may be down.
        pub max_unavailable: i32,
    }

    /// One port of a service.
    pub struct PortMapping {
        /// Name of the port.
        pub name: String,
        /// Port of the service.
        pub port: i64,
        /// Port of the pods.
        pub target_port: i64,
    }

    /// Whether and how a component checks objects at admission.
    pub struct Webhooks {
        /// Whether objects are checked.
        pub enable_validation: bool,
        /// Start of the webhook configuration's name; the API version follows.
        pub webhook_configuration_name_prefix: String,
    }

    /// Vertical scaling of a component, as in `autoscaling.k8s.io/v1`.
    pub struct Vpa {
        /// Whether the component is scaled.
        pub enabled: bool,
        /// When recommendations are applied.
        pub update_policy: VpaUpdatePolicy,
        /// Bounds of recommendations.
        pub resource_policy: VpaResourcePolicy,
    }

    /// When recommendations are applied.
    pub struct VpaUpdatePolicy {
        /// How recommendations reach running pods.
        #[serde(deserialize_with = "known_or_none")]
        pub update_mode: VpaUpdateMode,
        /// Replicas that must be alive for pods to be evicted.
        pub min_replicas: i32,
        /// What must hold for pods to be evicted.
        pub eviction_requirements: Vec<VpaEvictionRequirement>,
    }

    /// Bounds of recommendations.
    pub struct VpaResourcePolicy {
        /// Bounds for each container.
        pub container_policies: Vec<VpaContainerPolicy>,
    }

    /// Bounds of the recommendations for one container.
    pub struct VpaContainerPolicy {
        /// The container, or `*` for those without an entry.
        pub container_name: String,
        /// Whether the container is scaled.
        #[serde(deserialize_with = "known_or_none")]
        pub mode: VpaContainerMode,
        /// Least amounts.
        pub min_allowed: ResourceAmounts,
        /// Most amounts.
        pub max_allowed: ResourceAmounts,
        /// Resources that are scaled.
        pub controlled_resources: Vec<String>,
        /// Which values are scaled.
        #[serde(deserialize_with = "known_or_none")]
        pub controlled_values: VpaControlledValues,
    }
}

/// A condition on evicting pods for a recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VpaEvictionRequirement {
    /// The resources it is about.
    pub resources: Vec<String>,
    /// How the recommendation must relate to the requests.
    pub change_requirement: VpaChangeRequirement,
}

/// How recommendations reach running pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VpaUpdateMode {
    /// Not at all.
    Off,
    /// When a pod is created.
    Initial,
    /// By replacing pods.
    Recreate,
    /// By resizing pods, or by replacing them where that fails.
    InPlaceOrRecreate,
    /// As the scaler sees fit.
    Auto,
}

/// Whether a container is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VpaContainerMode {
    /// It is.
    Auto,
    /// It is not.
    Off,
}

/// Which values of a container are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VpaControlledValues {
    /// Requests, and limits in proportion.
    RequestsAndLimits,
    /// Requests.
    RequestsOnly,
}

/// How a recommendation must relate to the requests for pods to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VpaChangeRequirement {
    /// It is higher.
    TargetHigherThanRequests,
    /// It is lower.
    TargetLowerThanRequests,
}
