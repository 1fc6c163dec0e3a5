//! Keeps the pods of a `StatefulSet`, each with its ordinal and storage, created and updated in order.

use super::pod::{self, availability, is_ready};
use super::replica_set::owners;
use super::revision::{self, Revisions};
use super::{int_at, label, set_entry};
use kai_object as object;
use kai_runtime::api::{DeleteOptions, Part, Result};
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub struct StatefulSetController;

impl DynamicController for StatefulSetController {
    const NAME: &'static str = "statefulset";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::STATEFUL_SET, kind::POD, kind::CONTROLLER_REVISION, kind::PERSISTENT_VOLUME_CLAIM]
    }

    fn map_to_keys(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        if *kind == kind::PERSISTENT_VOLUME_CLAIM {
            return Vec::new();
        }
        owners(informers, &kind::STATEFUL_SET, kind, changed)
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Action> {
        let Some(set) = context.informers.dynamic(&kind::STATEFUL_SET).get(key) else {
            return Ok(Action::AwaitChange);
        };
        if object::is_deleting(&set) {
            return Ok(Action::AwaitChange);
        }
        let revisions = revision::find(context, &set).await?;
        let wanted = object::name(&revisions.wanted);
        let current = match object::str_at(&set, "/status/currentRevision") {
            "" => wanted.to_owned(),
            current => current.to_owned(),
        };
        let sync = Sync { context, set: &set, revisions: &revisions, current: &current };
        let next = sync.run().await?;
        let (status, wait) = sync.status();
        let mut new = (*set).clone();
        new["status"] = status;
        context.patch_difference_dynamic(&kind::STATEFUL_SET, Part::Status, &set, &new).await?;
        let used = [object::str_at(&new, "/status/currentRevision"), wanted];
        revision::enforce_history_limit(context, &set, &revisions, &used).await?;
        Ok(next.or(wait))
    }
}

/// The inputs of one sync.
#[derive(Clone, Copy)]
struct Sync<'a> {
    context: &'a Context,
    set: &'a Value,
    revisions: &'a Revisions,
    /// The revision of pods below the partition.
    current: &'a str,
}

