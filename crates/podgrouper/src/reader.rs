//! Reads owners and the further objects of rules: each object once, not once for every pod, and again after a change.
//!
//! An object is read again when a new pod of it appears, and when the watch of its kind shows a change (`owner_watches`). Where
//! no watch shows all changes, it is read at intervals that grow while it does not change. Refusals are remembered for a few
//! seconds, so that a gang of thousands of pods does not ask thousands of times.

mod cached;
mod owner_watches;

use crate::keyed_locks::KeyedLocks;
use crate::kind::karta;
use crate::objects::{MetaExt, OwnerObject, key_of};
use crate::owner_chain::Error;
use crate::plan::{ReadFor, Source, Wanted};
use crate::pool::{Text, pool};
use cached::Cached;
use kai_api::Topology;
use kai_runtime::api::{self, Api};
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::kind::{Key, POD, ResourceKind, group_path};
use kai_runtime::url::query_value;
use owner_watches::OwnerWatches;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// New pods of an owner share one read for this long.
const FRESH: Duration = Duration::from_secs(2);
/// The first interval between reads of an object that does not change: longer than the assignment of its pods may wait.
const INTERVAL_MIN: Duration = Duration::from_secs(6);
/// The longest interval, with few objects.
const INTERVAL_MAX: Duration = Duration::from_mins(1);
/// Repeated reads of unchanged objects a second, in total.
const READS_PER_SECOND: usize = 20;
/// Repeated reads in one refresh.
const READS_MAX: usize = 100;
/// How long a refusal holds for all objects of a kind.
const REFUSED: Duration = Duration::from_secs(5);

/// Namespace, API version and kind.
type RefusalId = (String, String, String);

/// The reader with its cache.
pub struct Reader {
    api: Api,
    recorder: Recorder,
    /// Whether only the rules of the table read the objects, so that what they do not read can be left out.
    is_trimmed: bool,
    resources: Resources,
    cache: Mutex<BTreeMap<Id, Cached>>,
    /// Objects that are being read: the pods of a gang are reconciled at the same time, and one read is enough.
    reading: KeyedLocks<Id>,
    watches: OwnerWatches,
    refused: Mutex<BTreeMap<RefusalId, (Instant, Refusal)>>,
    /// Versions of Kartas by uid, for which an event says that they are not used.
    unused_kartas: Mutex<BTreeMap<String, String>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("cached", &self.cache.lock().len()).finish_non_exhaustive()
    }
}

/// Identifies a cached object by what refers to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    namespace: Text,
    api_version: Text,
    kind: Text,
    name: Text,
}

impl Id {
    fn new(namespace: &str, api_version: &str, kind: &str, name: &str) -> Self {
        let mut pool = pool();
        Self {
            namespace: pool.text(namespace),
            api_version: pool.text(api_version),
            kind: pool.text(kind),
            name: pool.text(name),
        }
    }
}

#[derive(Clone, Debug)]
enum Refusal {
    Forbidden { resource: String },
    UnknownKind,
}

/// Kartas for which it is remembered that they were reported; beyond, they are reported again.
const REPORTED_MAX: usize = 1_000;
/// A list of Kartas or of topologies is read again after this time.
const LISTS_FRESH: Duration = Duration::from_secs(10);

impl Reader {
    pub fn new(api: Api, recorder: Recorder, is_trimmed: bool) -> Self {
        Self {
            api,
            recorder,
            is_trimmed,
            resources: Resources::default(),
            cache: Mutex::default(),
            reading: KeyedLocks::default(),
            watches: OwnerWatches::default(),
            refused: Mutex::default(),
            unused_kartas: Mutex::default(),
        }
    }

    /// Records why Kartas are not used, once for each version of them.
    fn report_unused(&self, resource: &ResourceKind, kartas: &[Arc<OwnerObject>], kind: (&str, &str, &str)) {
        for (karta, reason) in karta::unused(kartas, kind) {
            let metadata = &karta.metadata;
            let (uid, version) = (metadata.uid_str(), metadata.resource_version.clone().unwrap_or_default());
            let key = key_of(metadata);
            let mut reported = self.unused_kartas.lock();
            if reported.get(uid) == Some(&version) {
                continue;
            }
            if reported.len() == REPORTED_MAX {
                reported.clear();
            }
            reported.insert(uid.to_owned(), version);
            drop(reported);
            tracing::warn!(karta = %key, reason, "the Karta is not used");
            self.recorder.record(&Event {
                regarding: Regarding { kind: resource.clone(), key, uid: uid.to_owned() },
                type_: EventType::Warning,
                reason: "InvalidInput",
                message: format!("{reason}; workloads of its kind are grouped without it"),
                annotations: BTreeMap::new(),
            });
        }
    }

