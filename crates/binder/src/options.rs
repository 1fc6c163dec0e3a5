//! Settings of the binder; the defaults are those of KAI's flags.

use crate::plugin::{self, Plugin};
use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements, SecurityContext};
use kai_api::well_known::name;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    pub reservation_namespace: String,
    pub reservation_service_account: String,
    /// Value of the `app` label of reservation pods.
    pub reservation_app_label: String,
    pub reservation_image: String,
    pub reservation_image_pull_policy: String,
    /// How long a reservation pod may take to report its GPU.
    pub reservation_timeout: Duration,
    /// Requests and limits of reservation pods besides their GPU.
    pub reservation_resources: Option<ResourceRequirements>,
    pub reservation_pod_security_context: Option<PodSecurityContext>,
    pub reservation_container_security_context: Option<SecurityContext>,
    /// The runtime class of reservation pods; the cluster's default when empty.
    pub runtime_class_name: String,
    /// Whether GPUs are simulated (fake GPU operator): reservation pods sleep, and a simulator reports their GPUs.
    pub fake_gpu_nodes: bool,
    /// Namespace of the scaling pods of the node scale adjuster; no GPU is reserved while one of KAI's is pending, which the
    /// default scheduler may place on the same GPU.
    pub scale_adjust_namespace: String,
    /// Maximum number of concurrent bind attempts. Attempts that wait for volumes or reservations do not count.
    pub concurrent_max: usize,
    /// Delay before a bind attempt that a failing API server interrupted is repeated; doubled each time.
    pub retry_delay: Duration,
    pub retry_delay_max: Duration,
    /// Resync interval of GPU groups.
    pub resync: Duration,
    /// The plugins in the order of their PreBind steps.
    pub plugins: Vec<Plugin>,
    /// Whether success is reported on pods as KAI does: the condition `PodBound` and an event.
    pub kai_events: bool,
    /// Whether pods with a GPU fraction are bound without the annotations of the admission webhook. Their containers then
    /// have no information about their GPU, which only works with simulated GPUs.
    pub allow_unmutated_pods: bool,
}

impl Default for Options {
    #[expect(clippy::expect_used, reason = "the default plugins are constants")]
    fn default() -> Self {
        Self {
            reservation_namespace: name::RESOURCE_RESERVATION.to_owned(),
            reservation_service_account: name::RESOURCE_RESERVATION.to_owned(),
            reservation_app_label: name::RESOURCE_RESERVATION.to_owned(),
            reservation_image: "registry/local/kai-scheduler/resource-reservation".to_owned(),
            reservation_image_pull_policy: "IfNotPresent".to_owned(),
            reservation_timeout: Duration::from_secs(40),
            reservation_resources: None,
            reservation_pod_security_context: None,
            reservation_container_security_context: None,
            runtime_class_name: String::new(),
            fake_gpu_nodes: false,
            scale_adjust_namespace: name::SCALE_ADJUST.to_owned(),
            concurrent_max: 10,
            retry_delay: Duration::from_secs(1),
            retry_delay_max: Duration::from_mins(1),
            resync: Duration::from_mins(1),
            plugins: plugin::resolve(&std::collections::BTreeMap::new())
                .expect("the defaults name plugins that exist"),
            kai_events: false,
            allow_unmutated_pods: false,
        }
    }
}
