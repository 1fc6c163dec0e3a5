//! The watched objects of the cluster.
//!
//! Kinds of the installation are watched in its namespaces only: the operator needs no right to read the secrets of others.
//! Optional APIs are watched while the cluster serves them.

use crate::facts::Apis;
use crate::key::ObjectKey;
use crate::unread::{Unread, Why};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kai_api::well_known::label;
use kai_api::{Config, SchedulingShard};
use kai_object as object;
use kai_runtime::api::{Api, Result};
use kai_runtime::health::{Health, WatchHealth};
use kai_runtime::kind::{
    CONFIG_MAP, DAEMON_SET, DEPLOYMENT, LEASE, MUTATING_WEBHOOK_CONFIGURATION, NODE, POD,
    POD_DISRUPTION_BUDGET, ResourceKind, SERVICE_ACCOUNT, VALIDATING_WEBHOOK_CONFIGURATION, builtin,
    group_path, untyped,
};
use kai_runtime::url::query_value;
use kai_runtime::watch::{Need, Source, WatchEvent, list_and_watch};
use kai_runtime::watch_value::WatchValue;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

pub(super) const PROMETHEUS: ResourceKind =
    untyped("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", true);
pub(super) const SERVICE_MONITOR: ResourceKind =
    untyped("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", true);
pub(super) const VERTICAL_POD_AUTOSCALER: ResourceKind =
    untyped("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", true);
/// The settings of NVIDIA's GPU operator.
const CLUSTER_POLICY: ResourceKind = untyped("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies", false);
const OPTIONAL: [ResourceKind; 4] = [PROMETHEUS, SERVICE_MONITOR, VERTICAL_POD_AUTOSCALER, CLUSTER_POLICY];

/// Type of the Secrets in which helm keeps the chart and its values.
const HELM_RELEASE: &str = "helm.sh/release.v1";
/// How often the cluster is asked which optional APIs it serves.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// How long the start waits for lists that fail. What depends on them is then left alone.
const REQUIRED_WAIT: Duration = Duration::from_secs(30);
const OPTIONAL_WAIT: Duration = Duration::from_secs(5);
/// How often is compared what can be read.
const READABLE_INTERVAL: Duration = Duration::from_secs(10);

/// A kind in a namespace; an empty namespace stands for all.
type Scope = (ResourceKind, String);

/// Kinds of an installation, and others that its state follows from.
fn required() -> Vec<ResourceKind> {
    vec![
        ResourceKind::of::<Config>(),
        ResourceKind::of::<SchedulingShard>(),
        DEPLOYMENT,
        DAEMON_SET,
        CONFIG_MAP,
        builtin::<Secret>(),
        SERVICE_ACCOUNT,
        builtin::<Service>(),
        POD_DISRUPTION_BUDGET,
        builtin::<EndpointSlice>(),
        MUTATING_WEBHOOK_CONFIGURATION,
        VALIDATING_WEBHOOK_CONFIGURATION,
        LEASE,
        POD,
        NODE,
    ]
}

/// The kind of an object that the operator writes.
pub(super) fn kind_of(key: &ObjectKey) -> Option<ResourceKind> {
    required().into_iter().chain(OPTIONAL).find(|kind| kind.kind == key.kind)
}

/// The optional kinds that the cluster serves. The groups of all are read by one request.
pub(super) async fn served(api: &Api) -> Result<Vec<ResourceKind>> {
    let groups = api.send("GET", "/apis", None).await?;
    let versions: BTreeSet<String> = items(&groups, "groups")
        .flat_map(|group| items(group, "versions"))
        .map(|version| object::str_at(version, "/groupVersion").to_owned())
        .collect();
    let mut served = Vec::new();
    for kind in OPTIONAL.into_iter().filter(|kind| versions.contains(&*kind.api_version())) {
        let list = api.send("GET", &group_path(&kind.group, &kind.version), None).await?;
        if items(&list, "resources").any(|resource| object::str_at(resource, "/name") == kind.plural) {
            served.push(kind);
        }
    }
    Ok(served)
}

fn items<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    object.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// Waits until the cluster serves other optional kinds. A failed request says nothing about them.
pub(super) async fn served_differs(api: Api, known: Vec<ResourceKind>) {
    loop {
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
        if served(&api).await.is_ok_and(|served| served != known) {
            return;
        }
    }
}

/// The watched objects; the watches end when this is dropped.
pub(super) struct Watched {
    store: Arc<Store>,
    /// The scopes of the kinds that every installation needs.
    required: BTreeMap<Scope, WatchHealth>,
    optional: BTreeSet<Scope>,
    _watches: JoinSet<()>,
}

struct Store {
    objects: Mutex<BTreeMap<ObjectKey, Value>>,
    /// Every list that arrived.
    listed: Mutex<BTreeSet<Scope>>,
    /// Every list that the roles of the operator do not grant.
    denied: Mutex<BTreeSet<Scope>>,
    changes: WatchValue<u64>,
}