    async fn read_cached(
        &self,
        wanted: &Wanted<'_>,
        read_for: ReadFor<'_>,
    ) -> Result<Arc<OwnerObject>, Error> {
        let first_owner = read_for.first_owner;
        let Wanted { namespace, api_version, kind, name, uid } = *wanted;
        let id = Id::new(namespace, api_version, kind, name);
        if let Some(cached) = self.cached(&id, uid, read_for) {
            return Ok(cached);
        }
        let lock = self.reading.of(&id);
        let _reading = lock.lock().await;
        if let Some(cached) = self.cached(&id, uid, read_for) {
            return Ok(cached);
        }
        self.check_refusals(wanted)?;
        let found = self.resources.find(&self.api, api_version, kind).await.map_err(Error::Read)?;
        let Some(resource) = found else { return Err(self.refuse(wanted, Refusal::UnknownKind)) };
        let first_read = self.watches.first_read(&id);
        let object = self.get(&resource, wanted).await?;
        if uid.is_some_and(|uid| object.metadata.uid_str() != uid) {
            self.cache.lock().remove(&id);
            return Err(Error::Replaced { kind: kind.to_owned(), name: name.to_owned() });
        }
        let object = Arc::new(object);
        let now = Instant::now();
        self.watches.want(&resource);
        let mut cache = self.cache.lock();
        first_read.end(&object);
        let cached = cache.entry(id).or_insert_with(|| Cached::new(&object, resource, now));
        cached.set(&object);
        (cached.read_at, cached.next_at, cached.interval) = (now, now + INTERVAL_MIN, INTERVAL_MIN);
        cached.need_for(first_owner);
        Ok(object)
    }

    /// The cached object, where it is recent enough.
    fn cached(&self, id: &Id, uid: Option<&str>, read_for: ReadFor<'_>) -> Option<Arc<OwnerObject>> {
        let ReadFor { first_owner, is_new } = read_for;
        let mut cache = self.cache.lock();
        let cached = cache.get_mut(id)?;
        let object = cached.object(id);
        let is_same = uid.is_none_or(|uid| object.metadata.uid_str() == uid);
        if !is_same || (is_new && cached.read_at.elapsed() >= FRESH) {
            return None;
        }
        cached.need_for(first_owner);
        Some(object)
    }

    async fn get(&self, resource: &ResourceKind, wanted: &Wanted<'_>) -> Result<OwnerObject, Error> {
        let (kind, name) = (wanted.kind.to_owned(), wanted.name.to_owned());
        let namespace = if resource.namespaced { wanted.namespace } else { "" };
        match self.api.get_dynamic(resource, &Key::new(namespace, wanted.name)).await {
            Ok(object) => {
                let mut object =
                    read_object(object).map_err(|source| Error::Invalid { kind, name, source })?;
                if self.is_trimmed && has_rule_of_metadata(&object) {
                    object.data = Value::Object(Map::new());
                }
                Ok(object)
            }
            Err(error) if error.is_not_found() => Err(Error::Gone { kind, name }),
            Err(error) if error.code() == 403 => {
                let resource = full_name(resource);
                Err(self.refuse(wanted, Refusal::Forbidden { resource }))
            }
            Err(error) => Err(Error::Read(error)),
        }
    }

    fn check_refusals(&self, wanted: &Wanted<'_>) -> Result<(), Error> {
        let mut refused = self.refused.lock();
        refused.retain(|_, (since, _)| since.elapsed() < REFUSED);
        match refused.get(&refusal_id(wanted)) {
            Some((_, refusal)) => Err(refusal.clone().of(wanted)),
            None => Ok(()),
        }
    }

    fn refuse(&self, wanted: &Wanted<'_>, refusal: Refusal) -> Error {
        self.refused.lock().insert(refusal_id(wanted), (Instant::now(), refusal.clone()));
        refusal.of(wanted)
    }

    /// The first owners of the pods that need an object whose cached state passes the test.
    pub fn first_owners(&self, is_wanted: impl Fn(&OwnerObject) -> bool) -> BTreeSet<String> {
        let cache = self.cache.lock();
        let wanted = cache.iter().filter(|(id, cached)| is_wanted(&cached.object(id)));
        wanted.flat_map(|(_, cached)| cached.first_owners.iter().map(ToString::to_string)).collect()
    }

