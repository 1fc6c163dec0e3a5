//! Which rule groups the pods of which kind. Discovery, rights and the documentation follow from this table.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::kind::{
    aml_job, cron_job, deployment, generic, grove, job, job_set, karta, knative, kubeflow, leader_worker_set,
    pod, pytorch_job, ray, runai_job, skip_top, upstream_pod_group,
};
use crate::workload::{Desired, Workload};

pub use crate::kind::karta::describes as karta_describes;

/// The desired group of a workload, and the further objects that this needs.
#[derive(Clone, Copy)]
pub struct Rule {
    pub(crate) group: fn(&Workload<'_>) -> Result<Desired, Invalid>,
    pub(crate) reads: fn(&Workload<'_>) -> Vec<ObjectRef>,
    /// What users see, for the documentation.
    pub text: &'static str,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text)
    }
}

/// One kind of topmost owner.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub group: &'static str,
    /// None for any version.
    pub version: Option<&'static str>,
    pub kind: &'static str,
    pub plural: &'static str,
    pub rule: Rule,
}

/// A kind between pods and topmost owners, or one that a rule reads.
#[derive(Clone, Copy, Debug)]
pub struct Further {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    /// Whether objects are listed, besides read by name.
    pub is_listed: bool,
}

fn nothing(_: &Workload<'_>) -> Vec<ObjectRef> {
    Vec::new()
}

