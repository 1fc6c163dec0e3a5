//! Groups the pods of manifests without a cluster: the same rules as the live grouper, on objects from files.
//!
//! A workload whose pods are among the objects is grouped with these; else its pods are those that its controller would
//! create ([`crate::expand`]). Every priority class is taken to exist, and no pod group to be stored.

use crate::apply;
use crate::cluster::{ClusterView, StoredGroupView};
use crate::defaults::Defaults;
use crate::expand::{self, Expansion, PodSet, Uids};
use crate::objects::{MetaExt as _, OwnerObject, PodSummary};
use crate::options::Options;
use crate::owner_chain::Error;
use crate::plan::{self, Inputs, ReadFor, Source, Wanted};
use crate::table;
use crate::workload::Desired;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_runtime::Key;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The namespace of objects that name none.
const NAMESPACE: &str = "default";

/// What the pods of some objects become.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of the objects.
    pub groups: Vec<PlannedGroup>,
    pub problems: Vec<Remark>,
    /// Objects whose pods only their controller knows, which is one of the problems.
    pub without_pods: Vec<usize>,
    /// What was assumed, and pods that are not grouped.
    pub notes: Vec<Remark>,
}

/// A pod group.
#[derive(Clone, Debug)]
pub struct PlannedGroup {
    /// Index of the object whose pods it has.
    pub object: usize,
    pub desired: Desired,
    /// How many such groups there are: one for each pod of a Deployment.
    pub groups: u32,
    pub members: Vec<Members>,
}

impl PlannedGroup {
    /// The PodGroup as the grouper would create it, with `<uid>` for uids that only an API server gives.
    pub fn object(&self) -> Value {
        let mut object = json!(apply::new_group(&self.desired));
        mask(&mut object);
        object
    }

    /// The number of pods in every subgroup; the empty name is for pods in none.
    pub fn pods(&self) -> BTreeMap<&str, u64> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for member in &self.members {
            let sub_group = member.sub_group.as_deref().unwrap_or_default();
            *counts.entry(sub_group).or_default() += u64::from(member.count);
        }
        counts
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = Uids::masked(text),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => fields.values_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Pods of a group.
#[derive(Clone, Debug)]
pub struct Members {
    pub pod: String,
    pub sub_group: Option<String>,
    pub count: u32,
    pub metadata: ObjectMeta,
    /// The specification of the pods.
    pub spec: Value,
}

/// What is to say about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub object: usize,
    pub text: String,
}

/// Groups the pods of some objects.
pub fn group(objects: &[Value], options: &Options) -> Report {
    let mut report = Report::default();
    let mut uids = Uids::default();
    let read = read(objects, &mut uids, &mut report);
    let sets = pods(&read, &mut uids, &mut report);
    let pods = sets.pods.iter().map(|(_, set)| Arc::new(set.pod.clone())).collect();
    let files = Files { objects: sets.objects, pods };
    let defaults = Defaults::default();
    let inputs = Inputs { options, defaults: &defaults, cluster: &files, is_planned: false };
    for (object, set) in &sets.pods {
        if let Some(reason) = ungrouped(options, &set.pod) {
            report.note(*object, reason);
            continue;
        }
        match plan::plan_offline(&files, inputs, &set.pod) {
            Ok(Some(desired)) => {
                for ignored in desired.ignored.iter().chain(&desired.misspelt) {
                    report.note(*object, ignored.clone());
                }
                report.add(*object, set, desired);
            }
            Ok(None) => report.note(*object, "it asks not to be grouped".to_owned()),
            Err(error) => report.problem(*object, &with_causes(&error)),
        }
    }
    report
}

impl Report {
    fn problem(&mut self, object: usize, text: &str) {
        let remark = Remark { object, text: Uids::masked(text) };
        if !self.problems.contains(&remark) {
            self.problems.push(remark);
        }
    }

    fn note(&mut self, object: usize, text: String) {
        let remark = Remark { object, text };
        if !self.notes.contains(&remark) {
            self.notes.push(remark);
        }
    }