impl Watched {
    pub(super) fn start(
        api: &Api,
        health: &Health,
        changes: &WatchValue<u64>,
        namespaces: &BTreeSet<String>,
        served: &[ResourceKind],
    ) -> Self {
        let store = Arc::new(Store {
            objects: Mutex::default(),
            listed: Mutex::default(),
            denied: Mutex::default(),
            changes: changes.clone(),
        });
        let mut watches = JoinSet::new();
        let mut start = |kind: &ResourceKind| {
            // The accounts of reservation and scaling pods have namespaces of their own.
            let in_all = !kind.namespaced || *kind == SERVICE_ACCOUNT;
            let scopes = if in_all { vec![String::new()] } else { namespaces.iter().cloned().collect() };
            let scopes = scopes.into_iter().map(|namespace| {
                let scope = (kind.clone(), namespace);
                let health = health.watch(&name_of(&scope));
                watches.spawn(watch(Arc::clone(&store), api.clone(), health.clone(), scope.clone()));
                (scope, health)
            });
            scopes.collect::<Vec<_>>()
        };
        let required = required().iter().flat_map(&mut start).collect();
        let optional = served.iter().flat_map(&mut start).map(|(scope, _)| scope).collect();
        Self { store, required, optional, _watches: watches }
    }

    /// Waits until it is known what the `Config` says, and for a limited time for everything else.
    pub(super) async fn synced(&self) {
        let is_known = |store: &Store, scope: &Scope| {
            store.listed.lock().contains(scope) || store.denied.lock().contains(scope)
        };
        let settings = (ResourceKind::of::<Config>(), String::new());
        self.wait_until(|store| is_known(store, &settings)).await;
        let required = self.wait_until(|store| self.required.keys().all(|scope| is_known(store, scope)));
        let _ = tokio::time::timeout(REQUIRED_WAIT, required).await;
        let optional = self.wait_until(|store| self.optional.iter().all(|scope| is_known(store, scope)));
        let _ = tokio::time::timeout(OPTIONAL_WAIT, optional).await;
    }

    /// What every installation needs and cannot be read.
    pub(super) fn unread(&self) -> Unread {
        let mut unread = Unread::default();
        for (scope, health) in &self.required {
            let why = if self.store.denied.lock().contains(scope) {
                Why::Denied
            } else {
                match health.problem() {
                    Some(problem) => Why::Failed(problem),
                    None => continue,
                }
            };
            let (kind, namespace) = scope;
            unread.add(&kind.kind, namespace, resource_of(kind), why);
        }
        unread
    }

    /// Waits until something else can be read.
    pub(super) async fn unread_differs(&self, known: &Unread) {
        while self.unread() == *known {
            tokio::time::sleep(READABLE_INTERVAL).await;
        }
    }

    async fn wait_until(&self, holds: impl Fn(&Store) -> bool) {
        while !holds(&self.store) {
            let seen = self.store.changes.get();
            if holds(&self.store) {
                return;
            }
            self.store.changes.wait_for(|count| count != seen).await;
        }
    }

    pub(super) fn objects(&self) -> BTreeMap<ObjectKey, Value> {
        self.store.objects.lock().clone()
    }

    /// Which third-party APIs are served and readable.
    pub(super) fn apis(&self) -> Apis {
        let listed = self.store.listed.lock();
        let has = |kind: &ResourceKind| listed.iter().any(|(listed, _)| listed == kind);
        Apis {
            prometheus: has(&PROMETHEUS),
            service_monitor: has(&SERVICE_MONITOR),
            vertical_pod_autoscaler: has(&VERTICAL_POD_AUTOSCALER),
        }
    }

    /// Stores the response to a write, so that the next step does not act on the state before it.
    pub(super) fn put(&self, written: &Value) {
        let kind = kind_of(&ObjectKey::of(written));
        let trimmed = kind.map(|kind| trimmed(written.clone(), &kind));
        self.store.apply(trimmed.unwrap_or_else(|| written.clone()));
    }

    pub(super) fn remove(&self, key: &ObjectKey) {
        self.store.objects.lock().remove(key);
    }
}

/// The resource with its group, such as `deployments.apps`.
fn resource_of(kind: &ResourceKind) -> String {
    if kind.group.is_empty() { kind.plural.to_string() } else { format!("{}.{}", kind.plural, kind.group) }
}

fn name_of((kind, namespace): &Scope) -> String {
    match namespace.as_str() {
        "" => kind.plural.to_string(),
        namespace => format!("{} of namespace {namespace}", kind.plural),
    }
}

async fn watch(store: Arc<Store>, api: Api, health: WatchHealth, scope: Scope) {
    let (kind, namespace) = &scope;
    let mut source = Source::in_namespace(kind.clone(), namespace);
    // Also of a kind that every installation needs: the conditions say what is missing.
    source.need = Need::Optional;
    if *kind == NODE {
        // Of nodes only this label is of interest.
        source = source.query(format!("labelSelector={}", query_value(&format!("{}=true", label::FAKE_GPU))));
    }
    let handle = |event: WatchEvent<Value>| store.handle(&scope, event);
    list_and_watch(&api, &source, &health, handle).await;
}

