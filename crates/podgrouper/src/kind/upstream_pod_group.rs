//! Pods that name a PodGroup of the Kubernetes API `scheduling.k8s.io` (KEP-4671): it is their gang, whatever owns them.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
use kai_api::pod_group::TopologyConstraint;
use serde_json::Value;
use std::sync::Arc;

/// The version of Kubernetes 1.36.
pub(crate) const API_VERSION: &str = "scheduling.k8s.io/v1alpha2";

/// The annotation of a pod that leaves the PodGroup of Kubernetes unread, as KAI's design proposes.
const IGNORE: &str = "kai.scheduler/ignore-workload-api";

/// The PodGroup that a pod names.
pub(crate) fn of_pod(workload: &Workload<'_>) -> Option<ObjectRef> {
    let name = workload.pod.spec.scheduling_group.as_ref()?.pod_group_name.clone()?;
    let is_ignored = workload.pod.metadata.annotation(IGNORE) == Some("true");
    (!is_ignored && !name.is_empty()).then(|| ObjectRef::Object {
        api_version: API_VERSION.to_owned(),
        kind: "PodGroup".to_owned(),
        name,
    })
}

/// The PodGroup, and the topologies where it must be within a domain of one.
pub(crate) fn reads(workload: &Workload<'_>, reference: ObjectRef) -> Vec<ObjectRef> {
    let upstream = workload.objects.get(&reference);
    let is_constrained = upstream.is_some_and(|of| keys(of).is_ok_and(|keys| !keys.is_empty()));
    if is_constrained { vec![reference, ObjectRef::Topologies] } else { vec![reference] }
}

/// One group for the pods of a PodGroup of Kubernetes: its `minCount`, or 1 where it is no gang, within one domain of the
/// node label that it names.
pub(crate) fn group(workload: &Workload<'_>, reference: &ObjectRef) -> Result<Desired, Invalid> {
    let Some(upstream) = workload.objects.get(reference) else {
        let ObjectRef::Object { name, .. } = reference else {
            return Err(workload.pod_invalid("no PodGroup"));
        };
        return Err(workload.pod_invalid(format!(
            "`spec.schedulingGroup` names PodGroup `{name}` of `scheduling.k8s.io`, which does not exist"
        )));
    };
    // The labels and annotations of the workload count where the PodGroup, which a controller creates, has none.
    let mut own = OwnerObject::clone(upstream);
    if let Some(top) = workload.owners.last() {
        crate::kind::skip_top::inherit(&mut own.metadata, &top.metadata);
    }
    let own = Arc::new(own);
    let of_group = workload.below(std::slice::from_ref(&own));
    let mut desired = of_group.metadata(Sources::TopOwner, TRAIN);
    if let Some(class) = upstream.text("spec.priorityClassName")?
        && workload.cluster.priority_class_exists(class)
    {
        class.clone_into(&mut desired.priority_class);
    }
    desired.min_member = upstream.int("spec.schedulingPolicy.gang.minCount")?.unwrap_or(1);
    // An annotation of ours is more specific.
    let keys = keys(upstream)?;
    if !keys.is_empty() && desired.topology.required_topology_level.is_empty() {
        let preferred = desired.topology.topology.clone();
        let (topology, level) = level(workload, upstream, &keys, &preferred)?;
        desired.topology = TopologyConstraint {
            topology,
            required_topology_level: level,
            preferred_topology_level: std::mem::take(&mut desired.topology.preferred_topology_level),
        };
    }
    Ok(desired)
}

/// The node labels of whose domains all pods must be in one (KEP-5732).
fn keys(upstream: &OwnerObject) -> Result<Vec<&str>, Invalid> {
    const PATH: &str = "spec.schedulingConstraints.topology";
    let constraints = upstream.list(PATH)?.unwrap_or_default();
    let has_key =
        |constraint: &Value| constraint.get("key").and_then(Value::as_str).is_some_and(|key| !key.is_empty());
    if let Some(index) = constraints.iter().position(|constraint| !has_key(constraint)) {
        return Err(upstream.invalid(format!(
            "`{PATH}[{index}].key` is missing; write a node label, such as `topology.kubernetes.io/zone`"
        )));
    }
    Ok(constraints.iter().filter_map(|constraint| constraint.get("key")?.as_str()).collect())
}

/// The topology that has levels of all these node labels, and the innermost of them: the preferred topology, else the
/// first by name.
fn level(
    workload: &Workload<'_>,
    upstream: &OwnerObject,
    keys: &[&str],
    preferred: &str,
) -> Result<(String, String), Invalid> {
    let mut topologies: Vec<&Arc<OwnerObject>> =
        workload.objects.all(&ObjectRef::Topologies).iter().collect();
    topologies.sort_by_key(|of| (of.metadata.name_str() != preferred, of.metadata.name_str()));
    for topology in topologies {
        let levels = topology.list("spec.levels").ok().flatten().unwrap_or_default();
        let labels: Vec<&str> = levels.iter().filter_map(|level| level.get("nodeLabel")?.as_str()).collect();
        let positions: Option<Vec<usize>> =
            keys.iter().map(|key| labels.iter().position(|label| label == key)).collect();
        let innermost = positions.into_iter().flatten().max();
        if let Some(level) = innermost.and_then(|at| labels.get(at)) {
            return Ok((topology.metadata.name_str().to_owned(), (*level).to_owned()));
        }
    }
    let keys = keys.join("` and `");
    Err(upstream.invalid(format!(
        "`spec.schedulingConstraints.topology` names the node label `{keys}`, and no Topology of `kai.scheduler` has a level \
         with it; create one, or remove the constraint"
    )))
}
