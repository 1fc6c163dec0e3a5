//! From a pod to its desired group: resolves the owners, reads what the rule asks for, and applies the rule.

use crate::cluster::{ClusterView, ObjectRef, ReadObjects};
use crate::defaults::Defaults;
use crate::error::{Error, Invalid};
use crate::objects::{MetaExt, OwnerObject, PodSummary, is_assigned_without_owners, spark_application};
use crate::options::Options;
use crate::workload::{Desired, Workload};
use crate::{owner_chain, table};
use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::pod_group::name_of;
use kai_api::well_known::{annotation, label, label_value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rounds of reads that a rule may ask for, each depending on the one before.
const READ_ROUNDS: usize = 3;

/// An object to read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub namespace: &'a str,
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    /// None for a reference by name alone.
    pub uid: Option<&'a str>,
}

/// On whose behalf an object is read.
#[derive(Clone, Copy, Debug)]
pub struct ReadFor<'a> {
    /// The uid of the pod's first owner, or its own where it has none.
    pub first_owner: &'a str,
    /// Whether the pod is planned for the first time, so that its owner may have changed just now.
    pub is_new: bool,
}

/// Where owners and further objects come from: the API server, or a set of objects.
pub trait Source: Sync {
    fn read(
        &self,
        wanted: &Wanted<'_>,
        read_for: ReadFor<'_>,
    ) -> impl Future<Output = Result<Arc<OwnerObject>, owner_chain::Error>> + Send;

    /// The Kartas that describe a kind.
    fn kartas(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> impl Future<Output = Result<Vec<Arc<OwnerObject>>, owner_chain::Error>> + Send;

    /// All topologies; none where they are not served.
    fn topologies(&self) -> impl Future<Output = Result<Vec<Arc<OwnerObject>>, owner_chain::Error>> + Send;
}

/// What a plan reads besides the objects of its source.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub options: &'a Options,
    pub defaults: &'a Defaults,
    pub cluster: &'a dyn ClusterView,
    /// Whether the pod was planned before and only its annotation is missing: its owners are known.
    pub is_planned: bool,
}

impl std::fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs").field("options", self.options).finish_non_exhaustive()
    }
}

/// The desired group of a pod; none where an owner asks not to be grouped.
pub async fn plan(
    source: &impl Source,
    inputs: Inputs<'_>,
    pod: &PodSummary,
) -> Result<Option<Desired>, Error> {
    let first_owner = pod.metadata.owners().first().map_or(pod.metadata.uid_str(), |owner| &owner.uid);
    let is_new =
        !inputs.is_planned && pod.metadata.annotation(annotation::POD_GROUP).unwrap_or_default().is_empty();
    let read_for = ReadFor { first_owner, is_new };
    let owners = owner_chain::resolve(source, pod, read_for).await?;
    if owners.iter().any(|owner| skips(&owner.metadata)) {
        return Ok(None);
    }
    let mut objects = ReadObjects::default();
    for _ in 0..READ_ROUNDS {
        let reads = table::reads(&workload(inputs, pod, &owners, &objects));
        let missing: Vec<ObjectRef> = reads.into_iter().filter(|of| !objects.has(of)).collect();
        if missing.is_empty() {
            break;
        }
        for reference in missing {
            let found = fetch(source, pod, &reference, read_for).await?;
            objects.0.push((reference, found));
        }
    }
    Ok(Some(table::desired(&workload(inputs, pod, &owners, &objects))?))
}

/// As [`plan`], for a source that never waits.
pub fn plan_offline(
    source: &impl Source,
    inputs: Inputs<'_>,
    pod: &PodSummary,
) -> Result<Option<Desired>, Error> {
    plan(source, inputs, pod).now_or_never().unwrap_or_else(|| {
        Err(Invalid::new("Pod", pod.metadata.name_str(), "an object of its owner chain is not there yet")
            .into())
    })
}

fn workload<'a>(
    inputs: Inputs<'a>,
    pod: &'a PodSummary,
    owners: &'a [Arc<OwnerObject>],
    objects: &'a ReadObjects,
) -> Workload<'a> {
    let Inputs { options, defaults, cluster, is_planned: _ } = inputs;
    Workload { pod, owners, options, defaults, cluster, objects, inherited: None, wrapped: None }
}

/// Reads a further object; none where it does not exist.
async fn fetch(
    source: &impl Source,
    pod: &PodSummary,
    reference: &ObjectRef,
    read_for: ReadFor<'_>,
) -> Result<Vec<Arc<OwnerObject>>, owner_chain::Error> {
    match reference {
        ObjectRef::Kartas { group, version, kind } => source.kartas(group, version, kind).await,
        ObjectRef::Topologies => source.topologies().await,
        ObjectRef::Object { api_version, kind, name } => {
            let namespace = pod.metadata.namespace_str();
            let wanted = Wanted { namespace, api_version, kind, name, uid: None };
            match source.read(&wanted, read_for).await {
                Ok(found) => Ok(vec![found]),
                Err(owner_chain::Error::Gone { .. }) => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        }
    }
}

/// Whether a pod is grouped at all: a live pod of this scheduler that the selectors select.
pub fn is_responsible(
    options: &Options,
    pod: &PodSummary,
    namespace_labels: Option<&BTreeMap<String, String>>,
) -> bool {
    let is_selected = |selector: &BTreeMap<String, String>, labels: Option<&BTreeMap<String, String>>| {
        selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    };
    pod.spec.scheduler_name.as_deref().unwrap_or_default() == options.scheduler_name
        && !is_ending(pod)
        && !skips(&pod.metadata)
        && is_selected(&options.pod_label_selector, pod.metadata.labels.as_ref())
        && is_selected(&options.namespace_label_selector, namespace_labels)
}

/// Whether a pod without owners is in a group that its user chose, or in its own group, which exists.
pub fn has_group_without_owners(pod: &PodSummary, exists: impl Fn(&str) -> bool) -> bool {
    let Some(group) = pod.metadata.annotation(annotation::POD_GROUP) else { return false };
    let is_own = group == name_of(pod.metadata.name_str(), pod.metadata.uid_str())
        || spark_application(&pod.metadata) == Some(group);
    is_assigned_without_owners(pod) && (!is_own || exists(group))
}

/// Whether a pod has ended or is about to, and so has no say in its group.
pub(crate) fn is_ending(pod: &PodSummary) -> bool {
    (pod.metadata.deletion_timestamp.is_some() && !is_leaving_launcher(pod))
        || pod.status.phase.as_deref().is_some_and(kai_object::is_terminal_phase)
}

/// Whether a terminating pod was the launcher of an MPIJob, whose workers must not wait for it. Its group may shrink, and is
/// not created anew.
pub fn is_leaving_launcher(pod: &PodSummary) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.label(label::KUBEFLOW_JOB_ROLE) == Some("launcher")
        && pod.metadata.annotation(annotation::POD_GROUP).is_some()
}

fn skips(metadata: &ObjectMeta) -> bool {
    metadata.annotation(annotation::SKIP_GROUPING) == Some(label_value::TRUE)
}
