//! The objects of a case, which the grouper reads and writes.

use super::case::{Action, Case, NAMESPACE, Step, Target, uid};
use anyhow::{Context, Result};
use kai_api::PodGroup;
use kai_podgrouper::apply;
use kai_podgrouper::cluster::{ClusterView, StoredGroupView};
use kai_podgrouper::defaults::Defaults;
use kai_podgrouper::objects::{MetaExt as _, OwnerObject, PodSummary};
use kai_podgrouper::owner_chain::Error;
use kai_podgrouper::plan::{self, Inputs, ReadFor, Source, Wanted};
use kai_podgrouper::table::{FURTHER, TABLE};
use kai_runtime::Key;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The priority classes of every case.
const CLASSES: [&str; 6] = ["train", "build-preemptible", "build", "inference", "gold", "bronze"];
/// Attempts at one pod in one step; more are a loop.
const ATTEMPTS_MAX: usize = 8;

/// Group, kind and name.
type Id = (String, String, String);

pub(super) struct World<'a> {
    case: &'a Case,
    objects: BTreeMap<Id, Value>,
    groups: BTreeMap<String, PodGroup>,
    pods: BTreeMap<String, Value>,
    /// How often an object of a kind and name was created.
    creations: BTreeMap<String, usize>,
    defaults: Defaults,
    pub(super) failed: BTreeMap<String, String>,
    pub(super) calls: BTreeMap<String, usize>,
}

impl<'a> World<'a> {
    pub(super) fn new(case: &'a Case) -> Result<Self> {
        let map = case.options.default_priorities.as_ref().and_then(|key| {
            case.environment.cluster_objects.iter().find(|object| {
                object["kind"] == "ConfigMap"
                    && object["metadata"]["name"] == key.name
                    && object["metadata"]["namespace"] == key.namespace
            })
        });
        let map = map.map(|map| serde_json::from_value(map.clone())).transpose()?;
        Ok(Self {
            case,
            objects: BTreeMap::new(),
            groups: BTreeMap::new(),
            pods: BTreeMap::new(),
            creations: BTreeMap::new(),
            defaults: Defaults::read(map.as_ref()),
            failed: BTreeMap::new(),
            calls: BTreeMap::new(),
        })
    }

    pub(super) fn pod(&self, name: &str) -> Option<&Value> {
        self.pods.get(name)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &PodGroup> {
        self.groups.values()
    }

    /// Performs the actions of a step, other objects before pods, and groups the pods until nothing is left to do.
    pub(super) fn play(&mut self, step: &Step) -> Result<()> {
        let mut touched: Vec<String> = Vec::new();
        let (of_pods, others): (Vec<&Action>, Vec<&Action>) =
            step.actions.iter().partition(|action| is_of_pod(action));
        for action in others {
            self.perform(action)?;
        }
        for action in of_pods {
            touched.extend(self.perform(action)?);
        }
        let retried = self.failed.keys().filter(|name| !touched.contains(name)).cloned().collect::<Vec<_>>();
        let mut queue: VecDeque<String> = touched.into_iter().chain(retried).collect();
        let mut attempts: BTreeMap<String, usize> = BTreeMap::new();
        let mut last_failed = BTreeSet::new();
        while let Some(name) = queue.pop_front() {
            let count = attempts.entry(name.clone()).or_default();
            *count += 1;
            anyhow::ensure!(*count <= ATTEMPTS_MAX, "pod `{name}` is grouped again and again");
            if self.reconcile(&name)? {
                queue.push_back(name);
            }
            if queue.is_empty() {
                // What failed is tried again, as long as that helps.
                let failed: BTreeSet<String> = self.failed.keys().cloned().collect();
                if !failed.is_empty() && failed != last_failed {
                    queue.extend(failed.iter().cloned());
                    last_failed = failed;
                }
            }
        }
        Ok(())
    }

    /// Performs an action; returns the pod that it is about.
    fn perform(&mut self, action: &Action) -> Result<Option<String>> {
        match action {
            Action::Create { create } => self.create(create.clone()),
            Action::Patch { target, patch } => {
                if target.kind == "PodGroup" && target.api_version.starts_with("scheduling.run.ai/") {
                    let group = self.groups.get_mut(&target.name).context("no such group")?;
                    let mut value = json!(group);
                    merge(&mut value, patch);
                    *group = serde_json::from_value(value)?;
                    return Ok(None);
                }
                let object = self.object_mut(target)?;
                merge(object, patch);
                Ok((target.kind == "Pod").then(|| target.name.clone()))
            }
            Action::Delete { delete } => Ok(self.delete(delete)),
            Action::Bind { bind } => {
                let pod = self.pods.get_mut(&bind.pod).context("no such pod")?;
                pod["spec"]["nodeName"] = json!(bind.node);
                Ok(Some(bind.pod.clone()))
            }
        }
    }

    fn object_mut(&mut self, target: &Target) -> Result<&mut Value> {
        let found = if target.kind == "Pod" {
            self.pods.get_mut(&target.name)
        } else {
            self.objects.get_mut(&id(&target.api_version, &target.kind, &target.name))
        };
        found.with_context(|| format!("there is no {} `{}`", target.kind, target.name))
    }

    fn create(&mut self, mut object: Value) -> Result<Option<String>> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let name = object["metadata"]["name"].as_str().context("an object has no name")?.to_owned();
        let named = format!("{kind}/{name}");
        let count = self.creations.entry(named.clone()).or_default();
        *count += 1;
        let token = if *count == 1 { named.clone() } else { format!("{named}#{count}") };
        // An object that nothing refers to has a number beyond those of the case.
        let other = || uid(self.case.uids.len() + self.creations.values().sum::<usize>());
        let uid = self.case.uids.get(&token).cloned().unwrap_or_else(other);
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["namespace"] = json!(NAMESPACE);
        if let Some(stored) = self.case.stored.get(&named) {
            for field in ["labels", "annotations"] {
                if let Some(stored) = stored.get(field) {
                    object["metadata"][field] = stored.clone();
                }
            }
        }
        match kind.as_str() {
            "Pod" => {
                self.pods.insert(name.clone(), object);
                return Ok(Some(name));
            }
            "PodGroup" if api_version.starts_with("scheduling.run.ai/") => {
                self.groups.insert(name, serde_json::from_value(object)?);
            }
            _ => {
                self.objects.insert(id(&api_version, &kind, &name), object);
            }
        }
        Ok(None)
    }

