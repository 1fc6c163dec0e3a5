//! The flags of the components: those of KAI's programs, with their names and defaults, and in every form that Go's
//! flag packages accept ([`go`]).

pub mod go;

use crate::logging;
use crate::table::{METRICS_PORT, PLUGIN_SERVER_PORT, WEBHOOK_PORT};
use clap::{ArgAction, Args, ValueEnum};
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;

/// Help of flags that KAI has and that do nothing here. A given one is named in a warning at the start.
pub const NO_EFFECT: &str = "Accepted for compatibility with KAI; has no effect";
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// Heading in `--help` under which they are listed.
const COMPATIBILITY: &str = "Flags for compatibility with KAI";

/// Flags that every component has.
#[derive(Clone, Debug, Args)]
pub struct ProcessFlags {
    /// Path to a kubeconfig; default: `KUBECONFIG`, ~/.kube/config, or the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Enable leader election, so that one of several replicas is active.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Namespace of the leader election lease; default: that of the pod.
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// Maximum requests per second to the API server, on average; -1 for no limit.
    #[arg(long, default_value_t = 50.0, allow_hyphen_values = true)]
    pub qps: f64,
    /// Maximum burst of requests.
    #[arg(long, default_value_t = 300)]
    pub burst: u32,
    /// Address that /metrics, /healthz and /readyz are served on; 0 disables it.
    #[arg(
        long,
        alias = "listen-address",
        alias = "metrics-listen-address",
        default_value_t = format!(":{METRICS_PORT}"),
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: String,
    /// Further address that /healthz and /readyz are served on; 0 disables it.
    #[arg(long, default_value = "0", value_name = "ADDRESS")]
    pub health_probe_bind_address: String,
    /// Log verbosity: 0 errors and warnings, 3 default, 4 decisions, 7 everything; `RUST_LOG` overrides it.
    #[arg(long = "v", alias = "log-level", default_value_t = 3, allow_hyphen_values = true)]
    pub verbosity: i32,
    /// Log as JSON, one object per line.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub log_json: bool,
    /// Log from debug on, as text; `false`: from info on, as JSON. Without it, -v and --log-json decide.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub zap_devel: Option<bool>,
    /// Format of the log; overrides --zap-devel and --log-json.
    #[arg(long, value_name = "FORMAT")]
    pub zap_encoder: Option<ZapEncoder>,
    /// Level of the log: debug, info, error, panic, or a number above 0 for more detail; overrides --zap-devel and -v.
    #[arg(long, value_name = "LEVEL", value_parser = logging::zap_level)]
    pub zap_log_level: Option<LevelFilter>,
    #[command(flatten)]
    pub ignored: IgnoredFlags,
}

impl ProcessFlags {
    /// The rate limit of requests.
    pub(crate) fn limits(&self) -> (f64, u32) {
        (self.qps, self.burst)
    }
}

/// Formats of the log, as zap calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ZapEncoder {
    Json,
    Console,
}

/// Flags of KAI's programs that have no effect, accepted so that an installation can be taken over.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = COMPATIBILITY)]
pub struct IgnoredFlags {
    #[arg(long, help = NO_EFFECT)]
    feature_gates: Option<String>,
    #[arg(long, help = NO_EFFECT)]
    zap_stacktrace_level: Option<String>,
    #[arg(long, help = NO_EFFECT)]
    zap_time_encoding: Option<String>,
    #[arg(long, help = NO_EFFECT, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    skip_controller_name_validation: Option<bool>,
}