impl Sync<'_> {
    fn pods(&self) -> BTreeMap<i64, Arc<Value>> {
        let prefix = format!("{}-", object::name(self.set));
        let pods = self.context.informers.dynamic(&kind::POD).controlled_by(object::uid(self.set));
        let number = |pod: &Arc<Value>| object::name(pod).strip_prefix(&prefix)?.parse().ok();
        pods.into_iter().filter_map(|pod| Some((number(&pod)?, pod))).collect()
    }

    fn ordinals(&self) -> std::ops::Range<i64> {
        let start = int_at(self.set, "/spec/ordinals/start", 0);
        start..start + int_at(self.set, "/spec/replicas", 1)
    }

    fn is_available(&self, pod: &Value) -> bool {
        let seconds = int_at(self.set, "/spec/minReadySeconds", 0);
        !object::is_deleting(pod) && availability(pod, seconds, self.context.clock.now()).0
    }

    fn is_ordered(&self) -> bool {
        object::str_at(self.set, "/spec/podManagementPolicy") != "Parallel"
    }

    /// Creates, deletes and updates pods; with `OrderedReady` each pod waits for its predecessor.
    async fn run(&self) -> Result<Action> {
        let pods = self.pods();
        for ordinal in self.ordinals() {
            match pods.get(&ordinal) {
                None => {
                    self.create(ordinal).await?;
                    if self.is_ordered() {
                        return Ok(Action::AwaitChange);
                    }
                }
                Some(pod) if pod::is_terminal(pod) && !object::is_deleting(pod) => {
                    self.delete(pod).await?;
                    if self.is_ordered() {
                        return Ok(Action::AwaitChange);
                    }
                }
                Some(pod) if self.is_ordered() && !self.is_available(pod) => {
                    return self.delete_stuck(pod).await;
                }
                Some(_) => {}
            }
        }
        let range = self.ordinals();
        let surplus: Vec<&Arc<Value>> =
            pods.iter().rev().filter(|(ordinal, _)| !range.contains(ordinal)).map(|(_, pod)| pod).collect();
        for pod in &surplus {
            if !object::is_deleting(pod) {
                self.delete(pod).await?;
            }
            if self.is_ordered() {
                return Ok(Action::AwaitChange);
            }
        }
        self.rolling_update(&pods).await
    }

    /// A pod of an old revision that never gets ready would block its own update.
    async fn delete_stuck(&self, pod: &Arc<Value>) -> Result<Action> {
        let old = label(pod, revision::HASH) != object::name(&self.revisions.wanted);
        let in_partition = self.is_updated(pod);
        if old && in_partition && !object::is_deleting(pod) && !is_ready(pod) {
            self.delete(pod).await?;
        }
        Ok(Action::AwaitChange)
    }

    fn partition(&self) -> i64 {
        int_at(self.set, "/spec/updateStrategy/rollingUpdate/partition", 0)
    }

    fn is_updated(&self, pod: &Value) -> bool {
        let on_delete = object::str_at(self.set, "/spec/updateStrategy/type") == "OnDelete";
        let ordinal =
            object::name(pod).rsplit('-').next().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        !on_delete && ordinal >= self.partition()
    }

    /// Replaces pods of old revisions within `maxUnavailable`, highest ordinal first.
    async fn rolling_update(&self, pods: &BTreeMap<i64, Arc<Value>>) -> Result<Action> {
        let size = int_at(self.set, "/spec/replicas", 1);
        let value = self.set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
        let max_unavailable = pod::int_or_percent(value, size, pod::Rounding::Up).unwrap_or(1).max(1);
        let available = pods.values().filter(|pod| self.is_available(pod)).count();
        let mut unavailable = size - i64::try_from(available).unwrap_or(size);
        for pod in pods.values().rev() {
            let old = label(pod, revision::HASH) != object::name(&self.revisions.wanted);
            if !old || !self.is_updated(pod) || object::is_deleting(pod) {
                continue;
            }
            // Deleting an unavailable pod does not reduce availability.
            let available = self.is_available(pod);
            if available && unavailable >= max_unavailable {
                return Ok(Action::AwaitChange);
            }
            self.delete(pod).await?;
            unavailable += i64::from(available);
        }
        Ok(Action::AwaitChange)
    }

    async fn create(&self, ordinal: i64) -> Result<()> {
        let old = ordinal < self.partition()
            && self.revisions.all.iter().any(|one| object::name(one) == self.current);
        let version = if old {
            self.revisions.all.iter().find(|one| object::name(one) == self.current)
        } else {
            Some(&self.revisions.wanted)
        };
        let version = version.unwrap_or(&self.revisions.wanted);
        let (set, namespace) = (self.set, object::namespace(self.set));
        let name = format!("{}-{ordinal}", object::name(set));
        let mut pod = pod::from_template(set, &version["data"]["spec"]["template"]);
        object::set_meta(&mut pod, "generateName", None);
        object::set_meta(&mut pod, "name", Some(Value::from(name.as_str())));
        set_entry(&mut pod, "labels", revision::HASH, object::name(version));
        set_entry(&mut pod, "labels", "statefulset.kubernetes.io/pod-name", &name);
        set_entry(&mut pod, "labels", "apps.kubernetes.io/pod-index", &ordinal.to_string());
        pod["spec"]["hostname"] = Value::from(name.as_str());
        if let Some(service) = set.pointer("/spec/serviceName") {
            pod["spec"]["subdomain"] = service.clone();
        }
        for template in
            set.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten()
        {
            self.claim(&mut pod, &name, template).await?;
        }
        match self.context.create_dynamic(&kind::POD, namespace, &pod).await {
            // A pod with this name is terminating, or the informer has not seen it yet.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => {
                let message =
                    format!("create Pod {name} in StatefulSet {} failed error: ", object::name(set));
                self.context.warn(set, "FailedCreate", message + &error.message());
                Err(error)
            }
            Ok(_) => {
                let message = format!("create Pod {name} in StatefulSet {} successful", object::name(set));
                self.context.record(set, "SuccessfulCreate", message);
                Ok(())
            }
        }
    }

    async fn delete(&self, pod: &Value) -> Result<()> {
        self.context.delete_dynamic(&kind::POD, pod, DeleteOptions::of(pod)).await?;
        let (name, set) = (object::name(pod), object::name(self.set));
        let message = format!("delete Pod {name} in StatefulSet {set} successful");
        self.context.record(self.set, "SuccessfulDelete", message);
        Ok(())
    }

    /// Creates the claim of the pod from a template, and adds it as a volume.
    async fn claim(&self, pod: &mut Value, pod_name: &str, template: &Value) -> Result<()> {
        let namespace = object::namespace(self.set);
        let volume = object::name(template);
        let name = format!("{volume}-{pod_name}");
        let mut claim = template.clone();
        claim["apiVersion"] = json!("v1");
        claim["kind"] = json!("PersistentVolumeClaim");
        object::set_meta(&mut claim, "name", Some(Value::from(name.as_str())));
        object::set_meta(&mut claim, "namespace", Some(Value::from(namespace)));
        if let Some(fields) = claim.as_object_mut() {
            fields.remove("status");
        }
        let labels = self.set.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            set_entry(&mut claim, "labels", key, value.as_str().unwrap_or_default());
        }
        if self
            .context
            .informers
            .dynamic(&kind::PERSISTENT_VOLUME_CLAIM)
            .get(&Key::new(namespace, &name))
            .is_none()
        {
            match self.context.create_dynamic(&kind::PERSISTENT_VOLUME_CLAIM, namespace, &claim).await {
                Err(error) if error.is_conflict() => {}
                created => {
                    created?;
                }
            }
        }
        let mount = json!({"name": volume, "persistentVolumeClaim": {"claimName": name}});
        match pod["spec"]["volumes"].as_array_mut() {
            Some(volumes) => {
                volumes.retain(|known| known["name"] != volume);
                volumes.push(mount);
            }
            None => pod["spec"]["volumes"] = json!([mount]),
        }
        Ok(())
    }

    fn status(&self) -> (Value, Action) {
        let pods = self.pods();
        let wanted = object::name(&self.revisions.wanted);
        let min_ready = int_at(self.set, "/spec/minReadySeconds", 0);
        let now = self.context.clock.now();
        let alive: Vec<&Arc<Value>> = pods.values().filter(|pod| !pod::is_terminal(pod)).collect();
        let of = |version: &str| {
            let same = alive.iter().filter(|pod| !object::is_deleting(pod));
            same.filter(|pod| label(pod, revision::HASH) == version).count()
        };
        let ready = alive.iter().filter(|pod| is_ready(pod) && !object::is_deleting(pod)).count();
        let available = alive.iter().filter(|pod| self.is_available(pod)).count();
        let wait = alive.iter().filter_map(|pod| availability(pod, min_ready, now).1).min();
        let size = usize::try_from(int_at(self.set, "/spec/replicas", 1)).unwrap_or(0);
        let done = of(wanted) == size && ready == size && alive.len() == size;
        let current = if done { wanted } else { self.current };
        let mut status = json!({
            "observedGeneration": object::generation(self.set), "replicas": alive.len(),
            "availableReplicas": available, "currentRevision": current, "updateRevision": wanted,
            "collisionCount": 0,
        });
        for (field, count) in
            [("readyReplicas", ready), ("updatedReplicas", of(wanted)), ("currentReplicas", of(current))]
        {
            if count > 0 {
                status[field] = Value::from(count);
            }
        }
        (status, wait.map_or(Action::AwaitChange, Action::RequeueAfter))
    }
}
