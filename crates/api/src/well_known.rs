//! Labels, annotations, environment variables and resource names that users, other controllers or the kubelet use too.
//!
//! Names that an administrator can change in the configuration have a constant for their default here.
//! Not here: names that only the chart's templates use.

/// Labels.
pub mod label {
    /// Queue of a pod, its owner, a pod group or a resource claim. Configurable.
    pub const QUEUE: &str = "kai.scheduler/queue";
    /// Older way to name the queue: the project, with the node pool appended where there is one.
    pub const PROJECT: &str = "project";
    /// Node pool of a node, queue, pod group, pod or bind request. Configurable.
    pub const NODE_POOL: &str = "kai.scheduler/node-pool";
    /// Subgroup a pod belongs to.
    pub const SUBGROUP: &str = "kai.scheduler/subgroup-name";
    /// Whether a workload may be evicted: one of the values of `PodGroup.spec.preemptibility`.
    pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
    /// Priority class of a workload.
    pub const PRIORITY_CLASS: &str = "priorityClassName";
    /// User who owns a workload; an annotation of pods, too.
    pub const USER: &str = "user";
    /// Order of a pod inside its group: an integer, higher first.
    pub const TASK_PRIORITY: &str = "kai.scheduler/task-priority";
    /// GPU group: the shared GPU that a pod uses or a reservation pod holds.
    pub const GPU_GROUP: &str = "runai-gpu-group";
    /// Prefix of the GPU group labels of a pod that shares several GPUs; the group follows and is the value, too.
    pub const GPU_GROUP_PREFIX: &str = "runai-gpu-group/";
    /// Node a bind request selects.
    pub const SELECTED_NODE: &str = "selected-node";
    /// Component that an object or pod belongs to.
    pub const APP: &str = "app";
    /// Hash of the pod template of a Deployment, on the pods of its ReplicaSets.
    pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
    /// Component that manages an object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Marks service monitors whose metrics count as usage. Configurable.
    pub const ACCOUNTING: &str = "kai.scheduler/accounting";
    /// Marks ConfigMaps with past usage of queues; the value is the name of the first one.
    pub const USAGE_LEDGER: &str = "kai.scheduler/usage-ledger";
    /// Component that manages an endpoint slice.
    pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
    /// Service that an endpoint slice belongs to.
    pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
    /// Name of the pending pod that a scaling pod stands for.
    pub const SCALING_FOR_NAME: &str = "shared-gpu-pod-name";
    /// Namespace of the pending pod that a scaling pod stands for.
    pub const SCALING_FOR_NAMESPACE: &str = "shared-gpu-pod-namespace";
    /// Nodes for pods with GPUs. Configurable.
    pub const GPU_WORKER: &str = "node-role.kubernetes.io/gpu-worker";
    /// Nodes for pods without GPUs. Configurable.
    pub const CPU_WORKER: &str = "node-role.kubernetes.io/cpu-worker";
    /// Whether a node has MIG switched on. Configurable.
    pub const MIG_ENABLED: &str = "node-role.kubernetes.io/mig-enabled";
    /// Number of GPUs of a node.
    pub const GPU_COUNT: &str = "nvidia.com/gpu.count";
    /// Memory of each GPU of a node, in MiB.
    pub const GPU_MEMORY: &str = "nvidia.com/gpu.memory";
    /// MIG strategy of a node: `single`, `mixed` or `none`.
    pub const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
    /// Prefix of labels whose key contains the memory of AMD GPUs.
    pub const AMD_GPU_MEMORY_PREFIX: &str = "beta.amd.com/gpu.vram";
    /// Marks nodes with simulated GPUs.
    pub const FAKE_GPU: &str = "run.ai/fake.gpu";
    /// Marks nodes with more than one NUMA zone.
    pub const NUMA_NODE: &str = "feature.node.kubernetes.io/memory-numa";
    /// Role of a Ray pod; `head` comes first.
    pub const RAY_NODE_TYPE: &str = "ray.io/node-type";
    /// Worker group of a Ray pod.
    pub const RAY_GROUP: &str = "ray.io/group";
    /// Priority class of a Ray workload.
    pub const RAY_PRIORITY_CLASS: &str = "ray.io/priority-class-name";
    /// Role of a Kubeflow pod; `master` and `launcher` come first.
    pub const KUBEFLOW_JOB_ROLE: &str = "training.kubeflow.org/job-role";
    /// Name of a Kubeflow job.
    pub const KUBEFLOW_JOB_NAME: &str = "training.kubeflow.org/job-name";
    /// Replica type of a Kubeflow pod.
    pub const KUBEFLOW_REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
    /// Index of a Kubeflow pod among its replicas.
    pub const KUBEFLOW_REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
    /// Replicated job of a job set that a pod belongs to.
    pub const JOBSET_REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
    /// Index of a pod's job among its replicas.
    pub const JOBSET_JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
    /// Index of a leader-worker group.
    pub const LWS_GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
    /// Index of a pod in its leader-worker group; 0 is the leader.
    pub const LWS_WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    /// Knative revision of a pod.
    pub const KNATIVE_REVISION: &str = "serving.knative.dev/revision";
    /// Grove pod gang of a pod.
    pub const GROVE_POD_GANG: &str = "grove.io/podgang";
    /// Name of a Spark application.
    pub const SPARK_APP_NAME: &str = "spark-app-name";
    /// Id of a Spark application; names the pod group.
    pub const SPARK_APP_SELECTOR: &str = "spark-app-selector";
    /// API group of the workloads a Karta describes.
    pub const KARTA_GROUP: &str = "run.ai/karta-group";
    /// API version of the workloads a Karta describes.
    pub const KARTA_VERSION: &str = "run.ai/karta-version";
    /// Kind of the workloads a Karta describes.
    pub const KARTA_KIND: &str = "run.ai/karta-kind";
    /// Name of a namespace, as a label of itself.
    pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
    /// Name of a node, as a label of itself.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
}