    /// Waits until a watch shows that a cached object changed.
    pub async fn changed(&self) {
        self.watches.changed().await;
    }

    /// Reads the objects that have changed; returns the first owners of the pods that need one of them.
    pub async fn read_changed(&self) -> BTreeSet<String> {
        self.read_again(self.watches.take_changed()).await
    }

    /// Reads the objects that are due once more; returns the first owners of the pods that need a changed one.
    ///
    /// `is_used` tells whether an owner still has pods; objects without any are forgotten.
    pub async fn refresh(&self, is_used: impl Fn(&str) -> bool) -> BTreeSet<String> {
        self.read_again(self.due(is_used)).await
    }

    async fn read_again(&self, ids: impl IntoIterator<Item = Id>) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for id in ids {
            let Some((resource, before)) =
                self.cache.lock().get(&id).map(|cached| (Arc::clone(&cached.resource), cached.object(&id)))
            else {
                continue;
            };
            let Id { namespace, api_version, kind, name } = &id;
            let wanted = Wanted { namespace, api_version, kind, name, uid: None };
            let read = self.get(&resource, &wanted).await;
            let mut cache = self.cache.lock();
            let many = Duration::from_secs((cache.len() / READS_PER_SECOND) as u64);
            let Some(cached) = cache.get_mut(&id) else { continue };
            let now = Instant::now();
            cached.interval = (cached.interval * 2).min(INTERVAL_MAX.max(many));
            match read {
                Ok(object) if is_equal(&object, &before) => {
                    // Events are compared with the metadata of the last read.
                    cached.set(&Arc::new(object));
                    (cached.read_at, cached.is_outdated) = (now, false);
                }
                Ok(object) => {
                    cached.set(&Arc::new(object));
                    (cached.read_at, cached.is_outdated) = (now, false);
                    cached.interval = INTERVAL_MIN;
                    changed.extend(cached.first_owners.iter().map(ToString::to_string));
                }
                // The pods of a deleted owner are about to go; until then they keep their group.
                Err(Error::Gone { .. }) => {
                    cache.remove(&id);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "an owner cannot be read again"
                    );
                    // No further event may show the change.
                    if !std::mem::replace(&mut cached.is_outdated, true) {
                        cached.interval = INTERVAL_MIN;
                    }
                }
            }
            cached.next_at = now + cached.interval;
        }
        changed
    }

    /// The objects to read now; forgets those that no pod needs.
    fn due(&self, is_used: impl Fn(&str) -> bool) -> Vec<Id> {
        let now = Instant::now();
        let mut due: Vec<(Instant, Id)> = Vec::new();
        self.cache.lock().retain(|id, cached| {
            if cached.next_at > now {
                return true;
            }
            cached.first_owners.retain(|uid| is_used(uid));
            if cached.first_owners.is_empty() {
                return false;
            }
            if !cached.is_outdated && self.watches.shows_changes_of(&cached.resource, &cached.object(id)) {
                cached.next_at = now + INTERVAL_MAX;
            } else {
                due.push((cached.next_at, id.clone()));
            }
            true
        });
        self.resources.kartas.lock().retain(|_, (at, _)| at.elapsed() < LISTS_FRESH);
        self.resources.topologies.lock().take_if(|(at, _)| at.elapsed() >= LISTS_FRESH);
        longest_due(due)
    }
}

/// As many objects as one refresh reads: those that are due longest, so that none waits for ever behind others.
fn longest_due(mut due: Vec<(Instant, Id)>) -> Vec<Id> {
    due.sort();
    due.into_iter().map(|(_, id)| id).take(READS_MAX).collect()
}

impl Source for Reader {
    async fn read(&self, wanted: &Wanted<'_>, read_for: ReadFor<'_>) -> Result<Arc<OwnerObject>, Error> {
        // A rule that reads the pod itself needs its current state; other readers of a pod need only what never changes.
        if wanted.uid.is_none() && wanted.api_version == "v1" && wanted.kind == "Pod" {
            return Ok(Arc::new(self.get(&POD, wanted).await?));
        }
        self.read_cached(wanted, read_for).await
    }