    fn add(&mut self, object: usize, set: &PodSet, desired: Desired) {
        let is_alone = desired.owner.uid == set.pod.metadata.uid_str();
        let members = Members {
            pod: set.pod.metadata.name_str().to_owned(),
            sub_group: desired.sub_group.clone(),
            count: if is_alone { 1 } else { set.count },
            metadata: set.pod.metadata.clone(),
            spec: set.spec.clone(),
        };
        let same = |group: &&mut PlannedGroup| {
            group.desired.name == desired.name && group.desired.namespace == desired.namespace
        };
        // Groups of the same workload follow each other.
        let Some(group) = self.groups.iter_mut().rev().find(same) else {
            let groups = if is_alone { set.count } else { 1 };
            self.groups.push(PlannedGroup { object, desired, groups, members: vec![members] });
            return;
        };
        group.desired = desired;
        match group.members.last_mut() {
            Some(last) if last.pod == members.pod && last.sub_group == members.sub_group => {
                last.count = last.count.saturating_add(members.count);
            }
            _ => group.members.push(members),
        }
    }
}

/// Why a pod is not grouped.
fn ungrouped(options: &Options, pod: &PodSummary) -> Option<String> {
    let scheduler = pod.spec.scheduler_name.as_deref().unwrap_or_default();
    if scheduler != options.scheduler_name {
        let name = &options.scheduler_name;
        return Some(format!(
            "its pods are not grouped, since their `schedulerName` is `{scheduler}`; hint: set `schedulerName: {name}` in \
             the pod template"
        ));
    }
    if plan::has_group_without_owners(pod, |_| true) {
        return Some("the pod names its pod group itself".to_owned());
    }
    let is_ours = plan::is_responsible(options, pod, None);
    (!is_ours).then(|| "its pods are not grouped: they have ended, or ask not to be grouped".to_owned())
}

/// The objects that were read, with their index; pods are owners, too.
type Read = Vec<(usize, Arc<OwnerObject>)>;

/// As with `kubectl apply`, the last of several objects with the same name counts; pods may share a name whose random part
/// is not known.
fn read(objects: &[Value], uids: &mut Uids, report: &mut Report) -> Read {
    let mut read: Read = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        match OwnerObject::deserialize(object) {
            Ok(mut object) if !object.kind.is_empty() => {
                let metadata = &mut object.metadata;
                if metadata.uid_str().is_empty() {
                    metadata.uid = Some(uids.make());
                }
                if metadata.namespace_str().is_empty() {
                    metadata.namespace = Some(NAMESPACE.to_owned());
                }
                if metadata.name_str().is_empty() {
                    let start = metadata.generate_name.clone().unwrap_or_else(|| "unnamed-".to_owned());
                    metadata.name = Some(format!("{start}xxxxx"));
                }
                let is_same = |(_, known): &(usize, Arc<OwnerObject>)| {
                    object.kind != "Pod"
                        && (&known.api_version, &known.kind) == (&object.api_version, &object.kind)
                        && known.metadata.name == object.metadata.name
                        && known.metadata.namespace == object.metadata.namespace
                };
                read.retain(|known| !is_same(known));
                read.push((index, Arc::new(object)));
            }
            Ok(_) => report.note(index, "it has no `kind` and is not read".to_owned()),
            Err(error) => report.problem(
                index,
                &format!("`metadata`: {error}; hint: values of labels and annotations are strings"),
            ),
        }
    }
    read
}

/// All pods with the index of the object that they belong to, and the objects that own them.
struct Sets {
    pods: Vec<(usize, PodSet)>,
    objects: Vec<Arc<OwnerObject>>,
}

fn pods(read: &Read, uids: &mut Uids, report: &mut Report) -> Sets {
    let others: Vec<Arc<OwnerObject>> = read.iter().map(|(_, object)| Arc::clone(object)).collect();
    let with_pods = owners_of_pods(&others);
    let mut sets = Sets { pods: Vec::new(), objects: Vec::new() };
    for (index, object) in read {
        let is_pod = object.kind == "Pod" && object.api_version == "v1";
        let has_pods = is_pod || with_pods.contains(object.metadata.uid_str());
        let is_topmost = object.metadata.owners().is_empty();
        let expanded = if has_pods || !is_topmost { None } else { expand::expand(object, &others, uids) };
        match expanded {
            Some(Ok(Expansion { top, between, pods, notes })) => {
                sets.objects.push(Arc::new(top));
                sets.objects.extend(between.into_iter().map(Arc::new));
                sets.pods.extend(pods.into_iter().map(|set| (*index, set)));
                for note in notes {
                    report.note(*index, note);
                }
                continue;
            }
            Some(Err(invalid)) => report.problem(*index, &invalid.problem),
            None if is_pod => match PodSummary::deserialize(&object.to_json()) {
                Ok(pod) => sets.pods.push((
                    *index,
                    PodSet { pod, spec: object.data.get("spec").cloned().unwrap_or_default(), count: 1 },
                )),
                Err(error) => report.problem(*index, &error.to_string()),
            },
            None if !has_pods && is_topmost && table::is_known(object) => {
                report.without_pods.push(*index);
                report.problem(*index, without_pods(object));
            }
            None => {}
        }
        sets.objects.push(Arc::clone(object));
    }
    sets
}

