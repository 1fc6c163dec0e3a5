//! Turns manifests into the objects that a cluster would have: pod groups and pods of workloads, and other objects as they
//! are.

use crate::documents::Document;
use anyhow::{Context as _, Result, bail};
use kai_api::well_known::{annotation, label};
use kai_cache::object::{
    ConfigMap, Node, PersistentVolumeClaim, Pod, PodGroup, PriorityClass, Queue, Topology,
};
use kai_cache::{Object, Settings};
use kai_engine::input::Key;
use kai_object as object;
use kai_podgrouper::Options;
use kai_podgrouper::expand::Uids;
use kai_podgrouper::offline::{self, Members, PlannedGroup};
use kai_view::ClusterView;
use kai_whatif::Change;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The random end of the name of a pod that is not created.
const RANDOM: &str = "-xxxxx";
/// Kinds without pods that workloads refer to.
const REFERENCED: [&str; 5] =
    ["Karta", "TrainingRuntime", "ClusterTrainingRuntime", "WorkflowTemplate", "ClusterWorkflowTemplate"];
/// Maximum pods of all manifests.
const PODS_MAX: u32 = 100_000;

#[derive(Debug, Default)]
pub(super) struct Submitted {
    pub(super) changes: Vec<Change>,
    /// The pod groups, in the order of the manifests.
    pub(super) groups: Vec<Key>,
    pub(super) notes: Vec<String>,
}

pub(super) fn read(manifests: &[Document], namespace: &str, view: &ClusterView) -> Result<Submitted> {
    let mut submitted = Submitted::default();
    let mut objects = Vec::new();
    for manifest in manifests {
        let mut value = manifest.object.clone();
        if object::namespace(&value).is_empty() {
            object::set(&mut value, &["metadata", "namespace"], namespace);
        }
        if let Some(object) = plain_object(manifest, &value)? {
            if let Object::PodGroup(group) = &object {
                submitted.groups.push(kai_cache::Stored::key(&**group));
            }
            submitted.changes.push(Change::Put(Box::new(object)));
        }
        objects.push(value);
    }
    let settings = view.store.settings();
    let report = offline::group(&objects, &options(settings));
    let place = |at: usize| {
        manifests.get(at).map_or_else(String::new, |of| format!("{}:{}: {}", of.file, of.line, of.subject()))
    };
    if let Some(problem) = report.problems.first() {
        bail!("{}: {}", place(problem.object), problem.text);
    }
    submitted.notes.extend(report.notes.iter().map(|note| format!("{}: {}", place(note.object), note.text)));
    let pods = report.groups.iter().map(|group| {
        group.members.iter().map(|of| of.count).fold(0, u32::saturating_add).saturating_mul(group.groups)
    });
    if pods.fold(0, u32::saturating_add) > PODS_MAX {
        bail!(
            "the manifests have more than {PODS_MAX} pods, which are not planned; hint: lower their replicas"
        );
    }
    for group in &report.groups {
        for number in 0..group.groups {
            submitted.add(group, number, view)?;
        }
    }
    // An object that is not planned must not seem to be.
    let is_planned = |at: usize| {
        report.groups.iter().map(|group| group.object).any(|of| of == at)
            || report.notes.iter().any(|note| note.object == at)
    };
    let unknown: Vec<usize> = manifests
        .iter()
        .enumerate()
        .filter(|(at, manifest)| is_custom(manifest) && !is_planned(*at))
        .map(|(at, _)| at)
        .collect();
    if !manifests.is_empty() && submitted.changes.is_empty() {
        let scheduler = &settings.scheduler_name;
        match unknown.first() {
            Some(first) => bail!(
                "{}: which pods a {} has is not known, so nothing can be planned; hint: add one of its pods with the \
                 `ownerReferences` that it has in the cluster, or its PodGroup and pods",
                place(*first),
                manifests.get(*first).map_or("object", Document::kind)
            ),
            None => bail!(
                "the manifests have neither workloads of `{scheduler}` nor objects that it reads; hint: workloads have \
                 `schedulerName: {scheduler}` in their pod templates"
            ),
        }
    }
    let left_out = |at: usize| format!("{}: its kind is not known, and it is left out", place(at));
    submitted.notes.extend(unknown.into_iter().map(left_out));
    Ok(submitted)
}

