//! Pods that name a PodGroup of the Kubernetes API `scheduling.k8s.io` (KEP-4671): it is their gang, whatever owns them.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::objects::{MetaExt, OwnerObject};
use crate::workload::{Desired, Sources, TRAIN, Workload};
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

/// One group for the pods of a PodGroup of Kubernetes: its `minCount`, or 1 where it is no gang.
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
    Ok(desired)
}