/// Flags of `kai scheduler`.
#[derive(Clone, Debug, Args)]
pub struct SchedulerFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Schedule pods whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub scheduler_name: String,
    /// Namespace of the leader election lease.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAMESPACE")]
    pub namespace: String,
    /// Prefix of metric names.
    #[arg(long, default_value = "kai", value_name = "PREFIX")]
    pub metrics_namespace: String,
    /// Value of the label `app` on GPU reservation pods.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "VALUE")]
    pub resource_reservation_app_label: String,
    /// Schedule only on nodes that are labelled as workers.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub restrict_node_scheduling: bool,
    /// Label that assigns nodes, queues and pod groups to a node pool; empty to disable node pools.
    #[arg(long, default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    pub nodepool_label_key: String,
    /// Node pool to schedule; empty for objects without the node pool label.
    #[arg(long, default_value = "", value_name = "VALUE")]
    pub partition_label_value: String,
    /// Label that names the queue.
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    pub queue_label_key: String,
    /// Path to the scheduler configuration: actions, plugins and their arguments.
    #[arg(long, value_name = "FILE")]
    pub scheduler_conf: Option<PathBuf>,
    /// ConfigMap in the namespace of the lease, with the configuration under `config.yaml`: a change is taken over without a
    /// restart. It takes precedence over the file.
    #[arg(long, value_name = "NAME")]
    pub scheduler_conf_map: Option<String>,
    /// Minimum time between two cycles that may evict.
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    pub schedule_period: String,
    /// Log the version at the start.
    #[arg(long = "version", default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub print_version: bool,
    /// Loopback port of /get-snapshot, /get-job-order and /explain; 0 for an ephemeral port.
    #[arg(long, default_value_t = PLUGIN_SERVER_PORT, value_name = "PORT")]
    pub plugin_server_port: u16,
    /// Maximum pod groups that consolidation moves for one pending group; -1 for no limit.
    #[arg(long, default_value_t = 16, allow_hyphen_values = true, value_name = "COUNT")]
    pub max_consolidation_preemptees: i64,
    /// Report the fit errors of every node.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub detailed_fit_errors: bool,
    /// Say in the condition of a pod group that stays pending what the smallest change is that would run it.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub condition_hints: bool,
    /// Evict by setting the condition `DisruptionTarget` and deleting the pod, instead of the eviction API.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub update_pod_eviction_condition: bool,
    /// Bind pods that need nothing of the binder without a bind request; false where a user's binder plugin, or KAI's
    /// binder, has to see every pod.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub direct_binding: bool,
    /// Place pods without owners and of Deployments without a PodGroup, where their group would have one pod and no settings of
    /// its own. `kai pod-grouper` and `kai queue-controller` need the same node pools.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub implicit_groups: bool,
    /// Consider CSI storage that evictions would free.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub schedule_csi_storage: bool,
    /// Skip groups with the scheduling signature of a group that could not be scheduled.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub use_scheduling_signatures: bool,
    /// Divide fair share along the queue hierarchy; otherwise among all leaf queues.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub full_hierarchy_fairness: bool,
    /// Do not count victims that are rescheduled elsewhere as reclaimed.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub allow_consolidating_reclaim: bool,
    /// How long a gang may run below minMember before it is evicted; negative for no limit.
    #[arg(long, default_value = "60s", allow_hyphen_values = true, value_name = "DURATION")]
    pub default_staleness_grace_period: String,
    /// How long a terminating pod may take before its resources no longer count as releasing.
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    pub stuck_in_releasing_threshold: String,
    /// Node label of CPU workers.
    #[arg(long, default_value = "node-role.kubernetes.io/cpu-worker", value_name = "KEY")]
    pub cpu_worker_node_label_key: String,
    /// Node label of GPU workers.
    #[arg(long, default_value = "node-role.kubernetes.io/gpu-worker", value_name = "KEY")]
    pub gpu_worker_node_label_key: String,
    /// Node label that marks MIG as enabled.
    #[arg(long, default_value = "node-role.kubernetes.io/mig-enabled", value_name = "KEY")]
    pub mig_worker_node_label_key: String,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    num_of_status_recording_workers: Option<u32>,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    log_flush_frequency: Option<String>,
    /// Serve /debug/pprof on the profiler port, where it answers that there are no profiles.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set, help_heading = COMPATIBILITY)]
    pub enable_profiler: bool,
    /// Port of /debug/pprof.
    #[arg(long, default_value_t = 8182, value_name = "PORT", help_heading = COMPATIBILITY)]
    pub profiler_port: u16,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    pyroscope_address: Option<String>,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    pyroscope_mutex_profiler_rate: Option<u32>,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    pyroscope_block_profiler_rate: Option<u32>,
}

