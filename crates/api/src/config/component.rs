//! Settings of each component.

use super::service::{ClientConfig, Image, PortMapping, Service, Vpa, Webhooks};
use crate::optional::all_optional;
use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements, SecurityContext, Toleration};
use std::collections::BTreeMap;

all_optional! {
    /// Settings of the scheduler.
    pub struct Scheduler {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// Value of the environment variable `GOGC`.
        #[serde(rename = "GOGC")]
        pub gogc: i64,
        /// The service in front of its metrics.
        pub scheduler_service: SchedulerService,
        /// Number of replicas of each shard, of which one works.
        pub replicas: i32,
    }

    /// The service in front of a scheduler's metrics.
    pub struct SchedulerService {
        /// Type of the service.
        #[serde(rename = "type")]
        pub type_: String,
        /// Port of the service, and the one the process listens on.
        pub port: i64,
        /// Port that the service forwards to.
        pub target_port: i64,
    }

    /// Settings of the binder.
    pub struct Binder {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// Reservation pods, which hold shared GPUs.
        pub resource_reservation: ResourceReservation,
        /// Number of replicas, of which one works.
        pub replicas: i32,
        /// Number of pods bound at once.
        pub max_concurrent_reconciles: i64,
        /// How long binding waits for volumes and devices, in seconds.
        pub volume_binding_timeout_seconds: i64,
        /// Port of the health probes.
        pub probe_port: i64,
        /// Port of the metrics.
        pub metrics_port: i64,
        /// Whether devices are handed over by the container device interface; found out when absent.
        #[serde(rename = "cdiEnabled")]
        pub cdi_enabled: bool,
        /// Binder plugins, by name.
        pub plugins: BTreeMap<String, BinderPlugin>,
    }

    /// One binder plugin.
    pub struct BinderPlugin {
        /// Whether the plugin runs.
        pub enabled: bool,
        /// Plugins with a higher value run first.
        pub priority: i64,
        /// Arguments of the plugin; they replace the default arguments as a whole.
        pub arguments: BTreeMap<String, String>,
    }

    /// Reservation pods, which hold shared GPUs.
    pub struct ResourceReservation {
        /// Their image.
        pub image: Image,
        /// How long the binder waits for such a pod to report its GPU, in seconds.
        pub allocation_timeout: i64,
        /// Their namespace.
        pub namespace: String,
        /// Their service account.
        pub service_account_name: String,
        /// Value of their `app` label.
        pub app_label: String,
        /// Their runtime class.
        pub runtime_class_name: String,
        /// What they request and may use.
        pub pod_resources: ResourceRequirements,
        /// Security context of the pods.
        pub reservation_pod_security_context: PodSecurityContext,
        /// Security context of their containers; `global.securityContext` when absent.
        pub reservation_container_security_context: SecurityContext,
    }

    /// Settings of the pod grouper.
    pub struct PodGrouper {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// What it does.
        pub args: PodGrouperArgs,
        /// Client-side rate limit for the API server.
        pub k8s_client_config: ClientConfig,
        /// Number of pods grouped at once.
        pub max_concurrent_reconciles: i64,
        /// Number of replicas, of which one works.
        pub replicas: i32,
    }

    /// What the pod grouper does.
    pub struct PodGrouperArgs {
        /// Whether the pods of a Knative revision run together or not at all.
        pub gang_schedule_knative: bool,
        /// Config map with the priorities of workload kinds; its namespace must be given too.
        pub default_priorities_config_map_name: String,
        /// Namespace of that config map.
        pub default_priorities_config_map_namespace: String,
        /// Whether workloads of unknown kinds are grouped as a Karta describes.
        pub generic_karta_fallback: bool,
    }

    /// Settings of the pod group controller.
    pub struct PodGroupController {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// The service in front of it.
        pub controller_service: PodGroupControllerService,
        /// How pod groups are checked at admission.
        pub webhooks: Webhooks,
        /// Number of pod groups handled at once.
        pub max_concurrent_reconciles: i64,
        /// Number of replicas, of which one works.
        pub replicas: i32,
    }

    /// The service in front of the pod group controller.
    pub struct PodGroupControllerService {
        /// Port of the webhook.
        pub webhook: PortMapping,
    }

    /// Settings of the queue controller.
    pub struct QueueController {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// Number of replicas, of which one works.
        pub replicas: i32,
        /// The service in front of it.
        pub controller_service: QueueControllerService,
        /// How queues are checked at admission.
        pub webhooks: Webhooks,
        /// First part of the metrics' names.
        pub metrics_namespace: String,
        /// Queue labels that become metric labels, as `label=metric_label` pairs with commas between.
        pub queue_label_to_metric_label: String,
        /// Values of those metric labels for queues without the label, as `metric_label=value` pairs.
        pub queue_label_to_default_metric_value: String,
    }

    /// The service in front of the queue controller.
    pub struct QueueControllerService {
        /// Port of the metrics.
        pub metrics: PortMapping,
        /// Port of the webhook.
        pub webhook: PortMapping,
    }

    /// Settings of admission.
    pub struct Admission {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// Its ports.
        pub webhook: AdmissionPorts,
        /// Number of replicas.
        pub replicas: i32,
        /// Whether pods may share GPUs.
        pub gpu_sharing: bool,
        /// Whether only pods of namespaces with a queue label are handled.
        pub queue_label_selector: bool,
        /// Name of the configuration of the validating webhooks.
        pub validating_webhook_configuration_name: String,
        /// Name of the configuration of the mutating webhooks.
        pub mutating_webhook_configuration_name: String,
        /// Runtime class given to pods with GPUs. Deprecated: use `gpuFractionRuntimeClassName`.
        pub gpu_pod_runtime_class_name: String,
        /// Runtime class set on pods that share a GPU; empty sets none.
        pub gpu_fraction_runtime_class_name: String,
        /// Whether containers without GPUs are kept from seeing any.
        pub block_nvidia_visible_devices: bool,
    }

    /// Ports of admission.
    pub struct AdmissionPorts {
        /// Port of the service.
        pub port: i64,
        /// Port of the pods.
        pub target_port: i64,
        /// Port of the health probes.
        pub probe_port: i64,
        /// Port of the metrics.
        pub metrics_port: i64,
    }

    /// Settings of the node scale adjuster.
    pub struct NodeScaleAdjuster {
        /// How it is deployed.
        pub service: Service,
        /// Vertical scaling; `global.vpa` when absent.
        pub vpa: Vpa,
        /// What it does.
        pub args: NodeScaleAdjusterArgs,
    }

    /// What the node scale adjuster does.
    pub struct NodeScaleAdjusterArgs {
        /// Image of scaling pods.
        pub scaling_pod_image: Image,
        /// Namespace of scaling pods.
        pub node_scale_namespace: String,
        /// Service account of scaling pods.
        pub node_scale_service_account: String,
        /// Part of a GPU that a request for GPU memory counts as.
        pub gpu_memory_to_fraction_ratio: f64,
    }

    /// Settings of the NUMA placement exporter.
    pub struct NumaPlacementExporter {
        /// How it is deployed; `enabled` follows from the shards when absent.
        pub service: Service,
        /// Labels of the nodes it runs on.
        pub node_selector: BTreeMap<String, String>,
        /// Its tolerations, on top of those of all daemon sets.
        pub tolerations: Vec<Toleration>,
        /// Poll interval of the pod resources API, as a duration such as `1s`.
        pub poll_interval: String,
        /// Resync interval that corrects drift of its annotations; `0s` disables it.
        pub drift_resync_interval: String,
        /// Folder of the node with the kubelet's socket.
        pub pod_resources_host_path: String,
        /// The kubelet's socket.
        pub pod_resources_socket: String,
        /// Folder of the node where the kernel describes the hardware.
        pub sysfs_host_path: String,
    }

    /// Where past usage of the queues is kept.
    pub struct Prometheus {
        /// Whether the operator deploys a Prometheus.
        pub enabled: bool,
        /// Its name.
        pub instance_name: String,
        /// How long it keeps data, such as `2w`.
        pub retention_period: String,
        /// Has no effect, as in KAI: `serviceMonitor.interval` is the scrape interval.
        pub sample_interval: String,
        /// Whether its data is stored on a persistent volume; true when absent.
        pub enable_persistent_storage: bool,
        /// How much storage it gets.
        pub storage_size: String,
        /// Storage class of its volume.
        pub storage_class_name: String,
        /// A Prometheus to use instead of deploying one.
        pub external_prometheus_url: String,
        /// How often that Prometheus is checked.
        pub external_prometheus_health_probe: PrometheusProbe,
        /// How components are scraped.
        pub service_monitor: ServiceMonitor,
        /// Label of the service monitors whose metrics count as usage.
        pub accounting_label_key: String,
        /// Value of that label.
        pub accounting_label_value: String,
    }

    /// How a Prometheus is checked.
    pub struct PrometheusProbe {
        /// Seconds between checks.
        pub interval: i64,
        /// Seconds a check may take.
        pub timeout: i64,
        /// Failed checks after which it counts as unreachable.
        pub max_retries: i64,
    }

    /// How components are scraped.
    pub struct ServiceMonitor {
        /// Whether service monitors are made.
        pub enabled: bool,
        /// How often metrics are read, such as `30s`.
        pub interval: String,
        /// How long reading may take.
        pub scrape_timeout: String,
        /// File with the token to read with.
        pub bearer_token_file: String,
    }
}