impl Store {
    fn handle(&self, scope: &Scope, event: WatchEvent<Value>) {
        let (kind, namespace) = scope;
        let in_scope =
            |key: &ObjectKey| key.kind == kind.kind && (namespace.is_empty() || key.namespace == *namespace);
        match event {
            WatchEvent::Listed(items, _) => {
                let mut objects = self.objects.lock();
                objects.retain(|key, _| !in_scope(key));
                objects.extend(items.into_iter().map(|item| {
                    let item = trimmed(item, kind);
                    (ObjectKey::of(&item), item)
                }));
                drop(objects);
                self.listed.lock().insert(scope.clone());
                self.denied.lock().remove(scope);
            }
            WatchEvent::Applied(item) => return self.apply(trimmed(item, kind)),
            WatchEvent::Deleted(item) => {
                let item = trimmed(item, kind);
                let mut objects = self.objects.lock();
                let key = ObjectKey::of(&item);
                // A late event of an object whose successor is known already.
                if objects.get(&key).is_some_and(|known| object::uid(known) == object::uid(&item)) {
                    objects.remove(&key);
                }
            }
            WatchEvent::Invalid(invalid) => {
                let key = ObjectKey::new(&kind.kind, &invalid.key.namespace, &invalid.key.name);
                self.objects.lock().remove(&key);
            }
            WatchEvent::Denied => {
                // As where the API is not served: what was deployed through it stays. Of other kinds the last state is kept.
                if OPTIONAL.contains(kind) {
                    self.objects.lock().retain(|key, _| !in_scope(key));
                }
                self.listed.lock().remove(scope);
                self.denied.lock().insert(scope.clone());
            }
        }
        self.changes.modify(|count| *count += 1);
    }

    fn apply(&self, item: Value) {
        let key = ObjectKey::of(&item);
        let mut objects = self.objects.lock();
        let is_older = objects
            .get(&key)
            .is_some_and(|known| object::uid(known) == object::uid(&item) && version(known) > version(&item));
        if is_older || objects.get(&key) == Some(&item) {
            return;
        }
        objects.insert(key, item);
        drop(objects);
        self.changes.modify(|count| *count += 1);
    }
}

/// Resource versions are compared as numbers (KEP-5504).
fn version(item: &Value) -> u64 {
    object::meta_str(item, "resourceVersion").parse().unwrap_or(0)
}

/// The object with its kind, which items of a list lack, and without what the operator does not read: a change of nothing else
/// is no reason to reconcile. Leases change every few seconds, and releases of helm and usage ledgers are large.
fn trimmed(mut item: Value, kind: &ResourceKind) -> Value {
    object::set_meta(&mut item, "managedFields", None);
    kai_object::set(&mut item, &["kind"], Value::from(kind.kind.as_ref()));
    kai_object::set(&mut item, &["apiVersion"], Value::from(kind.api_version()));
    let kept: &[(&str, &[&str])] = match kind.kind.as_ref() {
        "Lease" => &[("spec", &["holderIdentity"])],
        "Pod" => &[("spec", &[]), ("status", &["phase", "podIP"])],
        "Node" => &[("spec", &[]), ("status", &[])],
        "Secret" if object::str_at(&item, "/type") == HELM_RELEASE => &[("data", &[])],
        "ConfigMap"
            if object::meta(&item, "labels")
                .is_some_and(|labels| labels.get(label::USAGE_LEDGER).is_some()) =>
        {
            &[("data", &[])]
        }
        _ => return item,
    };
    object::set_meta(&mut item, "resourceVersion", None);
    for (part, fields) in kept {
        if let Some(part) = item.get_mut(*part).and_then(Value::as_object_mut) {
            part.retain(|field, _| fields.contains(&field.as_str()));
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn renewed_lease_is_no_change() {
        let renewed = |time: &str, version: &str| {
            json!({
                "metadata": {"name": "kai-scheduler", "namespace": "ns", "uid": "1", "resourceVersion": version},
                "spec": {"holderIdentity": "pod_1", "renewTime": time},
            })
        };
        let first = trimmed(renewed("2026-01-01T00:00:00Z", "5"), &LEASE);
        assert_eq!(first, trimmed(renewed("2026-01-01T00:00:02Z", "6"), &LEASE));
        assert_eq!(object::str_at(&first, "/spec/holderIdentity"), "pod_1");
    }

    #[test]
    fn other_objects_keep_what_a_plan_compares() {
        let secret = |type_: &str| {
            let secret = json!({"metadata": {"name": "s"}, "type": type_, "data": {"tls.crt": "x"}});
            trimmed(secret, &builtin::<Secret>())
        };
        assert_eq!(secret("kubernetes.io/tls")["data"]["tls.crt"], "x");
        assert_eq!(secret(HELM_RELEASE)["data"], json!({}), "the chart is not kept in memory");
    }
}
