//! Knative Services: a gang for every Revision, with its minimum scale; or a group for every pod.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, INFERENCE, Sources, Workload};
use kai_api::pod_group::TopologyConstraint;
use kai_api::well_known::{annotation, label};
use kai_runtime::Key;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let reference = revision_of(workload)
        .ok_or_else(|| workload.pod_invalid(format!("label `{}` is missing", label::KNATIVE_REVISION)))?;
    let Some(revision) = workload.objects.get(&reference) else {
        let name = workload.pod.metadata.label(label::KNATIVE_REVISION).unwrap_or_default();
        return Err(workload.pod_invalid(format!("its Revision `{name}` does not exist")));
    };
    let revision = Arc::new(workload.with_inherited(revision));
    let of_revision = workload.below(std::slice::from_ref(&revision));
    let mut desired = of_revision.metadata(Sources::TopOwner, INFERENCE);
    desired.preemptibility = None;
    desired.preemption_delay = None;
    desired.staleness_grace_period = None;
    desired.topology = TopologyConstraint::default();
    if !workload.options.knative_gang_schedule {
        INFERENCE.clone_into(&mut desired.priority_class);
    }
    if workload.options.knative_gang_schedule && is_gang(workload, &revision, &desired.name)? {
        let scale = revision.metadata.annotation(annotation::KNATIVE_MIN_SCALE);
        desired.min_member = scale.and_then(|text| text.parse().ok()).unwrap_or(1);
    } else {
        workload.make_per_pod(&mut desired);
    }
    Ok(desired)
}

pub(crate) fn reads(workload: &Workload<'_>) -> Vec<ObjectRef> {
    revision_of(workload).into_iter().collect()
}

fn revision_of(workload: &Workload<'_>) -> Option<ObjectRef> {
    let name = workload.pod.metadata.label(label::KNATIVE_REVISION)?;
    Some(ObjectRef::Object {
        api_version: "serving.knative.dev/v1".to_owned(),
        kind: "Revision".to_owned(),
        name: name.to_owned(),
    })
}

/// Whether the pods of the revision are one gang: not if older versions gave each a group of its own.
fn is_gang(workload: &Workload<'_>, revision: &OwnerObject, gang: &str) -> Result<bool, Invalid> {
    let namespace = workload.pod.metadata.namespace_str();
    let name = revision.metadata.name_str();
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for pod in workload.cluster.pods_labelled(namespace, label::KNATIVE_REVISION, name) {
        if let Some(group) = pod.metadata.annotation(annotation::POD_GROUP) {
            *groups.entry(group.to_owned()).or_default() += 1;
        }
    }
    // Pods that move to the gang one by one must not be taken for pods with a group each.
    if groups.is_empty() || groups.contains_key(gang) || groups.values().any(|pods| *pods > 1) {
        return Ok(true);
    }
    let mut names = groups.into_keys();
    let (Some(only), None) = (names.next(), names.next()) else { return Ok(false) };
    let Some(group) = workload.cluster.group(&Key::new(namespace, &only)) else { return Ok(true) };
    match group.owner_kind.as_deref() {
        Some("Revision") => Ok(true),
        Some("Pod") => Ok(false),
        owner => Err(workload.pod_invalid(format!(
            "pods of Revision `{name}` are in pod group `{only}`, whose owner is {}, neither a Revision nor a Pod",
            owner.map_or("missing".to_owned(), |kind| format!("a {kind}"))
        ))),
    }
}
