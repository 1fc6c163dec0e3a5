//! Kinds that only wrap another workload: the object below decides, and inherits labels and annotations.

use crate::cluster::ObjectRef;
use crate::error::Invalid;
use crate::objects::OwnerObject;
use crate::table;
use crate::workload::{Desired, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::well_known::label;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn group(workload: &Workload<'_>) -> Result<Desired, Invalid> {
    let Effective { owners, inherited, wrapped } = effective(workload)?;
    let mut below = workload.below(&owners);
    below.inherited = Some(&inherited);
    below.wrapped = Some(wrapped.as_slice()).filter(|all| !all.is_empty());
    let (group, version, kind) = below.top_kind();
    if let Some(own) = workload.options.own_rules.find(group, version, kind) {
        return own.group(&below);
    }
    let rule = table::exact(group, version, kind).map_or(table::DEFAULT, |entry| entry.rule);
    (rule.group)(&below)
}

pub(crate) fn reads(workload: &Workload<'_>) -> Vec<ObjectRef> {
    let Ok(Effective { owners, .. }) = effective(workload) else { return Vec::new() };
    let below = workload.below(&owners);
    let (group, version, kind) = below.top_kind();
    if let Some(own) = workload.options.own_rules.find(group, version, kind) {
        return own.reads(&below);
    }
    table::exact(group, version, kind).map_or_else(Vec::new, |entry| (entry.rule.reads)(&below))
}

/// What is below a wrapping object.
struct Effective {
    /// The owners without the wrapping object, whose settings the topmost of them inherits.
    owners: Vec<Arc<OwnerObject>>,
    /// The settings of the wrapping object.
    inherited: ObjectMeta,
    /// The owners as they are, but for the defaults of the wrapping kind, which the topmost of them has.
    wrapped: Vec<Arc<OwnerObject>>,
}

fn effective(workload: &Workload<'_>) -> Result<Effective, Invalid> {
    let (skipped, below) =
        workload.owners.split_last().ok_or_else(|| workload.pod_invalid("it has no owner"))?;
    let (mut owners, mut wrapped) = (below.to_vec(), below.to_vec());
    if owners.is_empty() {
        owners.push(Arc::new(OwnerObject {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            metadata: workload.pod.metadata.clone(),
            ..OwnerObject::default()
        }));
    }
    let mut inherited = ObjectMeta {
        labels: skipped.metadata.labels.clone(),
        annotations: skipped.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    if let Some(defaults) = workload.defaults.of(workload.top_kind()) {
        let mut labels = BTreeMap::new();
        let class = defaults.priority_name.as_deref();
        if let Some(class) = class.filter(|class| workload.cluster.priority_class_exists(class)) {
            labels.insert(label::PRIORITY_CLASS.to_owned(), class.to_owned());
        }
        if let Some(preemptibility) = defaults.preemptibility.as_deref().filter(|text| !text.is_empty()) {
            labels.insert(label::PREEMPTIBILITY.to_owned(), preemptibility.to_lowercase());
        }
        add(&mut inherited.labels, Some(&labels));
        // What the user wrote on the wrapping object precedes its defaults.
        for (key, value) in &mut labels {
            if let Some(written) = inherited.labels.as_ref().and_then(|all| all.get(key)) {
                value.clone_from(written);
            }
        }
        if let Some(top) = wrapped.last_mut() {
            add(&mut Arc::make_mut(top).metadata.labels, Some(&labels));
        }
    }
    if let Some(top) = owners.last_mut() {
        inherit(&mut Arc::make_mut(top).metadata, &inherited);
    }
    Ok(Effective { owners, inherited, wrapped })
}

/// Adds labels and annotations that are absent.
pub(crate) fn inherit(metadata: &mut ObjectMeta, from: &ObjectMeta) {
    add(&mut metadata.labels, from.labels.as_ref());
    add(&mut metadata.annotations, from.annotations.as_ref());
}

fn add(to: &mut Option<BTreeMap<String, String>>, from: Option<&BTreeMap<String, String>>) {
    let Some(from) = from.filter(|from| !from.is_empty()) else { return };
    let to = to.get_or_insert_default();
    for (key, value) in from {
        to.entry(key.clone()).or_insert_with(|| value.clone());
    }
}
