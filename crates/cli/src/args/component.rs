//! The flags of the components: those of KAI's programs, under their names and with their defaults. They may be written
//! as Go's programs take them (`go`).

use clap::{ArgAction, Args};
use std::path::PathBuf;

/// Flags that every component has.
#[derive(Clone, Debug, Args)]
pub(crate) struct Process {
    /// Kubeconfig of the cluster; without it `KUBECONFIG`, ~/.kube/config or the credentials of a pod.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Work only while holding a lease, so that one of several copies works.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// Namespace of the lease; without it that of the pod.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) leader_election_namespace: Option<String>,
    /// Most requests a second; without it as many as the server takes.
    #[arg(long)]
    pub(crate) qps: Option<f64>,
    /// Most requests at once after a pause, where `--qps` is given.
    #[arg(long)]
    pub(crate) burst: Option<u32>,
    /// Where metrics are served; `0` for nowhere.
    #[arg(
        long,
        alias = "listen-address",
        alias = "metrics-listen-address",
        default_value = ":8080",
        value_name = "ADDRESS"
    )]
    pub(crate) metrics_bind_address: String,
    /// Where `/healthz` and `/readyz` are served besides; `0` for nowhere.
    #[arg(long, default_value = "0", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: String,
    /// How much is logged: 0 little, 3 usual, 4 decisions, 7 everything. `RUST_LOG` says it more exactly.
    #[arg(long = "v", alias = "log-level", default_value_t = 3, allow_hyphen_values = true)]
    pub(crate) verbosity: i32,
    /// Log one JSON object a line.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) log_json: bool,
    #[command(flatten)]
    pub(crate) accepted: Accepted,
}

/// Flags of KAI's programs that mean nothing here: they are accepted, so that an installation can be taken over.
#[derive(Clone, Debug, Args)]
pub(crate) struct Accepted {
    #[arg(long, hide = true)]
    feature_gates: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    zap_devel: Option<bool>,
    #[arg(long, hide = true)]
    zap_encoder: Option<String>,
    #[arg(long, hide = true)]
    zap_log_level: Option<String>,
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    skip_controller_name_validation: Option<bool>,
    #[arg(long, hide = true)]
    rate_limiter_base_delay: Option<i64>,
    #[arg(long, hide = true)]
    rate_limiter_max_delay: Option<i64>,
}

impl Accepted {
    /// The shortest and the longest wait of something that fails, in seconds.
    pub(crate) fn retry_seconds(&self) -> (Option<i64>, Option<i64>) {
        (self.rate_limiter_base_delay, self.rate_limiter_max_delay)
    }

