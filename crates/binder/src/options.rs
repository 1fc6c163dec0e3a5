//! What can be set about the binder; the defaults are those of KAI's flags.

use crate::plugin::{self, Plugin};
use kai_api::well_known::name;
use serde_json::Value;
use std::time::Duration;

/// The settings of the binder.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where reservation pods run.
    pub reservation_namespace: String,
    /// The service account of reservation pods.
    pub reservation_service_account: String,
    /// The `app` label of reservation pods.
    pub reservation_app_label: String,
    /// The image of reservation pods.
    pub reservation_image: String,
    /// How long a reservation pod may take to report its GPU.
    pub reservation_timeout: Duration,
    /// What reservation pods ask for besides their GPU, as `ResourceRequirements`.
    pub reservation_resources: Option<Value>,
    /// The security context of reservation pods.
    pub reservation_pod_security_context: Option<Value>,
    /// The security context of the container of reservation pods.
    pub reservation_container_security_context: Option<Value>,
    /// The runtime class of reservation pods; the cluster's default when empty.
    pub runtime_class_name: String,
    /// Whether nodes only pretend to have GPUs: reservation pods then sleep, and somebody else reports for them.
    pub fake_gpu_nodes: bool,
    /// Where pods run that make an autoscaler add nodes; while one waits, no GPU is reserved.
    pub scale_adjust_namespace: String,
    /// How many requests are worked on at once. Those that wait for storage or for a reservation do not count.
    pub concurrent_max: usize,
    /// How long a request that met a failing server waits before it is taken up again; doubled each time.
    pub retry_delay: Duration,
    /// The longest wait between two attempts.
    pub retry_delay_max: Duration,
    /// How often all GPU groups are looked at, whether anything happened to them or not.
    pub resync: Duration,
    /// What is done before a pod is bound, in order.
    pub plugins: Vec<Plugin>,
    /// Whether success is written to pods as KAI does: the condition `PodBound` and an event.
    pub kai_events: bool,
    /// Whether pods with a part of a GPU are bound though no admission webhook has prepared them. Their containers are
    /// then told nothing about their GPU, which is fine only where GPUs are simulated.
    pub unprepared_pods: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reservation_namespace: name::RESOURCE_RESERVATION.to_owned(),
            reservation_service_account: name::RESOURCE_RESERVATION.to_owned(),
            reservation_app_label: name::RESOURCE_RESERVATION.to_owned(),
            reservation_image: "registry/local/kai-scheduler/resource-reservation".to_owned(),
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
            unprepared_pods: false,
        }
    }
}