/// Values of labels.
pub mod label_value {
    /// `app` of the pods that make an autoscaler add nodes.
    pub const SCALING_POD: &str = "scaling-pod";
    /// `app` of the pods that hold shared GPUs. Configurable.
    pub const RESOURCE_RESERVATION: &str = "kai-resource-reservation";
    /// Value of the managed-by label of objects of the operator.
    pub const KAI_OPERATOR: &str = "kai-operator";
    /// The marking value of boolean labels and annotations.
    pub const TRUE: &str = "true";
    /// Subgroup of pods without a subgroup label.
    pub const DEFAULT_SUBGROUP: &str = "default";
    /// Node pool reported for groups without a node-pool label.
    pub const DEFAULT_NODE_POOL: &str = "default";
}

/// Annotations.
pub mod annotation {
    /// Pod group of a pod, in the pod's namespace.
    pub const POD_GROUP: &str = "pod-group-name";
    /// Half-life of the past usage of a queue, such as `12h`, in place of the shard's; with the usage ledger only.
    pub const USAGE_HALF_LIFE: &str = "kai.scheduler/usage-half-life";
    /// On the `Config`: `separate` or `combined`, how its components are divided into processes.
    pub const PROCESS_TOPOLOGY: &str = "kai.scheduler/process-topology";
    /// `true` leaves a pod, or all pods of an owner, ungrouped.
    pub const SKIP_GROUPING: &str = "kai.scheduler/skip-podgrouper";
    /// Requested fraction of a GPU, a decimal between 0 and 1.
    pub const GPU_FRACTION: &str = "gpu-fraction";
    /// Requested GPU memory, in MiB.
    pub const GPU_MEMORY: &str = "gpu-memory";
    /// Number of GPUs of which the fraction is requested; 1 when absent.
    pub const GPU_FRACTION_NUM_DEVICES: &str = "gpu-fraction-num-devices";
    /// Container that receives the GPU fraction; the first one when absent.
    pub const GPU_FRACTION_CONTAINER: &str = "gpu-fraction-container-name";
    /// `true` shares the GPU by MPS.
    pub const MPS: &str = "mps";
    /// Prefix of the older way to request MIG instances.
    pub const MIG_PREFIX: &str = "nvidia.com/mig-";
    /// How a bound pod received its GPUs: `Regular`, `Fraction`, `MigInstance` or empty.
    pub const RECEIVED_RESOURCE_TYPE: &str = "received-resource-type";
    /// Prefix of the names of the config maps that expose the GPUs to a container.
    pub const SHARED_GPU_CONFIG_MAP: &str = "runai/shared-gpu-configmap";
    /// UUID of the GPU that a reservation pod holds; the name has `index` for historical reasons in KAI.
    pub const RESERVED_GPU: &str = "run.ai/reserve_for_gpu_index";
    /// UUID of the GPU that a renewed reservation pod has to hold: its users were given this one.
    pub const RENEWED_GPU: &str = "kai.scheduler/renewed-gpu";
    /// The pod that a scaling pod was created for, as `NAMESPACE/NAME`: names may be longer than label values.
    pub const SCALING_FOR: &str = "kai.scheduler/scaling-for";
    /// The uid of the pod that a scaling pod was created for.
    pub const SCALING_FOR_UID: &str = "kai.scheduler/scaling-for-uid";
    /// Whether cluster-autoscaler may evict a pod to remove its node.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Keeps Karpenter from moving reservation pods.
    pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// When a pod group fell below its minimum.
    pub const STALE_SINCE: &str = "kai.scheduler/stale-podgroup-timestamp";
    /// When a pod group last started to run.
    pub const LAST_START: &str = "kai.scheduler/last-start-timestamp";
    /// `true` on a pod that was placed on an implicit group, which has no object.
    pub const IMPLICIT_GROUP: &str = "kai.scheduler/implicit-group";
    /// When a pod of a pod group was last evicted.
    pub const LAST_EVICTION: &str = "kai.scheduler/last-eviction-timestamp";
    /// Runtime of a pod, or of each pod of a pod group, in a simulated cluster; unlimited when absent.
    pub const SIMULATED_DURATION: &str = "kai.scheduler/simulated-duration";
    /// How long after the beginning of a simulation a pod or a pod group is submitted.
    pub const SIMULATED_SUBMIT_AT: &str = "kai.scheduler/simulated-submit-at";
    /// `false`: an evicted pod, or pods of an evicted pod group, are not recreated in a simulated cluster.
    pub const SIMULATED_RESTART: &str = "kai.scheduler/simulated-restart";
    /// The object at the top of a pod group's owner chain, as YAML.
    pub const TOP_OWNER: &str = "kai.scheduler/top-owner-metadata";
    /// How long a workload waits before it may cause evictions.
    pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
    /// How long a workload may run below its minimum; negative is unlimited.
    pub const STALENESS_GRACE_PERIOD: &str = "kai.scheduler/staleness-grace-period";
    /// Maximum run time of a workload, a pod group, or the groups of a queue, such as `8h`.
    pub const MAX_RUNTIME: &str = "kai.scheduler/max-runtime";
    /// What follows after the maximum run time: `preemptible`, which is the default, or `end`.
    pub const MAX_RUNTIME_ACTION: &str = "kai.scheduler/max-runtime-action";
    /// Time after the maximum run time until the action; none when absent.
    pub const MAX_RUNTIME_GRACE_PERIOD: &str = "kai.scheduler/max-runtime-grace-period";
    /// When the users of a pod group were last warned of its maximum run time.
    pub const MAX_RUNTIME_WARNING: &str = "kai.scheduler/max-runtime-warning-timestamp";
    /// When a pod group ended at its maximum run time. It is not started again while it has this annotation.
    pub const MAX_RUNTIME_ENDED: &str = "kai.scheduler/max-runtime-ended-timestamp";
    /// Topology of a workload.
    pub const TOPOLOGY: &str = "kai.scheduler/topology";
    /// Level inside one domain of which a workload must run.
    pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
    /// Level inside one domain of which a workload should run.
    pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
    /// Number of pods in each segment of a workload.
    pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
    /// Level inside one domain of which each segment must run.
    pub const SEGMENT_TOPOLOGY_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
    /// Level inside one domain of which each segment should run.
    pub const SEGMENT_TOPOLOGY_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";
    /// How many pods of a job, or jobs of a job set, must run at once.
    pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
    /// NUMA zones a pod is expected to use, as JSON.
    pub const NUMA_PREDICTED: &str = "kai.scheduler/numa-placement-predicted";
    /// NUMA zones a pod uses, as JSON; wins over the prediction.
    pub const NUMA_OBSERVED: &str = "kai.scheduler/numa-placement-observed";
    /// Marks the resource claim that stands for extended resources of a pod.
    pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
    /// On an eviction event: how many pods were evicted together.
    pub const EVENT_EVICTED_PODS: &str = "num-evicted-pods";
    /// On an eviction event: the action that evicted.
    pub const EVENT_EVICTOR_ACTION: &str = "evictor-action-type";
    /// On an eviction event: the preemptor pod group.
    pub const EVENT_EVICTOR_GROUP: &str = "evictor-pod-group-name";
    /// On an eviction event: the namespace of the preemptor pod group.
    pub const EVENT_EVICTOR_GROUP_NAMESPACE: &str = "evictor-pod-group-namespace";
    /// Version of the config map that a scheduler pod reads; a change restarts the pod.
    pub const CONFIG_MAP_VERSION: &str = "configMapVersion";
    /// Marks services that Prometheus scrapes.
    pub const PROMETHEUS_SCRAPE: &str = "prometheus.io/scrape";
    /// When the usage database was switched off.
    pub const DEPRECATION_TIMESTAMP: &str = "kai/deprecation-timestamp";
    /// Where a topology was taken over from.
    pub const MIGRATED_FROM: &str = "kai.scheduler/migrated-from";
    /// Number of pods in a leader-worker group.
    pub const LWS_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
    /// Least number of pods of a Knative revision.
    pub const KNATIVE_MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";
    /// Topology of a Grove workload.
    pub const GROVE_TOPOLOGY: &str = "grove.io/topology-name";
}

