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
    if workload.options.knative_gang_schedule && is_gang(workload, &revision, &desired.name)? {
        desired.min_member = min_scale(&revision)?;
    } else {
        INFERENCE.clone_into(&mut desired.priority_class);
        workload.make_per_pod(&mut desired);
    }
    Ok(desired)
}

/// The minimum scale of a revision, 1 where it has none or none that is a number, as in KAI.
fn min_scale(revision: &OwnerObject) -> Result<i32, Invalid> {
    let text = revision.metadata.annotation(annotation::KNATIVE_MIN_SCALE);
    let Some(scale) = text.and_then(|text| text.parse::<i64>().ok()) else { return Ok(1) };
    i32::try_from(scale).map_err(|_| {
        let name = annotation::KNATIVE_MIN_SCALE;
        revision.invalid(format!("annotation `{name}` is {scale}, which is beyond 32 bits"))
    })
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
    if groups.is_empty() || groups.values().any(|pods| *pods > 1) {
        return Ok(true);
    }
    if groups.len() > 1 {
        // Pods that move to the gang one by one must not be taken for pods with a group each.
        let is_of_pod = |group: &String| {
            let stored = workload.cluster.group(&Key::new(namespace, group));
            stored.is_some_and(|stored| stored.owner_kind.as_deref() == Some("Pod"))
        };
        let mut others = groups.keys().filter(|group| *group != gang);
        return Ok(groups.contains_key(gang) && !others.any(is_of_pod));
    }
    let Some(only) = groups.into_keys().next() else { return Ok(true) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::cluster::{ClusterView, ReadObjects, StoredGroupView};
    use crate::defaults::Defaults;
    use crate::objects::PodSummary;
    use serde_json::{Value, json};

    /// Pods of one revision with their groups, and the kinds that own the stored groups.
    struct Cluster {
        pods: &'static [&'static str],
        groups: &'static [(&'static str, &'static str)],
    }

    impl ClusterView for Cluster {
        fn priority_class_exists(&self, _: &str) -> bool {
            true
        }

        fn group(&self, key: &Key) -> Option<StoredGroupView> {
            let (_, owner) = self.groups.iter().find(|(name, _)| *name == key.name)?;
            Some(StoredGroupView { owner_kind: Some((*owner).to_owned()), ..StoredGroupView::default() })
        }

        fn groups_named(&self, _: &str, _: &str) -> Vec<StoredGroupView> {
            Vec::new()
        }

        fn pods_labelled(&self, _: &str, _: &str, _: &str) -> Vec<Arc<PodSummary>> {
            self.pods.iter().map(|group| Arc::new(pod(&json!({"pod-group-name": group})))).collect()
        }
    }

    fn pod(annotations: &Value) -> PodSummary {
        let labels = json!({label::KNATIVE_REVISION: "r", "priorityClassName": "high"});
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "u1", "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    #[test]
    fn min_scale_beyond_32_bits_is_refused_and_other_text_ignored() {
        let of = |text: &str| {
            let metadata = json!({"name": "r", "annotations": {"autoscaling.knative.dev/min-scale": text}});
            min_scale(&serde_json::from_value(json!({"kind": "Revision", "metadata": metadata})).unwrap())
        };
        for (text, scale) in [("3", 3), ("+3", 3), ("0", 0), ("-1", -1), ("", 1), ("3.0", 1), ("many", 1)] {
            assert_eq!(of(text).unwrap(), scale, "{text}");
        }
        assert!(of("3000000000").unwrap_err().to_string().contains("beyond 32 bits"));
    }

    #[test]
    fn pods_with_a_group_each_stay_apart_with_the_class_of_kinds_that_serve() {
        const GANG: &str = "pg-r-u2";
        let pod = pod(&json!({}));
        let metadata = json!({"name": "r", "namespace": "ns", "uid": "u2"});
        let revision: OwnerObject = serde_json::from_value(
            json!({"apiVersion": "serving.knative.dev/v1", "kind": "Revision", "metadata": metadata}),
        )
        .unwrap();
        let of = |pods, groups| {
            let cluster = Cluster { pods, groups };
            let (options, defaults) = (Options::default(), Defaults::default());
            let workload = Workload {
                pod: &pod,
                owners: &[],
                options: &options,
                defaults: &defaults,
                cluster: &cluster,
                objects: &ReadObjects::default(),
                inherited: None,
                wrapped: None,
            };
            let reference = revision_of(&workload).unwrap();
            let objects = ReadObjects(vec![(reference, vec![Arc::new(revision.clone())])]);
            let desired = group(&Workload { objects: &objects, ..workload }).unwrap();
            (desired.name, desired.priority_class)
        };
        let is_gang = (GANG.to_owned(), "high".to_owned());
        let is_alone = ("pg-p-u1".to_owned(), INFERENCE.to_owned());
        assert_eq!(of(&[], &[]), is_gang);
        assert_eq!(of(&["a", "b"], &[]), is_alone);
        assert_eq!(of(&["a", "a", "b"], &[]), is_gang);
        assert_eq!(of(&["a", GANG], &[("a", "Revision"), (GANG, "Revision")]), is_gang, "on the move");
        assert_eq!(of(&["a", GANG], &[("a", "Pod"), (GANG, "Revision")]), is_alone);
        assert_eq!(of(&["a"], &[("a", "Pod")]), is_alone);
    }
}