/// Flags of `kai binder`.
#[derive(Clone, Debug, Args)]
pub struct BinderFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    scheduler_name: Option<String>,
    /// Seconds before a failed bind request is retried for the first time; default: 1.
    #[arg(long, value_name = "SECONDS")]
    pub rate_limiter_base_delay: Option<i64>,
    /// Maximum seconds between two retries of a failed bind request; default: 60.
    #[arg(long, value_name = "SECONDS")]
    pub rate_limiter_max_delay: Option<i64>,
    /// Namespace of GPU reservation pods.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "NAMESPACE")]
    pub resource_reservation_namespace: String,
    /// Service account of reservation pods.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "NAME")]
    pub resource_reservation_service_account: String,
    /// Value of the label `app` on reservation pods.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "VALUE")]
    pub resource_reservation_app_label: String,
    /// Image of reservation pods.
    #[arg(long, default_value = "registry/local/kai-scheduler/resource-reservation", value_name = "IMAGE")]
    pub resource_reservation_pod_image: String,
    /// When nodes pull that image: Always, IfNotPresent or Never.
    #[arg(long, default_value = "IfNotPresent", value_name = "POLICY", value_parser = PULL_POLICIES)]
    pub resource_reservation_pod_image_pull_policy: String,
    /// Seconds until a reservation pod must have reported its GPU.
    #[arg(long, default_value_t = 40, value_name = "SECONDS")]
    pub resource_reservation_allocation_timeout: u64,
    /// Resources of reservation pods besides the GPU: `ResourceRequirements` as JSON.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub resource_reservation_pod_resources: String,
    /// Security context of reservation pods, as JSON.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub resource_reservation_pod_security_context: String,
    /// Security context of the container of reservation pods, as JSON.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub resource_reservation_container_security_context: String,
    /// Runtime class of reservation pods.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub runtime_class_name: String,
    /// Namespace of pods that trigger a cluster autoscaler.
    #[arg(long, default_value = "kai-scale-adjust", value_name = "NAMESPACE")]
    pub scale_adjust_namespace: String,
    /// Maximum bind requests that are reconciled concurrently.
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub max_concurrent_reconciles: usize,
    /// Nodes have simulated GPUs.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub fake_gpu_nodes: bool,
    /// Plugin overrides: a JSON map of name to `enabled`, `priority` and `arguments`.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub plugins: String,
    /// Also write what KAI's binder writes: the condition `PodBound` and an event for each pod.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub kai_events: bool,
}

/// Flags of `kai pod-grouper`.
#[derive(Clone, Debug, Args)]
pub struct PodGrouperFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Group pods whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub scheduler_name: String,
    /// Label that names the queue.
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    pub queue_label_key: String,
    /// Label that names the node pool.
    #[arg(long, default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    pub nodepool_label_key: String,
    /// Group only pods with these labels: `key=value,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub pod_label_selector: String,
    /// Group only pods in namespaces with these labels: `key=value,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub namespace_label_selector: String,
    /// Reuse pod groups that older versions created under other names.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub search_legacy_pg: bool,
    /// Make a gang of the pods of a Knative Revision; else every pod is a group of its own.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub knative_gang_schedule: bool,
    /// Group kinds without a rule as their Karta says.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub generic_karta_fallback: bool,
    /// Name of the config map with default priorities by workload kind.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub default_priorities_configmap_name: String,
    /// Namespace of the config map with default priorities.
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    pub default_priorities_configmap_namespace: String,
    /// Maximum pods that are reconciled concurrently.
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub max_concurrent_reconciles: usize,
    /// Leave the annotation of pods whose group is implied to their Bindings, which saves a write; `false` beside a scheduler
    /// that is not `kai scheduler`, or one with `--direct-binding=false`: there a pod waits five seconds for the annotation.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub assign_at_binding: bool,
    /// Node pools whose scheduler has `--implicit-groups`: `POOL,…`, with `default` for pods without a node pool. Their pods get
    /// no PodGroup where the scheduler needs none.
    #[arg(long, default_value = "", value_name = "POOLS")]
    pub implicit_groups: String,
}