const fn rule(group: fn(&Workload<'_>) -> Result<Desired, Invalid>, text: &'static str) -> Rule {
    Rule { group, reads: nothing, text }
}

const fn reading(rule: Rule, reads: fn(&Workload<'_>) -> Vec<ObjectRef>) -> Rule {
    Rule { reads, ..rule }
}

const fn entry(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    rule: Rule,
) -> Entry {
    let is_any = matches!(version.as_bytes(), b"*");
    Entry { group, version: if is_any { None } else { Some(version) }, kind, plural, rule }
}

/// The rule of kinds that are not in the table.
pub const DEFAULT: Rule =
    rule(generic::all_owners, "one group for all pods of the workload, with a minimum of one pod");

const SKIP: Rule = reading(
    rule(skip_top::group, "the object below it decides, and inherits its labels and annotations"),
    skip_top::reads,
);
const RAY: Rule = reading(rule(ray::of_cluster, "as the RayCluster that its status names"), ray::reads);
const MPI: Rule = rule(
    kubeflow::mpi_job,
    "`minAvailable`, else the sum of all replicas; without the launcher while it waits for the workers \
     (`launcherCreationPolicy: WaitForWorkersReady`)",
);
const GROVE: Rule = reading(
    rule(grove::group, "the PodGang of the pod: its pod groups are subgroups with their `minReplicas`"),
    grove::reads,
);
const RAY_CLUSTER: Rule = rule(
    ray::cluster,
    "the head and, for every worker group that is not suspended, `minReplicas` (else `replicas`) × `numOfHosts`; \
     a subgroup for each",
);
const INTERACTIVE: Rule = rule(
    generic::build,
    "one group for all pods of the workload, with a minimum of one pod; priority class `build`",
);
const SERVING: Rule = rule(
    generic::inference,
    "one group for all pods of the workload, with a minimum of one pod; priority class `inference`",
);

/// Every kind with a rule, KAI's 42 entries.
pub const TABLE: &[Entry] = &[
    entry(
        "",
        "v1",
        "Pod",
        "pods",
        rule(pod::group, "a group for each pod; pods of a Spark application share one"),
    ),
    entry(
        "apps",
        "v1",
        "Deployment",
        "deployments",
        rule(deployment::group, "a group for each pod; priority class `inference`"),
    ),
    entry("apps", "v1", "ReplicaSet", "replicasets", DEFAULT),
    entry("apps", "v1", "StatefulSet", "statefulsets", DEFAULT),
    entry(
        "batch",
        "v1",
        "Job",
        "jobs",
        rule(
            job::group,
            "one group; annotation `kai.scheduler/batch-min-member` sets the minimum, which is 1 without",
        ),
    ),
    entry("batch", "v1", "CronJob", "cronjobs", rule(cron_job::group, "a group for each of its Jobs")),
    entry(
        "jobset.x-k8s.io",
        "v1alpha2",
        "JobSet",
        "jobsets",
        rule(
            job_set::group,
            "a subgroup for every replicated job and below it one for every job, with `parallelism` pods; all replicated \
             jobs are required, or one with `startupPolicyOrder: InOrder`, or as many as annotation \
             `kai.scheduler/batch-min-member` says",
        ),
    ),
    entry(
        "leaderworkerset.x-k8s.io",
        "v1",
        "LeaderWorkerSet",
        "leaderworkersets",
        rule(
            leader_worker_set::group,
            "a group for every replica, with `size` pods; subgroups for the leader and the workers, or for segments. With \
             `startupPolicy: LeaderReady` the leader starts alone",
        ),
    ),
    entry(
        "kubeflow.org",
        "v1",
        "PyTorchJob",
        "pytorchjobs",
        rule(
            pytorch_job::group,
            "`minAvailable`, else `elasticPolicy.minReplicas`, else the sum of all replicas; subgroups for master and \
             workers, which annotation `kai.scheduler/segment-size` divides into segments",
        ),
    ),
    entry(
        "kubeflow.org",
        "v1",
        "TFJob",
        "tfjobs",
        rule(kubeflow::tf_job, "`minAvailable`, else the sum of all replicas"),
    ),
    entry(
        "kubeflow.org",
        "v1",
        "XGBoostJob",
        "xgboostjobs",
        rule(
            kubeflow::xgboost_job,
            "`minAvailable`, else the sum of all replicas; Master and Worker are required",
        ),
    ),
    entry(
        "kubeflow.org",
        "v1",
        "JAXJob",
        "jaxjobs",
        rule(kubeflow::jax_job, "`minAvailable`, else the sum of all replicas; Worker is required"),
    ),
    entry("kubeflow.org", "v1", "MPIJob", "mpijobs", MPI),
    entry("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", MPI),
    entry("kubeflow.org", "v1beta1", "Notebook", "notebooks", INTERACTIVE),
    entry("kubeflow.org", "v1alpha1", "ScheduledWorkflow", "scheduledworkflows", DEFAULT),
    entry("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", SKIP),
    entry("ray.io", "v1alpha1", "RayCluster", "rayclusters", RAY_CLUSTER),
    entry("ray.io", "v1alpha1", "RayJob", "rayjobs", RAY),
    entry("ray.io", "v1alpha1", "RayService", "rayservices", RAY),
    entry("ray.io", "v1", "RayCluster", "rayclusters", RAY_CLUSTER),
    entry("ray.io", "v1", "RayJob", "rayjobs", RAY),
    entry("ray.io", "v1", "RayService", "rayservices", RAY),
    entry(
        "serving.knative.dev",
        "v1",
        "Service",
        "services",
        reading(
            rule(
                knative::group,
                "a group for every Revision, with annotation `autoscaling.knative.dev/min-scale` as minimum; or one for every \
                 pod with `--knative-gang-schedule=false`. Priority class `inference`",
            ),
            knative::reads,
        ),
    ),
    entry("argoproj.io", "v1alpha1", "Workflow", "workflows", SKIP),
    entry("tekton.dev", "v1", "PipelineRun", "pipelineruns", DEFAULT),
    entry("tekton.dev", "v1", "TaskRun", "taskruns", DEFAULT),
    entry("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment", "seldondeployments", DEFAULT),
    entry("machinelearning.seldon.io", "v1", "SeldonDeployment", "seldondeployments", DEFAULT),
    entry("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances", DEFAULT),
    entry("workspace.devfile.io", "v1alpha2", "DevWorkspace", "devworkspaces", DEFAULT),
    entry(
        "amlarc.azureml.com",
        "v1alpha1",
        "AmlJob",
        "amljobs",
        rule(aml_job::group, "`spec.job.options.envs.AZUREML_NODE_COUNT` pods"),
    ),
    entry("egx.nvidia.io", "v1", "SPOTRequest", "spotrequests", SERVING),
    entry(
        "run.ai",
        "v1",
        "RunaiJob",
        "runaijobs",
        rule(
            runai_job::group,
            "one group for the pods whose names differ in their last part only, with a minimum of one pod",
        ),
    ),
    entry("run.ai", "*", "TrainingWorkload", "trainingworkloads", SKIP),
    entry("run.ai", "*", "InteractiveWorkload", "interactiveworkloads", SKIP),
    entry("run.ai", "*", "DistributedWorkload", "distributedworkloads", SKIP),
    entry("run.ai", "*", "InferenceWorkload", "inferenceworkloads", SKIP),
    entry("run.ai", "*", "DistributedInferenceWorkload", "distributedinferenceworkloads", SKIP),
    entry("nvidia.com", "*", "DynamoGraphDeployment", "dynamographdeployments", SKIP),
    entry("grove.io", "v1alpha1", "PodGangSet", "podgangsets", GROVE),
    entry("grove.io", "v1alpha1", "PodCliqueSet", "podcliquesets", GROVE),
];

/// Kinds that own pods below the kinds of the table, or that rules read.
pub const FURTHER: &[Further] = &[
    further("serving.knative.dev", "Configuration", "configurations"),
    further("serving.knative.dev", "Revision", "revisions"),
    further("grove.io", "PodClique", "podcliques"),
    further("grove.io", "PodCliqueScalingGroup", "podcliquescalinggroups"),
    further("scheduler.grove.io", "PodGang", "podgangs"),
    further("scheduling.k8s.io", "PodGroup", "podgroups"),
    Further { group: "run.ai", kind: "Karta", plural: "kartas", is_listed: true },
    Further { group: "kai.scheduler", kind: "Topology", plural: "topologies", is_listed: true },
];

const fn further(group: &'static str, kind: &'static str, plural: &'static str) -> Further {
    Further { group, kind, plural, is_listed: false }
}

/// The entry of a kind: of its version, else of any version.
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Entry> {
    let any = || TABLE.iter().find(|of| of.version.is_none() && of.group == group && of.kind == kind);
    exact(group, version, kind).or_else(any)
}

/// The entry of exactly this version.
pub(crate) fn exact(group: &str, version: &str, kind: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|of| of.version == Some(version) && of.group == group && of.kind == kind)
}

/// The further objects that the workload needs, as far as the objects read so far tell.
pub fn reads(workload: &Workload<'_>) -> Vec<ObjectRef> {
    if let Some(reference) = upstream_pod_group::of_pod(workload) {
        return upstream_pod_group::reads(workload, reference);
    }
    let (group, version, kind) = workload.top_kind();
    if let Some(own) = workload.options.own_rules.find(group, version, kind) {
        return own.reads(workload);
    }
    match find(group, version, kind) {
        Some(entry) => (entry.rule.reads)(workload),
        None if workload.options.generic_karta_fallback => karta::reads(workload),
        None => Vec::new(),
    }
}

/// The desired group of the pod of a workload.
pub fn desired(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let (group, version, kind) = workload.top_kind();
    let own = || workload.options.own_rules.find(group, version, kind);
    let mut desired = if let Some(reference) = upstream_pod_group::of_pod(workload) {
        upstream_pod_group::group(workload, &reference)?
    } else if let Some(own) = own() {
        own.group(workload)?
    } else {
        built_in(workload)?
    };
    workload.add_node_pool(&mut desired);
    desired.check()?;
    Ok(desired)
}

/// The group by the built-in rule of the kind, its Karta, or the default rule. An own rule may start from it.
pub fn built_in(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let (group, version, kind) = workload.top_kind();
    match find(group, version, kind) {
        Some(entry) => (entry.rule.group)(workload),
        None if workload.options.generic_karta_fallback => match karta::of(workload) {
            Some(karta) => karta::group(workload, &karta),
            None => (DEFAULT.group)(workload),
        },
        None => (DEFAULT.group)(workload),
    }
}

/// Whether the kind of an object has a rule.
pub(crate) fn is_known(object: &crate::objects::OwnerObject) -> bool {
    let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
    find(group, version, &object.kind).is_some()
}
