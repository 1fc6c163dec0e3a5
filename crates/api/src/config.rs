//! The configuration of an installation: which components run, from which images, with which settings.
//!
//! Every field is optional; the operator fills in what is absent. Only the object called `kai-config` counts.

pub mod component;
pub mod service;

pub use component::{
    Admission, Binder, NodeScaleAdjuster, NumaPlacementExporter, PodGroupController, PodGrouper, Prometheus,
    QueueController, Scheduler,
};

use crate::{optional::all_optional, schema::custom_resource_schema, value::null_is_empty};
use k8s_openapi::{
    api::core::v1::{Affinity, SecurityContext, Toleration},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service::Vpa;
use std::collections::BTreeMap;

all_optional! {
    /// Settings of the installation. Fields follow KAI's `ConfigSpec`.
    #[derive(CustomResource)]
    #[kube(
        group = "kai.scheduler",
        version = "v1",
        kind = "Config",
        plural = "configs",
        doc = "A config: the settings of one installation of the scheduler.",
        status = "ConfigStatus",
        schema = "disabled",
        derive = "Default",
        derive = "PartialEq",
        // Accepts an object without a spec; kube takes serde attributes in no other form.
        attr = "cfg_attr(all(), serde(default))"
    )]
    pub struct ConfigSpec {
        /// Namespace of the components; `kai-scheduler` when absent.
        pub namespace: String,
        /// Settings that concern several components.
        pub global: Global,
        /// The component that turns workloads into pod groups.
        pub pod_grouper: PodGrouper,
        /// The component that binds pods to the nodes chosen for them.
        pub binder: Binder,
        /// The component that checks and completes pods when they are created.
        pub admission: Admission,
        /// The component that chooses nodes.
        pub scheduler: Scheduler,
        /// The component that reports on queues.
        pub queue_controller: QueueController,
        /// The component that reports on pod groups.
        pub pod_group_controller: PodGroupController,
        /// The component that makes an autoscaler add nodes for pods that share GPUs.
        pub node_scale_adjuster: NodeScaleAdjuster,
        /// The component that reports which NUMA zones pods use.
        pub numa_placement_exporter: NumaPlacementExporter,
        /// Where past usage of the queues is kept.
        pub prometheus: Prometheus,
    }

    /// Settings that concern several components.
    pub struct Global {
        /// Set where the platform, such as `OpenShift`, chooses security contexts itself.
        pub openshift: bool,
        /// Security context of the components' containers.
        pub security_context: SecurityContext,
        /// Names of secrets to pull images with.
        pub additional_image_pull_secrets: Vec<String>,
        /// One more secret to pull images with. Deprecated: use `additionalImagePullSecrets`.
        pub images_pull_secret: String,
        /// Tolerations of the components.
        pub tolerations: Vec<Toleration>,
        /// Tolerations of the components that run on every node.
        pub daemonsets_tolerations: Vec<Toleration>,
        /// Affinity of the components.
        pub affinity: Affinity,
        /// Labels of the nodes that components may run on.
        pub node_selector: BTreeMap<String, String>,
        /// Whether replicas of a component must, rather than should, run on different nodes.
        pub require_default_pod_anti_affinity_term: bool,
        /// Priority class of the components.
        pub priority_class_name: String,
        /// Replicas of each component without its own setting.
        pub replica_count: i32,
        /// Name by which pods choose the scheduler.
        pub scheduler_name: String,
        /// Label that names the queue of a workload.
        pub queue_label_key: String,
        /// Label that names the node pool of nodes, queues and workloads.
        pub node_pool_label_key: String,
        /// Labels of the namespaces whose pods are handled; all when empty.
        pub namespace_label_selector: BTreeMap<String, String>,
        /// Labels of the pods that are handled; all when empty.
        pub pod_label_selector: BTreeMap<String, String>,
        /// Whether logs are written as JSON.
        pub json_log: bool,
        /// Vertical scaling of the components without their own setting.
        pub vpa: Vpa,
    }
}

/// Status of the installation, written by the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigStatus {
    /// Conditions of the installation.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub conditions: Vec<Condition>,
}

custom_resource_schema!(
    Config,
    "A config: the settings of one installation of the scheduler.",
    { spec: optional ConfigSpec, status: ConfigStatus }
);