/// Flags of `kai podgroup-controller`.
#[derive(Clone, Debug, Args)]
pub struct PodGroupControllerFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    #[command(flatten)]
    pub webhook: WebhookFlags,
    /// Count pods whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub scheduler_name: String,
    /// Serve the validating webhook of pod groups.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub enable_podgroup_webhook: bool,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    max_concurrent_reconciles: Option<usize>,
}

/// Flags of `kai queue-controller`.
#[derive(Clone, Debug, Args)]
pub struct QueueControllerFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    #[command(flatten)]
    pub webhook: WebhookFlags,
    /// Serve the validating webhook of queues.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub enable_webhook: bool,
    /// Warn when the quotas of child queues exceed that of their parent.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub enable_quota_validation: bool,
    /// Prefix of metric names.
    #[arg(long, default_value = "kai", value_name = "PREFIX")]
    pub metrics_namespace: String,
    /// Queue labels that become metric labels: `label=metric,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub queue_label_to_metric_label: String,
    /// Metric label values of queues without the label: `label=value,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub queue_label_to_default_metric_value: String,
    /// Node pools whose scheduler has `--implicit-groups`: `POOL,…`, with `default` for pods without a node pool. Their pods
    /// without a PodGroup are counted.
    #[arg(long, default_value = "", value_name = "POOLS")]
    pub implicit_groups: String,
    /// Count pods without a PodGroup whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub scheduler_name: String,
    /// Label that names the queue of a pod without a PodGroup.
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    pub queue_label_key: String,
    /// Label that names the node pool of a pod without a PodGroup.
    #[arg(long, default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    pub nodepool_label_key: String,
}

/// Flags of `kai admission`.
#[derive(Clone, Debug, Args)]
pub struct AdmissionFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Review pods whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub scheduler_name: String,
    /// Permit requests for parts of GPUs.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub gpu_sharing_enabled: bool,
    /// Give containers a variable with their limit of GPU memory, for HAMi-core.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub hami_core_enabled: bool,
    /// Hide all GPUs from containers that request none.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub block_nvidia_visible_devices: bool,
    /// Runtime class of pods that request a part of a GPU; empty to set none. Default: nvidia.
    #[arg(long, value_name = "NAME")]
    pub gpu_fraction_runtime_class_name: Option<String>,
    /// Older name of --gpu-fraction-runtime-class-name.
    #[arg(long, value_name = "NAME")]
    pub gpu_pod_runtime_class_name: Option<String>,
    /// Port that webhooks are served on.
    #[arg(long, default_value_t = WEBHOOK_PORT, value_name = "PORT")]
    pub webhook_addr: u16,
    /// Directory with `tls.crt` and `tls.key`. Without these files, the leader creates and rotates a certificate in a Secret,
    /// and registers the webhooks.
    #[arg(long, default_value = "/tmp/k8s-webhook-server/serving-certs", value_name = "DIR")]
    pub webhook_cert_dir: PathBuf,
    /// Host or address under which the API server reaches this process outside of the cluster, instead of by the Service
    /// `admission`; with a port where that is not the one of --webhook-addr.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub webhook_host: Option<String>,
    /// How long the certificates are valid that the leader creates; they are replaced when a quarter of it is left.
    #[arg(long, default_value = "8760h", value_name = "DURATION")]
    pub webhook_certificate_validity: String,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    rate_limiter_base_delay: Option<i64>,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    rate_limiter_max_delay: Option<i64>,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    fake_gpu_nodes: Option<bool>,
}

/// Flags of `kai operator`.
#[derive(Clone, Debug, Args)]
pub struct OperatorFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Namespace of the operator, and of the components unless the Config names another.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAMESPACE")]
    pub namespace: String,
    #[arg(long, help = NO_EFFECT, help_heading = COMPATIBILITY)]
    image_pull_secret: Option<String>,
}