/// Why a workload has no pods, and what to add.
fn without_pods(object: &OwnerObject) -> &'static str {
    if object.kind == "DynamoGraphDeployment" {
        return "its pods are not known: the settings of Dynamo's operator decide whether Grove, LeaderWorkerSets or Deployments \
                create them, and with which containers; hint: add the PodCliqueSet that it creates, or one of its pods, \
                with the `ownerReferences` that it has in the cluster";
    }
    "its pods are not known; hint: add one of its pods, with the `ownerReferences` that it has in the cluster"
}

/// Uids of the objects that own a pod of the files, directly or not.
fn owners_of_pods(objects: &[Arc<OwnerObject>]) -> BTreeSet<String> {
    let mut owners = BTreeSet::new();
    let mut next: Vec<&Arc<OwnerObject>> = objects.iter().filter(|object| object.kind == "Pod").collect();
    while let Some(object) = next.pop() {
        for reference in object.metadata.owners() {
            let wanted = Wanted {
                namespace: object.metadata.namespace_str(),
                api_version: &reference.api_version,
                kind: &reference.kind,
                name: &reference.name,
                uid: None,
            };
            if let Some(owner) = find(objects, &wanted)
                && owners.insert(owner.metadata.uid_str().to_owned())
            {
                next.push(owner);
            }
        }
    }
    owners
}

fn find<'a>(objects: &'a [Arc<OwnerObject>], wanted: &Wanted<'_>) -> Option<&'a Arc<OwnerObject>> {
    let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    objects.iter().find(|object| {
        object.kind == wanted.kind
            && object.metadata.name_str() == wanted.name
            && group(&object.api_version) == group(wanted.api_version)
            && [wanted.namespace, NAMESPACE].contains(&object.metadata.namespace_str())
    })
}

/// The objects of the files, as the API server would serve them.
struct Files {
    objects: Vec<Arc<OwnerObject>>,
    pods: Vec<Arc<PodSummary>>,
}

impl Source for Files {
    async fn read(&self, wanted: &Wanted<'_>, _: ReadFor<'_>) -> Result<Arc<OwnerObject>, Error> {
        // A reference in a file may have the uid of a cluster, which the object in the file does not have.
        find(&self.objects, wanted)
            .cloned()
            .ok_or_else(|| Error::Gone { kind: wanted.kind.to_owned(), name: wanted.name.to_owned() })
    }

    async fn kartas(&self, group: &str, version: &str, kind: &str) -> Result<Vec<Arc<OwnerObject>>, Error> {
        let wanted =
            [("run.ai/karta-group", group), ("run.ai/karta-version", version), ("run.ai/karta-kind", kind)];
        let is_wanted = |object: &&Arc<OwnerObject>| {
            object.kind == "Karta"
                && wanted.iter().all(|(key, value)| object.metadata.label(key) == Some(*value))
        };
        Ok(self.objects.iter().filter(is_wanted).cloned().collect())
    }

    async fn topologies(&self) -> Result<Vec<Arc<OwnerObject>>, Error> {
        Ok(self.objects.iter().filter(|object| object.kind == "Topology").cloned().collect())
    }
}

impl ClusterView for Files {
    fn priority_class_exists(&self, _: &str) -> bool {
        true
    }

    fn group(&self, _: &Key) -> Option<StoredGroupView> {
        None
    }

    fn groups_named(&self, _: &str, _: &str) -> Vec<StoredGroupView> {
        Vec::new()
    }

    fn pods_labelled(&self, namespace: &str, key: &str, value: &str) -> Vec<Arc<PodSummary>> {
        let is_ours = |pod: &&Arc<PodSummary>| {
            pod.metadata.namespace_str() == namespace && pod.metadata.label(key) == Some(value)
        };
        self.pods.iter().filter(is_ours).cloned().collect()
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