    /// None where there are no Kartas.
    async fn kartas(&self, group: &str, version: &str, kind: &str) -> Result<Vec<Arc<OwnerObject>>, Error> {
        const API_VERSION: &str = "run.ai/v1alpha1";
        let wanted = Wanted { namespace: "", api_version: API_VERSION, kind: "Karta", name: kind, uid: None };
        let id = (group.to_owned(), version.to_owned(), kind.to_owned());
        if let Some((at, found)) = self.resources.kartas.lock().get(&id)
            && at.elapsed() < LISTS_FRESH
        {
            return Ok(found.clone());
        }
        if self.check_refusals(&wanted).is_err() {
            return Ok(Vec::new());
        }
        let found = self.resources.find(&self.api, API_VERSION, "Karta").await.map_err(Error::Read)?;
        let Some(resource) = found else {
            self.refuse(&wanted, Refusal::UnknownKind);
            return Ok(Vec::new());
        };
        let selector =
            format!("run.ai/karta-group={group},run.ai/karta-version={version},run.ai/karta-kind={kind}");
        let path = format!("{}?labelSelector={}", resource.path(""), query_value(&selector));
        let listed = match self.api.send("GET", &path, None).await {
            Ok(listed) => listed,
            // Without the right to read Kartas there is no fallback to them; the installation may leave them out.
            Err(error) if matches!(error.code(), 400 | 403 | 404) => {
                let resource = full_name(&resource);
                self.refuse(&wanted, Refusal::Forbidden { resource });
                return Ok(Vec::new());
            }
            Err(error) => return Err(Error::Read(error)),
        };
        let found = items(&listed);
        self.report_unused(&resource, &found, (group, version, kind));
        self.resources.kartas.lock().insert(id, (Instant::now(), found.clone()));
        Ok(found)
    }

    async fn topologies(&self) -> Result<Vec<Arc<OwnerObject>>, Error> {
        if let Some((at, found)) = &*self.resources.topologies.lock()
            && at.elapsed() < LISTS_FRESH
        {
            return Ok(found.clone());
        }
        let resource = ResourceKind::of::<Topology>();
        let found = match self.api.send("GET", &resource.path(""), None).await {
            Ok(listed) => items(&listed),
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) if error.code() == 403 => {
                return Err(Error::MayNotList { kind: "Topology", resource: full_name(&resource) });
            }
            Err(error) => return Err(Error::Read(error)),
        };
        *self.resources.topologies.lock() = Some((Instant::now(), found.clone()));
        Ok(found)
    }
}

/// The objects of a list.
fn items(listed: &Value) -> Vec<Arc<OwnerObject>> {
    let items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| read_object(item.clone()).ok()).map(Arc::new).collect()
}

/// Whether the rule of a kind may read its status.
fn is_status_read(object: &OwnerObject) -> bool {
    object.api_version.starts_with("ray.io/") || !crate::table::is_known(object)
}

/// Whether two states are equal in everything that rules read. The status of most kinds changes with every pod.
fn is_equal(one: &OwnerObject, other: &OwnerObject) -> bool {
    let metadata = |of: &OwnerObject| {
        let of = &of.metadata;
        (of.uid.clone(), of.labels.clone(), of.annotations.clone(), of.owner_references.clone())
    };
    let field = |of: &OwnerObject, name: &str| of.data.get(name).cloned();
    one.metadata.resource_version == other.metadata.resource_version
        || (metadata(one) == metadata(other)
            && field(one, "spec") == field(other, "spec")
            && (!is_status_read(one) || field(one, "status") == field(other, "status")))
}

impl Refusal {
    fn of(self, wanted: &Wanted<'_>) -> Error {
        let (kind, name, api_version) =
            (wanted.kind.to_owned(), wanted.name.to_owned(), wanted.api_version.to_owned());
        match self {
            Self::Forbidden { resource } => Error::Forbidden { kind, name, api_version, resource },
            Self::UnknownKind => Error::UnknownKind { name, kind, api_version },
        }
    }
}

fn refusal_id(wanted: &Wanted<'_>) -> RefusalId {
    (wanted.namespace.to_owned(), wanted.api_version.to_owned(), wanted.kind.to_owned())
}

/// `jobs.batch`
fn full_name(resource: &ResourceKind) -> String {
    if resource.group.is_empty() {
        return resource.plural.to_string();
    }
    format!("{}.{}", resource.plural, resource.group)
}

/// Whether the rule of a kind reads labels, annotations and owners only. The pod template is most of what a Job takes.
fn has_rule_of_metadata(object: &OwnerObject) -> bool {
    ["apps/v1", "batch/v1"].contains(&object.api_version.as_str()) && crate::table::is_known(object)
}

