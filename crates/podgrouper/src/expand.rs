//! The pods that the controller of a workload creates, as far as grouping reads them: for `kai group`, which tells the pod
//! groups of a manifest before it is submitted.
//!
//! Names and labels follow the controllers; random parts of names are `x`. The files in `tests/grouper` compare them with
//! pods that the controllers made.

mod builtin;
mod grove;
mod kubeflow;
mod ray;
mod serving;
mod sets;
mod template;
mod workflow;

use crate::error::Invalid;
use crate::objects::{MetaExt, OwnerObject, PodSummary};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use std::sync::Arc;

/// Different pods of one workload; more are refused, since each is grouped on its own.
const DIFFERENT_MAX: usize = 10_000;
/// What stands for the random end of the name of a pod.
const RANDOM: &str = "xxxxx";

/// A workload with what its controller makes of it.
#[derive(Clone, Debug)]
pub struct Expansion {
    /// The workload, with the status that rules read.
    pub top: OwnerObject,
    /// Objects between the workload and its pods, and the pods as objects.
    pub between: Vec<OwnerObject>,
    pub pods: Vec<PodSet>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// Pods that differ in nothing that grouping reads.
#[derive(Clone, Debug)]
pub struct PodSet {
    pub pod: PodSummary,
    /// The whole specification, which grouping does not read.
    pub spec: Value,
    pub count: u32,
}

/// Uids of objects that no server has made.
#[derive(Clone, Debug, Default)]
pub struct Uids(u64);

impl Uids {
    const PREFIX: &'static str = "00000000-0000-0000-0000-";
    /// The length of a uid.
    const LENGTH: usize = 36;

    pub fn make(&mut self) -> String {
        self.0 += 1;
        format!("{}{:012}", Self::PREFIX, self.0)
    }

    /// A text with `<uid>` for every uid that was made here.
    pub fn masked(text: &str) -> String {
        let mut parts = text.split(Self::PREFIX);
        let mut masked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            masked.push_str("<uid>");
            masked.push_str(part.get(Self::LENGTH - Self::PREFIX.len()..).unwrap_or_default());
        }
        masked
    }
}

/// What a workload becomes; none for a kind whose pods are not known, and that has no pod templates.
///
/// `others` are the objects beside it, to which a workload may refer.
pub fn expand(
    top: &OwnerObject,
    others: &[Arc<OwnerObject>],
    uids: &mut Uids,
) -> Option<Result<Expansion, Invalid>> {
    let group = top.api_version.split_once('/').map_or("", |(group, _)| group);
    let rule: fn(&mut Expander<'_>) -> Result<(), Invalid> = match (group, top.kind.as_str()) {
        ("apps", "Deployment") => builtin::deployment,
        ("apps", "ReplicaSet") => builtin::replica_set,
        ("apps", "StatefulSet") => builtin::stateful_set,
        ("batch", "Job") => builtin::job,
        ("batch", "CronJob") => builtin::cron_job,
        ("jobset.x-k8s.io", "JobSet") => sets::job_set,
        ("trainer.kubeflow.org", "TrainJob") => sets::train_job,
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => sets::leader_worker_set,
        ("kubeflow.org", "PyTorchJob") => |of| kubeflow::job(of, "pytorchReplicaSpecs"),
        ("kubeflow.org", "TFJob") => |of| kubeflow::job(of, "tfReplicaSpecs"),
        ("kubeflow.org", "XGBoostJob") => |of| kubeflow::job(of, "xgbReplicaSpecs"),
        ("kubeflow.org", "JAXJob") => |of| kubeflow::job(of, "jaxReplicaSpecs"),
        ("kubeflow.org", "MPIJob") => kubeflow::mpi_job,
        ("kubeflow.org", "Notebook") => builtin::notebook,
        ("kubeflow.org", "ScheduledWorkflow") => workflow::scheduled,
        ("argoproj.io", "Workflow") => workflow::argo,
        ("tekton.dev", "TaskRun") => workflow::task_run,
        ("tekton.dev", "PipelineRun") => workflow::pipeline_run,
        ("sparkoperator.k8s.io", "SparkApplication") => workflow::spark,
        ("ray.io", "RayCluster") => ray::cluster,
        ("ray.io", "RayJob") => ray::job,
        ("ray.io", "RayService") => ray::service,
        ("serving.knative.dev", "Service") => serving::knative,
        ("machinelearning.seldon.io", "SeldonDeployment") => serving::seldon,
        ("kubevirt.io", "VirtualMachineInstance") => serving::machine_instance,
        ("grove.io", "PodCliqueSet" | "PodGangSet") => grove::pod_clique_set,
        _ if template::IGNORED.contains(&top.kind.as_str()) => return None,
        _ if template::search(top).is_empty() => return None,
        _ => template::any_kind,
    };
    let mut expander =
        Expander { top: top.clone(), others, uids, between: Vec::new(), pods: Vec::new(), notes: Vec::new() };
    Some(rule(&mut expander).map(|()| {
        let Expander { top, between, pods, notes, .. } = expander;
        Expansion { top, between, pods, notes }
    }))
}