    fn delete(&mut self, target: &Target) -> Option<String> {
        if target.kind == "Pod" {
            let pod = self.pods.get_mut(&target.name)?;
            if pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty()) {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            } else {
                self.pods.remove(&target.name);
            }
            return Some(target.name.clone());
        }
        if target.kind == "PodGroup" && target.api_version.starts_with("scheduling.run.ai/") {
            self.groups.remove(&target.name);
        } else {
            self.objects.remove(&id(&target.api_version, &target.kind, &target.name));
        }
        None
    }

    /// Groups a pod; returns whether it was changed.
    fn reconcile(&mut self, name: &str) -> Result<bool> {
        self.failed.remove(name);
        let Some(stored) = self.pods.get(name) else { return Ok(false) };
        let pod: PodSummary = serde_json::from_value(stored.clone())?;
        let labels = Some(&self.case.environment.namespace_labels);
        let is_done = plan::has_group_without_owners(&pod, |group| self.groups.contains_key(group));
        if is_done || !plan::is_responsible(&self.case.options, &pod, labels) {
            return Ok(false);
        }
        let inputs = Inputs {
            options: &self.case.options,
            defaults: &self.defaults,
            cluster: self,
            is_planned: false,
        };
        let desired = match plan::plan_offline(self, inputs, &pod) {
            Ok(Some(desired)) => desired,
            Ok(None) => return Ok(false),
            Err(_) if plan::is_leaving_launcher(&pod) => return Ok(false),
            Err(error) => {
                self.failed.insert(name.to_owned(), error.to_string());
                return Ok(false);
            }
        };
        if plan::is_leaving_launcher(&pod) && !self.groups.contains_key(&desired.name) {
            return Ok(false);
        }
        let written = match self.groups.get(&desired.name) {
            None => Some(("create podgroups", apply::new_group(&desired))),
            Some(known) => {
                apply::updated(known, &desired, &self.case.options).map(|new| ("update podgroups", new))
            }
        };
        if let Some((call, group)) = written {
            *self.calls.entry(call.to_owned()).or_default() += 1;
            self.groups.insert(desired.name.clone(), group);
        }
        let Some(patch) = apply::assignment(&pod, &desired) else { return Ok(false) };
        *self.calls.entry("patch pods".to_owned()).or_default() += 1;
        let stored = self.pods.get_mut(name).context("the pod is gone")?;
        merge(stored, &patch);
        Ok(true)
    }

    /// Whether KAI's own role lets the grouper read a kind.
    fn may_read(&self, group: &str, kind: &str) -> bool {
        self.case.environment.rights.is_none() || role_reads(group, kind)
    }
}