/// Flags of components with webhooks.
#[derive(Clone, Debug, Args)]
pub struct WebhookFlags {
    /// Address that webhooks are served on.
    #[arg(long, default_value_t = format!(":{WEBHOOK_PORT}"), value_name = "ADDRESS")]
    pub webhook_bind_address: String,
    /// Directory with `tls.crt` and `tls.key` of the webhooks.
    #[arg(long, default_value = "/tmp/k8s-webhook-server/serving-certs", value_name = "DIR")]
    pub webhook_cert_dir: PathBuf,
}

/// Flags of `kai node-scale-adjuster`.
#[derive(Clone, Debug, Args)]
pub struct NodeScaleAdjusterFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Request nodes for pods whose `schedulerName` is this.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub scheduler_name: String,
    /// Namespace of scaling pods.
    #[arg(long, default_value = "kai-scale-adjust", value_name = "NAMESPACE")]
    pub scale_adjust_namespace: String,
    /// Service account of scaling pods. They are deleted together with it.
    #[arg(long, default_value = "scaling-pod", value_name = "NAME")]
    pub scaling_pod_service_account: String,
    /// Value of the label `app` on scaling pods.
    #[arg(long, default_value = "scaling-pod", value_name = "VALUE")]
    pub scaling_pod_app_label: String,
    /// Image of scaling pods, whose program ends at once, as `kai scaling-pod` does.
    #[arg(long, default_value = "registry/local/kai-scheduler/scalingpod", value_name = "IMAGE")]
    pub scaling_pod_image: String,
    /// When nodes pull that image: Always, IfNotPresent or Never.
    #[arg(long, default_value = "IfNotPresent", value_name = "POLICY", value_parser = PULL_POLICIES)]
    pub scaling_pod_image_pull_policy: String,
    /// The part of a GPU that a request for GPU memory counts as.
    #[arg(long, default_value_t = 0.1, value_name = "RATIO")]
    pub gpu_memory_to_fraction_ratio: f64,
    /// Maximum scaling pods at the same time; pods of one namespace cause at most half of them.
    #[arg(long, default_value_t = 500, value_name = "COUNT")]
    pub max_scaling_pods: usize,
    /// A scaling pod combines pods that share a GPU up to this sum of CPUs: those of the largest node.
    #[arg(long, default_value = "32", value_name = "QUANTITY")]
    pub max_scaling_pod_cpu: String,
    /// A scaling pod combines pods that share a GPU up to this sum of memory: that of the largest node.
    #[arg(long, default_value = "128Gi", value_name = "QUANTITY")]
    pub max_scaling_pod_memory: String,
    /// Request nodes also for devices that pods claim (DRA); `false` where the autoscaler reads resource claims.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub scale_for_resource_claims: bool,
}

/// Flags of `kai numa-exporter`.
#[derive(Clone, Debug, Args)]
pub struct NumaExporterFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Name of the node; default: `NODE_NAME` of the environment.
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Socket of the kubelet's pod resources API.
    #[arg(long, default_value = "/var/lib/kubelet/pod-resources/kubelet.sock", value_name = "FILE")]
    pub podresources_socket: PathBuf,
    /// Where the sysfs of the node is mounted.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sysfs_root: PathBuf,
    /// Interval between two requests to the kubelet.
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    pub poll_interval: String,
    /// How often everything is compared even without a change; 0 for never.
    #[arg(long, default_value = "60s", allow_hyphen_values = true, value_name = "DURATION")]
    pub drift_resync_interval: String,
}

/// Flags of `kai all`.
#[derive(Clone, Debug, Args)]
pub struct CombinedFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// The components to run, separated by commas; default: all of scheduler, binder, pod-grouper, podgroup-controller,
    /// queue-controller and admission.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub components: Vec<String>,
    /// Flags of components: the name of a component, its flags, the name of the next one, its flags, and so on. Several
    /// schedulers are those of several shards. A component that is not named has the defaults of its flags.
    #[arg(value_name = "COMPONENT FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub sections: Vec<String>,
}

/// Flags of `kai reservation`.
#[derive(Clone, Debug, Args)]
pub struct ReservationFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    /// Read the GPU from the status of the pod, as simulated nodes write it, instead of from NVML.
    #[arg(long)]
    pub simulated: bool,
}