/// The options of the pod grouper, as far as a scheduler knows them.
fn options(settings: &Settings) -> Options {
    let mut options = Options { scheduler_name: settings.scheduler_name.clone(), ..Options::default() };
    // A snapshot need not have them.
    for (key, of) in [
        (&mut options.queue_label_key, &settings.queue_label_key),
        (&mut options.node_pool_label_key, &settings.node_pool_key),
    ] {
        if !of.is_empty() {
            key.clone_from(of);
        }
    }
    options
}

impl Submitted {
    /// Adds one pod group with its pods.
    fn add(&mut self, planned: &PlannedGroup, number: u32, view: &ClusterView) -> Result<()> {
        let mut group = planned.object();
        let mut name = Uids::masked(&planned.desired.name);
        if planned.groups > 1 {
            name = format!("{name}-{number}");
        }
        object::set(&mut group, &["metadata", "name"], name.clone());
        object::set(&mut group, &["metadata", "uid"], name.clone());
        object::set(&mut group, &["metadata", "creationTimestamp"], view.now.to_string());
        let group: PodGroup = serde_json::from_value(group).context("a planned pod group is malformed")?;
        self.groups.push(kai_cache::Stored::key(&group));
        self.changes.push(Change::Put(Box::new(group.into())));
        let mut names = BTreeSet::new();
        for members in &planned.members {
            for index in 0..members.count {
                let stem = members.pod.strip_suffix(RANDOM).unwrap_or(&members.pod);
                let number = index.max(number);
                let mut pod_name = if members.count > 1 || planned.groups > 1 {
                    format!("{stem}-{number}")
                } else {
                    stem.to_owned()
                };
                while !names.insert(pod_name.clone()) {
                    pod_name.push('x');
                }
                let pod = pod(members, &pod_name, &name, view)?;
                self.changes.push(Change::Put(Box::new(pod.into())));
            }
        }
        Ok(())
    }
}

fn pod(members: &Members, name: &str, group: &str, view: &ClusterView) -> Result<Pod> {
    let mut pod = json!({"metadata": members.metadata, "spec": members.spec, "status": {"phase": "Pending"}});
    object::set(&mut pod, &["metadata", "name"], name);
    object::set(&mut pod, &["metadata", "uid"], format!("{group}/{name}"));
    object::set(&mut pod, &["metadata", "creationTimestamp"], view.now.to_string());
    let metadata = &mut pod["metadata"];
    for (field, key, value) in [
        ("annotations", annotation::POD_GROUP, Some(group)),
        ("labels", label::SUBGROUP, members.sub_group.as_deref()),
    ] {
        let Some(value) = value else { continue };
        if !metadata[field].is_object() {
            metadata[field] = json!({});
        }
        metadata[field][key] = json!(value);
    }
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            default_requests(container);
        }
    }
    serde_json::from_value(pod).with_context(|| format!("the pod template of `{name}` is malformed"))
}

/// As the API server does, a limit is the request where there is none.
fn default_requests(container: &mut Value) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    let Some(requests) = requests.as_object_mut() else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Whether an object is of a custom resource that the scheduler does not read.
fn is_custom(manifest: &Document) -> bool {
    let api_version = object::str_at(&manifest.object, "/apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_ours = ["scheduling.run.ai", "kai.scheduler"].contains(&group);
    group.contains('.') && !group.ends_with(".k8s.io") && !is_ours && !REFERENCED.contains(&manifest.kind())
}

/// An object that the scheduler reads as it is; none for workloads and other kinds.
fn plain_object(manifest: &Document, value: &Value) -> Result<Option<Object>> {
    fn decode<T: DeserializeOwned + Into<Object>>(value: &Value) -> serde_json::Result<Object> {
        serde_json::from_value::<T>(value.clone()).map(Into::into)
    }
    let mut cluster_scoped = value.clone();
    if let Some(metadata) = cluster_scoped.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("namespace");
    }
    let decoded = match manifest.kind() {
        "Queue" => decode::<Queue>(&cluster_scoped),
        "PriorityClass" => decode::<PriorityClass>(&cluster_scoped),
        "Topology" => decode::<Topology>(&cluster_scoped),
        "Node" => decode::<Node>(&cluster_scoped),
        "PodGroup" => decode::<PodGroup>(value),
        "ConfigMap" => decode::<ConfigMap>(value),
        "PersistentVolumeClaim" => decode::<PersistentVolumeClaim>(value),
        _ => return Ok(None),
    };
    let place = || format!("{}:{}: {}", manifest.file, manifest.line, manifest.subject());
    decoded.map(Some).with_context(place)
}
