//! A cluster in memory: what the API server and the garbage collector do to the objects of a case.

use super::{Admit, Input};
use anyhow::{Context, Result, bail};
use kai_operator::plan::{Change, is_owned_by, plan};
use kai_operator::status::{Condition, Observed, conditions, unreadable};
use kai_operator::{Apis, Certificate, Desired, Facts, Images, ObjectKey, facts, read};
use kai_units::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CONFIG: &str = "kai-config";
/// Namespaces that exist in every case.
const NAMESPACES: [&str; 8] = [
    "default",
    "kube-system",
    "kai-scheduler",
    "kai-two",
    "kai-resource-reservation",
    "kai-scale-adjust",
    "rr-ns",
    "scale-ns",
];
/// Reconciles after which the cluster must have settled.
const ROUNDS: usize = 10;
/// The time of every case: any time after the recorded ones.
const NOW: &str = "2026-06-01T00:00:00Z";

pub(super) struct Cluster<'a> {
    admit: Admit<'a>,
    pub(super) objects: BTreeMap<ObjectKey, Value>,
    pub(super) conditions: BTreeMap<String, Vec<Condition>>,
    /// Whether the Queue CRD has a conversion webhook.
    pub(super) queue_conversion: bool,
    namespaces: BTreeSet<String>,
    images: Images,
    apis: Apis,
    uids: u64,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(input: &Input, admit: Admit<'a>) -> Result<Self> {
        let variable = |name: &str| input.operator.env.get(name).cloned().unwrap_or_default();
        let served = |name: &str| input.third_party_crds.iter().any(|crd| crd == name);
        let mut cluster = Self {
            admit,
            objects: BTreeMap::new(),
            conditions: BTreeMap::new(),
            queue_conversion: false,
            namespaces: NAMESPACES.into_iter().map(str::to_owned).collect(),
            images: Images { repository: variable("MS_REPOSITORY"), tag: variable("MS_TAG") },
            apis: Apis {
                prometheus: served("prometheuses.monitoring.coreos.com"),
                service_monitor: served("servicemonitors.monitoring.coreos.com"),
                vertical_pod_autoscaler: served("verticalpodautoscalers.autoscaling.k8s.io"),
            },
            uids: 0,
        };
        for object in &input.existing {
            if let Err(error) = cluster.admitted(object)?.map(|object| cluster.create(object)) {
                bail!("{} of the case is refused: {error}", ObjectKey::of(object));
            }
        }
        Ok(cluster)
    }

    /// The object with defaults and without unknown fields, or why the API server refuses it.
    fn admitted(&self, object: &Value) -> Result<Result<Value, String>> {
        if !["Config", "SchedulingShard"].contains(&kai_object::kind(object)) {
            return Ok(Ok(object.clone()));
        }
        let admitted = (self.admit)(object)?;
        Ok(admitted.map(|admitted| {
            let mut object = object.clone();
            if let Some(spec) = admitted.get("spec") {
                object["spec"] = spec.clone();
            }
            object
        }))
    }

    /// Does one step; returns why the API server refuses it.
    pub(super) fn step(&mut self, step: &Value) -> Result<Option<String>> {
        let text = |field: &str| step.get(field).and_then(Value::as_str).unwrap_or_default();
        let key = ObjectKey::new(text("kind"), text("ns"), text("name"));
        let mut refused = None;
        match text("do") {
            "create" => {
                for object in step.get("objects").and_then(Value::as_array).into_iter().flatten() {
                    match self.admitted(object)? {
                        Ok(object) => self.create(object),
                        Err(error) => refused = Some(error),
                    }
                }
            }
            "patch" => {
                let patch = step.get("patch").context("a patch step has a patch")?;
                let mut object = self.object(&key)?.clone();
                merge_patch(&mut object, patch);
                match self.admitted(&object)? {
                    Ok(object) => self.store(key, object),
                    Err(error) => refused = Some(error),
                }
            }
            "delete" => {
                self.objects.remove(&key).with_context(|| format!("there is no {key}"))?;
            }
            "available" => self.make_available(step),
            "podip" => {
                let key = ObjectKey::new("Pod", text("ns"), text("name"));
                let address = text("ip").to_owned();
                let mut pod = self.object(&key)?.clone();
                pod["status"]["podIP"] = Value::from(address);
                self.objects.insert(key, pod);
            }
            "webhook-edit" => self.edit_webhook(&key)?,
            "crd-conversion" => self.queue_conversion = true,
            // The operator keeps nothing between reconciles.
            "restart" => {}
            other => bail!("unknown step `{other}`"),
        }
        self.collect_garbage();
        Ok(refused)
    }

    /// Whether the namespace of an object exists.
    pub(super) fn has_namespace(&self, object: &Value) -> bool {
        let namespace = kai_object::namespace(object);
        namespace.is_empty() || self.namespaces.contains(namespace)
    }

    fn object(&self, key: &ObjectKey) -> Result<&Value> {
        self.objects.get(key).with_context(|| format!("there is no {key}"))
    }

    fn create(&mut self, mut object: Value) {
        self.uids += 1;
        object["metadata"]["uid"] = Value::from(format!("uid-{}", self.uids));
        object["metadata"]["generation"] = Value::from(1);
        if kai_object::kind(&object) == "Namespace" {
            self.namespaces.insert(kai_object::name(&object).to_owned());
        }
        self.objects.insert(ObjectKey::of(&object), object);
    }

    /// Stores a changed object; its generation counts changes of its spec.
    fn store(&mut self, key: ObjectKey, mut object: Value) {
        if let Some(before) = self.objects.get(&key) {
            let changed = before.get("spec") != object.get("spec");
            let generation = kai_object::generation(before) + i64::from(changed);
            object["metadata"]["generation"] = Value::from(generation);
        }
        self.objects.insert(key, object);
    }

    fn make_available(&mut self, step: &Value) {
        let except: Vec<&str> = step
            .get("except")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (key, object) in &mut self.objects {
            if except.contains(&key.name.as_str()) {
                continue;
            }
            let generation = kai_object::generation(object);
            let replicas = object.pointer("/spec/replicas").cloned().unwrap_or_else(|| Value::from(1));
            let available = json!([{"type": "Available", "status": "True"}]);
            match key.kind.as_str() {
                "Deployment" => {
                    object["status"] = json!({
                        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                        "availableReplicas": replicas, "conditions": available,
                    });
                }
                "DaemonSet" => {
                    object["status"] = json!({
                        "observedGeneration": generation, "desiredNumberScheduled": 1, "numberAvailable": 1,
                    });
                }
                _ => {}
            }
        }
    }

    /// Changes the first webhook of a configuration in every field that a cloud or a user may touch.
    fn edit_webhook(&mut self, key: &ObjectKey) -> Result<()> {
        let object = self.objects.get_mut(key).with_context(|| format!("there is no {key}"))?;
        object["metadata"]["annotations"]["note"] = Value::from("1");
        object["metadata"]["labels"]["mine"] = Value::from("1");
        let webhook = object.pointer_mut("/webhooks/0").context("the configuration has a webhook")?;
        webhook["timeoutSeconds"] = Value::from(3);
        webhook["failurePolicy"] = Value::from("Ignore");
        webhook["matchPolicy"] = Value::from("Exact");
        let selector = kai_object::map_mut(webhook, "namespaceSelector");
        let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
        if let Some(expressions) = expressions.as_array_mut() {
            expressions.push(json!({"key": "extra", "operator": "DoesNotExist"}));
        }
        let labels = selector.entry("matchLabels").or_insert_with(|| json!({}));
        labels["foo"] = Value::from("bar");
        webhook["objectSelector"] = json!({"matchLabels": {"bar": "baz"}});
        webhook["rules"][0]["operations"] = json!(["CREATE", "DELETE"]);
        webhook["clientConfig"]["caBundle"] = Value::from("b3RoZXI=");
        Ok(())
    }

    /// Removes objects whose controller does not exist.
    fn collect_garbage(&mut self) {
        loop {
            let orphans: Vec<ObjectKey> = self
                .objects
                .iter()
                .filter(|(_, object)| {
                    let owners = kai_object::meta(object, "ownerReferences").and_then(Value::as_array);
                    owners.into_iter().flatten().any(|owner| !self.exists(owner))
                })
                .map(|(key, _)| key.clone())
                .collect();
            if orphans.is_empty() {
                return;
            }
            for key in orphans {
                self.objects.remove(&key);
            }
        }
    }

    fn exists(&self, owner: &Value) -> bool {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let key = ObjectKey::new(text("kind"), "", text("name"));
        self.objects.get(&key).is_some_and(|object| kai_object::uid(object) == text("uid"))
    }

    /// Reconciles until nothing changes, then sets the conditions.
    pub(super) fn reconcile(&mut self) {
        let mut failures = Vec::new();
        for _ in 0..ROUNDS {
            let (desired, _) = self.desired();
            let changes = plan(&desired, CONFIG, &self.facts());
            failures.clear();
            let mut changed = false;
            for change in changes {
                match self.write(&change) {
                    Ok(()) => changed = true,
                    Err(error) => failures.push(error),
                }
            }
            if desired.drop_queue_conversion && self.queue_conversion {
                self.queue_conversion = false;
                changed = true;
            }
            if !changed {
                break;
            }
        }
        self.set_conditions(&failures);
    }

    fn write(&mut self, change: &Change) -> Result<(), String> {
        let key = change.key();
        if !key.namespace.is_empty() && !self.namespaces.contains(&key.namespace) {
            return Err(format!("{key}: namespaces \"{}\" not found", key.namespace));
        }
        match change {
            Change::Create(object) => self.create(object.clone()),
            Change::Apply { merged, .. } => self.store(key, merged.clone()),
            Change::Replace(_) | Change::Delete(_) => {
                self.objects.remove(&key);
            }
        }
        Ok(())
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(key, _)| key.kind == kind).map(|(_, object)| object)
    }

    /// What should exist, and the shards that cannot be read.
    pub(super) fn desired(&self) -> (Desired, BTreeMap<String, String>) {
        let config = self.of_kind("Config").find(|object| kai_object::name(object) == CONFIG);
        let config = config.and_then(|object| read::config(object).ok());
        let mut shards = Vec::new();
        let mut unreadable = BTreeMap::new();
        for object in self.of_kind("SchedulingShard") {
            match read::shard(object) {
                Ok(shard) => shards.push(shard),
                Err(error) => {
                    unreadable.insert(kai_object::name(object).to_owned(), error);
                }
            }
        }
        (kai_operator::desired(config.as_ref(), &shards, &self.facts()), unreadable)
    }

    fn facts(&self) -> Facts {
        let leases = self.of_kind("Lease");
        let leaders = leases.filter_map(|lease| {
            let leader = facts::leader_endpoint(lease, self.of_kind("Pod"))?;
            Some((kai_object::name(lease).to_owned(), leader))
        });
        let secrets =
            ["kai-admission-webhook-tls-secret", "queue-webhook-tls-secret", "podgroup-webhook-tls-secret"];
        let certificate =
            Certificate { certificate: "certificate".to_owned(), key: "key".to_owned(), trusted: None };
        Facts {
            images: self.images.clone(),
            apis: self.apis,
            fake_gpu_nodes: facts::fake_gpu_nodes(self.of_kind("Node")),
            cdi: facts::cdi(self.of_kind("ClusterPolicy")),
            now: NOW.parse().unwrap_or(Timestamp(0)),
            certificates: secrets.into_iter().map(|name| (name.to_owned(), certificate.clone())).collect(),
            certificate_errors: BTreeMap::new(),
            objects: self.objects.clone(),
            leaders: leaders.collect(),
            external_prometheus: None,
        }
    }

    fn set_conditions(&mut self, failures: &[String]) {
        let (desired, unread) = self.desired();
        let mut all = BTreeMap::new();
        for (key, object) in &self.objects {
            let generation = kai_object::generation(object);
            let kept: Vec<&Value> =
                self.objects.values().filter(|other| is_owned_by(other, &key.kind, &key.name)).collect();
            let operands: &[_] = match key.kind.as_str() {
                "Config" if key.name == CONFIG => &desired.config,
                "SchedulingShard" => {
                    let Some((_, operand)) = desired.shards.iter().find(|(name, _)| *name == key.name) else {
                        let error = unread.get(&key.name).map(String::as_str).unwrap_or_default();
                        all.insert(key.to_string(), unreadable(generation, error));
                        continue;
                    };
                    std::slice::from_ref(operand)
                }
                _ => continue,
            };
            let own: Vec<String> = failures
                .iter()
                .filter(|failure| {
                    let objects = operands.iter().flat_map(|operand| &operand.objects);
                    objects.map(ObjectKey::of).any(|key| failure.starts_with(&format!("{key}:")))
                })
                .cloned()
                .collect();
            all.insert(
                key.to_string(),
                conditions(&Observed {
                    generation,
                    operands,
                    objects: &self.objects,
                    kept,
                    failures: &own,
                    external_prometheus: None,
                }),
            );
        }
        self.conditions = all;
    }
}

/// Applies a JSON merge patch (RFC 7396).
fn merge_patch(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (field, value) in patch {
        if value.is_null() {
            fields.remove(field);
        } else {
            merge_patch(fields.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}