    /// What was given and means nothing.
    pub(crate) fn ignored(&self) -> Vec<&'static str> {
        let given = [
            ("feature-gates", self.feature_gates.is_some()),
            ("zap-devel", self.zap_devel.is_some()),
            ("zap-encoder", self.zap_encoder.is_some()),
            ("zap-log-level", self.zap_log_level.is_some()),
            ("zap-stacktrace-level", self.zap_stacktrace_level.is_some()),
            ("zap-time-encoding", self.zap_time_encoding.is_some()),
            ("skip-controller-name-validation", self.skip_controller_name_validation.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// Options of `kai scheduler`.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_field_names, reason = "a field is called as its flag is")]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) process: Process,
    /// Pods that name this scheduler are ours.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub(crate) scheduler_name: String,
    /// Namespace of the lease.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAMESPACE")]
    pub(crate) namespace: String,
    /// What the names of metrics begin with.
    #[arg(long, default_value = "kai", value_name = "PREFIX")]
    pub(crate) metrics_namespace: String,
    /// Value of the label `app` on pods that hold a GPU for sharing.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "VALUE")]
    pub(crate) resource_reservation_app_label: String,
    /// Only nodes that are labelled as workers take part.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) restrict_node_scheduling: bool,
    /// Label that assigns nodes, queues and groups to a pool; empty for one pool of everything.
    #[arg(long, default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    pub(crate) nodepool_label_key: String,
    /// The pool that is served; empty for whatever has no such label.
    #[arg(long, default_value = "", value_name = "VALUE")]
    pub(crate) partition_label_value: String,
    /// Label that names a queue.
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    pub(crate) queue_label_key: String,
    /// The scheduler configuration: actions, plugins and their arguments.
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_conf: Option<PathBuf>,
    /// Least time between two cycles that may evict.
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    pub(crate) schedule_period: String,
    /// Print the version at the start.
    #[arg(long = "version", default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) print_version: bool,
    /// Port on the loopback for `/get-snapshot`, `/get-job-order` and `/explain`; 0 for a free one.
    #[arg(long, default_value_t = 8081, value_name = "PORT")]
    pub(crate) plugin_server_port: u16,
    /// Most groups that are moved for one other; -1 for any number.
    #[arg(long, default_value_t = 16, allow_hyphen_values = true, value_name = "COUNT")]
    pub(crate) max_consolidation_preemptees: i64,
    /// Name every obstacle in messages.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) detailed_fit_errors: bool,
    /// Evict by a plain delete, after the condition `DisruptionTarget` says why, and not through the eviction API.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) update_pod_eviction_condition: bool,
    /// Count on storage that evictions free.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) schedule_csi_storage: bool,
    /// Pass over groups that look like one that found no place.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) use_scheduling_signatures: bool,
    /// Queues form a tree; otherwise all leaves stand side by side.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) full_hierarchy_fairness: bool,
    /// Whoever gets another place does not count as having lost one.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) allow_consolidating_reclaim: bool,
    /// How long a gang may run below its minimum; negative for ever.
    #[arg(long, default_value = "60s", allow_hyphen_values = true, value_name = "DURATION")]
    pub(crate) default_staleness_grace_period: String,
    /// How long a leaving pod may take before its room is no longer counted on.
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    pub(crate) stuck_in_releasing_threshold: String,
    /// Node label of CPU workers.
    #[arg(long, default_value = "node-role.kubernetes.io/cpu-worker", value_name = "KEY")]
    pub(crate) cpu_worker_node_label_key: String,
    /// Node label of GPU workers.
    #[arg(long, default_value = "node-role.kubernetes.io/gpu-worker", value_name = "KEY")]
    pub(crate) gpu_worker_node_label_key: String,
    /// Node label that says whether MIG is on.
    #[arg(long, default_value = "node-role.kubernetes.io/mig-enabled", value_name = "KEY")]
    pub(crate) mig_worker_node_label_key: String,
    /// Accepted for KAI's sake: writes adapt to the server, and nothing is profiled.
    #[arg(long, hide = true)]
    pub(crate) num_of_status_recording_workers: Option<u32>,
    #[arg(long, hide = true)]
    pub(crate) log_flush_frequency: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_profiler: Option<bool>,
    #[arg(long, hide = true)]
    pub(crate) profiler_port: Option<u16>,
    #[arg(long, hide = true)]
    pub(crate) pyroscope_address: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) pyroscope_mutex_profiler_rate: Option<u32>,
    #[arg(long, hide = true)]
    pub(crate) pyroscope_block_profiler_rate: Option<u32>,
}

/// Options of `kai binder`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Binder {
    #[command(flatten)]
    pub(crate) process: Process,
    /// Accepted for KAI's sake: every bind request is served.
    #[arg(long, hide = true)]
    pub(crate) scheduler_name: Option<String>,
    /// Where reservation pods run.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "NAMESPACE")]
    pub(crate) resource_reservation_namespace: String,
    /// Service account of reservation pods.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "NAME")]
    pub(crate) resource_reservation_service_account: String,
    /// Value of the label `app` on reservation pods.
    #[arg(long, default_value = "kai-resource-reservation", value_name = "VALUE")]
    pub(crate) resource_reservation_app_label: String,
    /// Image of reservation pods.
    #[arg(long, default_value = "registry/local/kai-scheduler/resource-reservation", value_name = "IMAGE")]
    pub(crate) resource_reservation_pod_image: String,
    /// Seconds until a reservation pod must have told its GPU.
    #[arg(long, default_value_t = 40, value_name = "SECONDS")]
    pub(crate) resource_reservation_allocation_timeout: u64,
    /// What reservation pods ask for besides a GPU: `ResourceRequirements` as JSON.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub(crate) resource_reservation_pod_resources: String,
    /// Security context of reservation pods, as JSON.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub(crate) resource_reservation_pod_security_context: String,
    /// Security context of the container of reservation pods, as JSON.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub(crate) resource_reservation_container_security_context: String,
    /// Runtime class of reservation pods.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub(crate) runtime_class_name: String,
    /// Where pods run that make an autoscaler add nodes.
    #[arg(long, default_value = "kai-scale-adjust", value_name = "NAMESPACE")]
    pub(crate) scale_adjust_namespace: String,
    /// How many bind requests are worked on at once.
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub(crate) max_concurrent_reconciles: usize,
    /// Nodes only pretend to have GPUs.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) fake_gpu_nodes: bool,
    /// Changes to the plugins: a JSON map of name to `enabled`, `priority` and `arguments`.
    #[arg(long, default_value = "", value_name = "JSON")]
    pub(crate) plugins: String,
    /// Write what KAI's binder writes besides: the condition `PodBound` and an event for each pod.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) kai_events: bool,
}