/// Environment variables.
pub mod env {
    /// Image repository of the components that the operator deploys.
    pub const IMAGE_REPOSITORY: &str = "MS_REPOSITORY";
    /// Image tag of the components that the operator deploys.
    pub const IMAGE_TAG: &str = "MS_TAG";
    /// Namespace of the process.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// Namespace of a reservation pod.
    pub const POD_NAMESPACE: &str = "POD_NAMESPACE";
    /// Name of a reservation pod or of the operator's pod.
    pub const POD_NAME: &str = "POD_NAME";
    /// Namespace the operator is set to watch; given by the chart, read by nothing.
    pub const WATCH_NAMESPACE: &str = "WATCH_NAMESPACE";
    /// Name of the operator; given by the chart, read by nothing.
    pub const OPERATOR_NAME: &str = "OPERATOR_NAME";
    /// Node of a process that serves one node.
    pub const NODE_NAME: &str = "NODE_NAME";
    /// Client configuration outside of a cluster.
    pub const KUBECONFIG: &str = "KUBECONFIG";
    /// Growth of the heap between collections, of a scheduler written in Go.
    pub const GOGC: &str = "GOGC";
    /// Soft memory limit in bytes, of a scheduler written in Go.
    pub const GO_MEM_LIMIT: &str = "GOMEMLIMIT";
    /// Part of the container's memory limit that the scheduler aims to stay below.
    pub const GO_MEM_LIMIT_RATIO: &str = "KAI_GOMEMLIMIT_RATIO";
    /// Devices a container sees; as well a key of the pod's GPU config map.
    pub const NVIDIA_VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
    /// Part of each GPU a container has; as well a key of the pod's GPU config map.
    pub const GPU_PORTION: &str = "GPU_PORTION";
    /// Older name of `GPU_PORTION`.
    pub const RUNAI_NUM_OF_GPUS: &str = "RUNAI_NUM_OF_GPUS";
    /// GPU memory a container may use, such as `1024m` for 1024 MiB.
    pub const CUDA_DEVICE_MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";
    /// Older name of `NVIDIA_VISIBLE_DEVICES`, only in config maps.
    pub const RUNAI_VISIBLE_DEVICES: &str = "RUNAI-VISIBLE-DEVICES";
    /// Value of `NVIDIA_VISIBLE_DEVICES` that hides all devices.
    pub const NO_VISIBLE_DEVICES: &str = "void";
}