/// Leaves out what no rule reads.
fn read_object(object: Value) -> Result<OwnerObject, serde_json::Error> {
    let mut object = OwnerObject::deserialize(object)?;
    object.metadata.managed_fields = None;
    Ok(object)
}

/// Kartas by the group, version and kind that they describe.
type Kartas = BTreeMap<(String, String, String), (Instant, Vec<Arc<OwnerObject>>)>;

/// The resources of kinds, cached from discovery.
#[derive(Debug, Default)]
struct Resources {
    known: Mutex<BTreeMap<(String, String), Arc<ResourceKind>>>,
    kartas: Mutex<Kartas>,
    topologies: Mutex<Option<(Instant, Vec<Arc<OwnerObject>>)>>,
}

impl Resources {
    async fn find(&self, api: &Api, api_version: &str, kind: &str) -> api::Result<Option<Arc<ResourceKind>>> {
        let wanted = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.known.lock().get(&wanted) {
            return Ok(Some(Arc::clone(known)));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let listed = match api.send("GET", &group_path(group, version), None).await {
            Err(error) if error.is_not_found() => return Ok(None),
            listed => listed?,
        };
        let found = described(&listed, api_version, kind).map(Arc::new);
        if let Some(found) = &found {
            self.known.lock().insert(wanted, Arc::clone(found));
        }
        Ok(found)
    }
}

/// The resource of a kind in an `APIResourceList`.
fn described(listed: &Value, api_version: &str, kind: &str) -> Option<ResourceKind> {
    let resources = listed["resources"].as_array()?;
    let is_main = |resource: &&Value| resource["name"].as_str().is_some_and(|name| !name.contains('/'));
    let found = resources.iter().filter(is_main).find(|resource| resource["kind"] == kind)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(ResourceKind {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        plural: found["name"].as_str()?.to_owned().into(),
        namespaced: found["namespaced"] == true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_runtime::kind::JOB;
    use serde_json::json;

    #[test]
    fn objects_that_are_due_longest_are_read_first() {
        let now = Instant::now();
        let id = |name: String| Id::new("", "", "", &name);
        let at = |number: usize| now + Duration::from_secs(1000 - number as u64);
        let due = (0..READS_MAX + 50).map(|number| (at(number), id(format!("{number:03}")))).collect();
        let read = longest_due(due);
        assert_eq!((read.len(), &*read[0].name, &*read[READS_MAX - 1].name), (READS_MAX, "149", "050"));
    }

    #[test]
    fn kind_is_found_in_the_resource_list_of_its_group() {
        let listed = json!({"resources": [
            {"name": "jobs/status", "kind": "Job", "namespaced": true},
            {"name": "jobs", "kind": "Job", "namespaced": true},
        ]});
        assert_eq!(described(&listed, "batch/v1", "Job"), Some(JOB));
        assert_eq!(described(&listed, "batch/v1", "CronJob"), None);
    }

    #[test]
    fn only_kinds_of_kubernetes_are_grouped_by_their_metadata_alone() {
        let of = |api_version: &str, kind: &str| {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
            has_rule_of_metadata(&serde_json::from_value(object).unwrap())
        };
        for kind in ["Deployment", "ReplicaSet", "StatefulSet"] {
            assert!(of("apps/v1", kind), "{kind}");
        }
        assert!(of("batch/v1", "Job") && of("batch/v1", "CronJob"));
        // A Karta may describe other kinds by any field.
        assert!(!of("apps/v1", "DaemonSet") && !of("kubeflow.org/v1", "TFJob") && !of("v1", "ConfigMap"));
    }

    #[test]
    fn status_counts_for_kinds_whose_rule_reads_it() {
        let object = |api_version: &str, kind: &str, status: Value| -> OwnerObject {
            let version = status.to_string();
            let metadata = json!({"name": "a", "resourceVersion": version});
            let object =
                json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": status});
            serde_json::from_value(object).unwrap()
        };
        let equal = |api_version, kind| {
            is_equal(&object(api_version, kind, json!({"a": 1})), &object(api_version, kind, json!({"a": 2})))
        };
        assert!(equal("batch/v1", "Job"));
        assert!(!equal("ray.io/v1", "RayJob"));
        assert!(!equal("example.com/v1", "Unknown"), "a Karta may read it");
    }
}