/// Options of `kai pod-grouper`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Grouper {
    #[command(flatten)]
    pub(crate) process: Process,
    /// Pods that name this scheduler are grouped.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub(crate) scheduler_name: String,
    /// Label that names a queue.
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    pub(crate) queue_label_key: String,
    /// Label that names a node pool.
    #[arg(long, default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    pub(crate) nodepool_label_key: String,
    /// Only pods with these labels: `key=value,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub(crate) pod_label_selector: String,
    /// Only pods in namespaces with these labels: `key=value,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub(crate) namespace_label_selector: String,
    /// Use groups with the names of older versions where they exist.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) search_legacy_pg: bool,
    /// A Knative revision is a gang.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) knative_gang_schedule: bool,
    /// Look kinds that nobody knows up among Kartas.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) generic_karta_fallback: bool,
    /// Name of the config map with defaults by kind.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub(crate) default_priorities_configmap_name: String,
    /// Namespace of that map.
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    pub(crate) default_priorities_configmap_namespace: String,
    /// How many pods are looked at side by side.
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub(crate) max_concurrent_reconciles: usize,
}

/// Options of `kai podgroup-controller`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PodGroupController {
    #[command(flatten)]
    pub(crate) process: Process,
    #[command(flatten)]
    pub(crate) webhook: Webhook,
    /// Pods that name this scheduler count.
    #[arg(long, default_value = "kai-scheduler", value_name = "NAME")]
    pub(crate) scheduler_name: String,
    /// Serve the webhook that checks pod groups.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) enable_podgroup_webhook: bool,
    /// Accepted for KAI's sake: writes adapt to the server.
    #[arg(long, hide = true)]
    pub(crate) max_concurrent_reconciles: Option<usize>,
}

/// Options of `kai queue-controller`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueueController {
    #[command(flatten)]
    pub(crate) process: Process,
    #[command(flatten)]
    pub(crate) webhook: Webhook,
    /// Serve the webhook that checks queues.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = true, action = ArgAction::Set)]
    pub(crate) enable_webhook: bool,
    /// Warn when children are promised more than their parent has.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, default_value_t = false, action = ArgAction::Set)]
    pub(crate) enable_quota_validation: bool,
    /// What the names of metrics begin with.
    #[arg(long, default_value = "kai", value_name = "PREFIX")]
    pub(crate) metrics_namespace: String,
    /// Labels of queues that become labels of metrics: `label=metric,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub(crate) queue_label_to_metric_label: String,
    /// What such a label says for queues without it: `label=value,…`.
    #[arg(long, default_value = "", value_name = "LABELS")]
    pub(crate) queue_label_to_default_metric_value: String,
}

/// Where a webhook is served.
#[derive(Clone, Debug, Args)]
pub(crate) struct Webhook {
    /// Where webhooks are served.
    #[arg(long, default_value = ":9443", value_name = "ADDRESS")]
    pub(crate) webhook_bind_address: String,
    /// Folder with `tls.crt` and `tls.key` of the webhooks.
    #[arg(long, default_value = "/tmp/k8s-webhook-server/serving-certs", value_name = "FOLDER")]
    pub(crate) webhook_cert_dir: PathBuf,
}

/// Options of `kai reservation`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reservation {
    #[command(flatten)]
    pub(crate) process: Process,
    /// Read the GPU from the pod's own status, as simulated nodes write it, and not from the driver.
    #[arg(long)]
    pub(crate) simulated: bool,
}