/// Resource names.
pub mod resource {
    /// CPU, in cores.
    pub const CPU: &str = "cpu";
    /// Memory, in bytes.
    pub const MEMORY: &str = "memory";
    /// Pods on a node.
    pub const PODS: &str = "pods";
    /// Local storage, in bytes.
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
    /// Prefix of huge pages; their size follows.
    pub const HUGE_PAGES_PREFIX: &str = "hugepages-";
    /// Whole NVIDIA GPUs; parts of a device in status fields.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    /// Whole AMD GPUs.
    pub const AMD_GPU: &str = "amd.com/gpu";
    /// Prefix of MIG instances; the profile follows.
    pub const NVIDIA_MIG_PREFIX: &str = "nvidia.com/mig-";
    /// GPU memory in MiB, in the status of pod groups only.
    pub const GPU_MEMORY: &str = "run.ai/gpu.memory";
    /// GPUs of any vendor, in messages.
    pub const GPU: &str = "gpu";
    /// Prefix of device names for the container runtime; the GPU's UUID follows.
    pub const CDI_GPU_PREFIX: &str = "k8s.device-plugin.nvidia.com/gpu=";
}

/// Priority classes that come with the scheduler, and the rules around priorities.
pub mod priority_class {
    /// Training that may be preempted.
    pub const TRAIN: &str = "train";
    /// Interactive work that may be preempted.
    pub const BUILD_PREEMPTIBLE: &str = "build-preemptible";
    /// Interactive work.
    pub const BUILD: &str = "build";
    /// Serving.
    pub const INFERENCE: &str = "inference";