/// KAI's ClusterRole has every kind of its table but the graphs of Dynamo.
pub(super) fn role_reads(group: &str, kind: &str) -> bool {
    let is_listed = TABLE.iter().any(|of| of.group == group && of.kind == kind)
        || FURTHER.iter().any(|of| of.group == group && of.kind == kind);
    (is_listed && kind != "DynamoGraphDeployment")
        || (group.is_empty() && ["ConfigMap", "Namespace"].contains(&kind))
}

/// Applies a JSON merge patch (RFC 7386).
fn merge(value: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, patch) in fields {
        match value.as_object_mut() {
            Some(object) if patch.is_null() => drop(object.remove(name)),
            _ => merge(&mut value[name], patch),
        }
    }
}

fn is_of_pod(action: &Action) -> bool {
    match action {
        Action::Create { create } => create["kind"] == "Pod",
        Action::Patch { target, .. } | Action::Delete { delete: target } => target.kind == "Pod",
        Action::Bind { .. } => true,
    }
}

fn id(api_version: &str, kind: &str, name: &str) -> Id {
    let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), kind.to_owned(), name.to_owned())
}

impl Source for World<'_> {
    async fn read(&self, wanted: &Wanted<'_>, _: ReadFor<'_>) -> Result<Arc<OwnerObject>, Error> {
        let Wanted { api_version, kind, name, uid, .. } = *wanted;
        let (group, kind_text, name_text) = id(api_version, kind, name);
        if !self.may_read(&group, kind) {
            let resource = format!("{kind}.{group}");
            let api_version = api_version.to_owned();
            return Err(Error::Forbidden { kind: kind_text, name: name_text, api_version, resource });
        }
        let found =
            if kind == "Pod" { self.pods.get(name) } else { self.objects.get(&id(api_version, kind, name)) };
        let Some(found) = found else { return Err(Error::Gone { kind: kind_text, name: name_text }) };
        let mut found = found.clone();
        found["apiVersion"] = json!(api_version);
        let read: Result<OwnerObject, _> = serde_json::from_value(found);
        let read = read.map_err(|source| Error::Invalid {
            kind: kind_text.clone(),
            name: name_text.clone(),
            source,
        })?;
        if uid.is_some_and(|uid| read.metadata.uid_str() != uid) {
            return Err(Error::Replaced { kind: kind_text, name: name_text });
        }
        Ok(Arc::new(read))
    }

    async fn kartas(&self, group: &str, version: &str, kind: &str) -> Result<Vec<Arc<OwnerObject>>, Error> {
        if !self.case.environment.karta_definition {
            return Ok(Vec::new());
        }
        let wanted =
            [("run.ai/karta-group", group), ("run.ai/karta-version", version), ("run.ai/karta-kind", kind)];
        let is_wanted = |object: &&Value| {
            object["kind"] == "Karta"
                && wanted.iter().all(|(key, value)| object["metadata"]["labels"][key] == *value)
        };
        let found = self.objects.values().filter(is_wanted);
        Ok(found.filter_map(|object| serde_json::from_value(object.clone()).ok()).map(Arc::new).collect())
    }

    async fn topologies(&self) -> Result<Vec<Arc<OwnerObject>>, Error> {
        let found = self.objects.values().filter(|object| object["kind"] == "Topology");
        Ok(found.filter_map(|object| serde_json::from_value(object.clone()).ok()).map(Arc::new).collect())
    }
}

impl ClusterView for World<'_> {
    fn priority_class_exists(&self, name: &str) -> bool {
        CLASSES.contains(&name)
    }

    fn group(&self, key: &Key) -> Option<StoredGroupView> {
        self.groups.get(&key.name).map(view)
    }

    fn groups_named(&self, _: &str, base: &str) -> Vec<StoredGroupView> {
        let is_named =
            |name: &str| name.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        self.groups.iter().filter(|(name, _)| is_named(name)).map(|(_, group)| view(group)).collect()
    }

    fn pods_labelled(&self, _: &str, key: &str, value: &str) -> Vec<Arc<PodSummary>> {
        let pods = self.pods.values().filter_map(|pod| serde_json::from_value(pod.clone()).ok());
        let is_ours = |pod: &PodSummary| {
            pod.spec.scheduler_name.as_deref() == Some(&self.case.options.scheduler_name)
                && pod.metadata.label(key) == Some(value)
        };
        pods.filter(is_ours).map(Arc::new).collect()
    }
}

fn view(group: &PodGroup) -> StoredGroupView {
    StoredGroupView {
        owner_kind: group.metadata.owners().first().map(|owner| owner.kind.clone()),
        has_sub_groups: !group.spec.sub_groups.is_empty(),
    }
}