/// An expansion that is being made.
struct Expander<'a> {
    top: OwnerObject,
    others: &'a [Arc<OwnerObject>],
    uids: &'a mut Uids,
    between: Vec<OwnerObject>,
    pods: Vec<PodSet>,
    notes: Vec<String>,
}

/// Pods to be made of a template.
struct Pods<'a> {
    owner: &'a OwnerReference,
    name: String,
    /// Where the template is in the workload, for errors.
    path: &'a str,
    template: &'a Value,
    labels: Vec<(&'static str, String)>,
    annotations: Vec<(&'static str, String)>,
    count: u32,
}

impl Expander<'_> {
    fn name(&self) -> String {
        self.top.metadata.name_str().to_owned()
    }

    fn as_owner(&self) -> OwnerReference {
        reference(&self.top)
    }

    /// A number that counts pods or objects.
    fn count(&self, path: &str, default: u32) -> Result<u32, Invalid> {
        let Some(number) = self.top.int(path)? else { return Ok(default) };
        u32::try_from(number)
            .map_err(|_| self.top.invalid(format!("`{path}` is {number}, and must not be negative")))
    }

    /// A template that must be there.
    fn template(&self, path: &str) -> Result<Value, Invalid> {
        let found = self.top.field(path)?.cloned();
        found.ok_or_else(|| {
            self.top.invalid(format!("`{path}` is missing; it must be the template of its pods"))
        })
    }

    /// Adds an object below an owner.
    fn object(
        &mut self,
        owner: &OwnerReference,
        api_version: &str,
        kind: &str,
        name: String,
        metadata: Option<&Value>,
    ) -> Result<OwnerReference, Invalid> {
        let of = |field: &str| template::texts(metadata, field);
        let wrong = |problem: String| self.top.invalid(problem);
        let metadata = ObjectMeta {
            labels: of("labels").map_err(wrong)?,
            annotations: of("annotations").map_err(wrong)?,
            name: Some(name),
            namespace: self.top.metadata.namespace.clone(),
            uid: Some(self.uids.make()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        let object = OwnerObject {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            metadata,
            ..OwnerObject::default()
        };
        let reference = reference(&object);
        self.between.push(object);
        Ok(reference)
    }

    /// Adds pods; returns the first as the owner of further objects.
    fn add(&mut self, pods: Pods<'_>) -> Result<OwnerReference, Invalid> {
        if self.pods.len() >= DIFFERENT_MAX {
            return Err(self.top.invalid(format!(
                "it has more than {DIFFERENT_MAX} different pods, which are not expanded"
            )));
        }
        let mut pod = template::pod(pods.template).map_err(|problem| {
            self.top.invalid(format!(
                "`{}{}`",
                if pods.path.is_empty() { "spec" } else { pods.path },
                problem
            ))
        })?;
        let metadata = &mut pod.metadata;
        metadata.name = Some(pods.name);
        metadata.namespace.clone_from(&self.top.metadata.namespace);
        metadata.uid = Some(self.uids.make());
        metadata.owner_references = Some(vec![pods.owner.clone()]);
        let own =
            |all: Vec<(&'static str, String)>| all.into_iter().map(|(key, value)| (key.to_owned(), value));
        metadata.labels.get_or_insert_default().extend(own(pods.labels));
        metadata.annotations.get_or_insert_default().extend(own(pods.annotations));
        let owner = OwnerObject {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            metadata: pod.metadata.clone(),
            data: json!({"spec": pods.template.get("spec")}),
        };
        let reference = reference(&owner);
        // Rules may read whole pods, and pods may own others.
        self.between.push(owner);
        let spec = pods.template.get("spec").cloned().unwrap_or_default();
        self.pods.push(PodSet { pod, spec, count: pods.count });
        Ok(reference)
    }
}

fn reference(object: &OwnerObject) -> OwnerReference {
    OwnerReference {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        name: object.metadata.name_str().to_owned(),
        uid: object.metadata.uid_str().to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests;