    /// Value of `train`.
    pub const TRAIN_VALUE: i32 = 50;
    /// Value of `build-preemptible`.
    pub const BUILD_PREEMPTIBLE_VALUE: i32 = 75;
    /// Value of `build`.
    pub const BUILD_VALUE: i32 = 100;
    /// Value of `inference`.
    pub const INFERENCE_VALUE: i32 = 125;

    /// Lowest priority of non-preemptible pod groups without an explicit preemptibility.
    pub const NON_PREEMPTIBLE_FROM: i32 = 100;
    /// Value of a pod group whose priority class is unknown, in a cluster without a default class.
    pub const FALLBACK_VALUE: i32 = 50;
}

/// Defaults of names that can be configured, and names of fixed objects.
pub mod name {
    /// Value of `schedulerName` of pods for this scheduler.
    pub const SCHEDULER: &str = "kai-scheduler";
    /// Namespace of the components.
    pub const NAMESPACE: &str = "kai-scheduler";
    /// Namespace and service account of reservation pods.
    pub const RESOURCE_RESERVATION: &str = "kai-resource-reservation";
    /// Namespace and service account of scaling pods.
    pub const SCALE_ADJUST: &str = "kai-scale-adjust";
    /// `schedulerName` of scaling pods, which no scheduler places.
    pub const SCALING_POD_SCHEDULER: &str = "kai-scaling-pod";
    /// The only `Config` object that has an effect.
    pub const CONFIG: &str = "kai-config";
    /// ConfigMap with past usage of queues, of the scheduler without a node pool.
    pub const USAGE_LEDGER: &str = "kai-scheduler-usage";
    /// Queue of workloads that name none.
    pub const DEFAULT_QUEUE: &str = "default-queue";
    /// Priority of a queue that names none.
    pub const DEFAULT_QUEUE_PRIORITY: i64 = 100;
}
