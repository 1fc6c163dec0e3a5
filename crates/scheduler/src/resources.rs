//! The resources that the scheduler watches: their API paths, discovery, and informers.

use crate::event_queue::{EventQueue, SchedulerEvent};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity};
use kai_cache::object::{
    BindRequest, ConfigMap, CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, Namespace, Node,
    NodeResourceTopology, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, PodGroup,
    PriorityClass, Queue, ResourceClaim, ResourceSlice, StorageClass, Topology,
};
use kai_cache::snapshot::{Discovery, GroupVersion, ServerVersion};
use kai_cache::{Kind, Object, Stored};
use kai_runtime::kind::{self, builtin, group_path};
use kai_runtime::watch::{self, Need, Shape, Source, WatchEvent};
use kai_runtime::{Process, ResourceKind, api, discovery};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub static POD_GROUP: LazyLock<ResourceKind> = LazyLock::new(ResourceKind::of::<kai_api::PodGroup>);
pub static BIND_REQUEST: LazyLock<ResourceKind> = LazyLock::new(ResourceKind::of::<kai_api::BindRequest>);
pub static QUEUE: LazyLock<ResourceKind> = LazyLock::new(ResourceKind::of::<kai_api::Queue>);
pub static TOPOLOGY: LazyLock<ResourceKind> = LazyLock::new(ResourceKind::of::<kai_api::Topology>);

/// Failed pods affect no decision, and there may be many.
const UNFAILED_PODS: &str = "fieldSelector=status.phase%21%3DFailed";

/// The API resource of a kind.
pub fn of(kind: Kind) -> ResourceKind {
    match kind {
        Kind::Pod => kind::POD,
        Kind::Node => kind::NODE,
        Kind::Namespace => kind::NAMESPACE,
        Kind::ConfigMap => kind::CONFIG_MAP,
        Kind::PersistentVolume => kind::PERSISTENT_VOLUME,
        Kind::PersistentVolumeClaim => kind::PERSISTENT_VOLUME_CLAIM,
        Kind::StorageClass => kind::STORAGE_CLASS,
        Kind::PriorityClass => kind::PRIORITY_CLASS,
        Kind::PodDisruptionBudget => kind::POD_DISRUPTION_BUDGET,
        Kind::ResourceClaim => kind::RESOURCE_CLAIM,
        Kind::ResourceSlice => kind::RESOURCE_SLICE,
        Kind::DeviceClass => kind::DEVICE_CLASS,
        Kind::NodeResourceTopology => kind::NODE_RESOURCE_TOPOLOGY,
        Kind::CsiDriver => builtin::<CSIDriver>(),
        Kind::CsiNode => builtin::<CSINode>(),
        Kind::CsiStorageCapacity => builtin::<CSIStorageCapacity>(),
        Kind::Topology => TOPOLOGY.clone(),
        Kind::Queue => QUEUE.clone(),
        Kind::PodGroup => POD_GROUP.clone(),
        Kind::BindRequest => BIND_REQUEST.clone(),
    }
}

/// Which optional APIs the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedApis {
    /// The version of `resource.k8s.io` (dynamic resource allocation) to use.
    pub device_claims: Option<&'static str>,
    /// `topology.node.k8s.io`: NUMA zones of nodes.
    pub numa_zones: bool,
}

impl ServedApis {
    /// All of them, in the preferred version.
    pub(crate) const ALL: Self = Self { device_claims: Some("v1"), numa_zones: true };

    /// The API resource of a kind, in the version that is served.
    pub fn resource(self, kind: Kind) -> ResourceKind {
        let resource = of(kind);
        match self.device_claims {
            Some(version) if resource.group == kind::RESOURCE_CLAIM.group => {
                ResourceKind { version: version.into(), ..resource }
            }
            Some(_) | None => resource,
        }
    }
}

/// Discovers which optional APIs the server serves.
pub async fn discover(api: &api::Api) -> api::Result<ServedApis> {
    Ok(ServedApis {
        device_claims: discovery::resource_version(api).await?,
        numa_zones: is_served(api, &kind::NODE_RESOURCE_TOPOLOGY).await?,
    })
}

/// How often it is discovered whether an optional API is served by now.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(2);

/// Waits until the server serves an optional API that it did not serve: its group is installed, or was missing for a while,
/// as during the start of an API server.
pub(crate) async fn until_more_is_served(api: &api::Api, before: ServedApis) {
    loop {
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
        let Ok(now) = discover(api).await else { continue };
        let is_new = now.device_claims.is_some() && before.device_claims.is_none();
        if is_new || (now.numa_zones && !before.numa_zones) {
            tracing::warn!(before = ?before, now = ?now, "the API server serves more than at the start; restarting to use it");
            return;
        }
    }
}

/// The server's version and everything that it serves, for snapshots; `None` if it does not say.
pub async fn snapshot_discovery(api: &api::Api) -> Option<Discovery> {
    match try_discovery(api).await {
        Ok(discovery) => Some(discovery),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "API discovery failed");
            None
        }
    }
}

async fn try_discovery(api: &api::Api) -> api::Result<Discovery> {
    let version = api.send("GET", "/version", None).await?;
    let groups = api.send("GET", "/apis", None).await?;
    let mut paths = vec![group_path("", "v1")];
    for group in list(&groups, "groups") {
        for version in list(group, "versions") {
            let parts = kai_object::str_at(version, "/groupVersion").split_once('/');
            paths.extend(parts.map(|(group, version)| group_path(group, version)));
        }
    }
    let mut resources = Vec::new();
    for path in paths {
        match api.send("GET", &path, None).await {
            Ok(list) => resources.extend(GroupVersion::deserialize(&list).ok()),
            // The server of an aggregated API may be down; client-go leaves it out too.
            Err(error) if error.is_not_found() || error.is_transient() => {
                tracing::warn!(path, error = &error as &dyn std::error::Error, "API discovery is incomplete");
            }
            Err(error) => return Err(error),
        }
    }
    let server_version = ServerVersion::deserialize(&version).ok();
    Ok(Discovery { server_version, resources: resources.into() })
}

/// The items of a list field; none if it is missing.
fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

async fn is_served(api: &api::Api, kind: &ResourceKind) -> api::Result<bool> {
    match api.send("GET", &group_path(&kind.group, &kind.version), None).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Visits each kind that the scheduler watches.
pub trait KindVisitor {
    /// `query` restricts lists and watches to the objects that affect decisions.
    fn visit<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    );
}

/// Visits all kinds that the scheduler watches; pods come last, since they refer to the others.
pub fn visit_kinds(served: ServedApis, visitor: &mut impl KindVisitor) {
    visitor.visit::<Node>(None);
    visitor.visit::<Queue>(None);
    visitor.visit::<PodGroup>(None);
    visitor.visit::<BindRequest>(None);
    visitor.visit::<Topology>(None);
    visitor.visit::<PriorityClass>(None);
    visitor.visit::<Namespace>(None);
    visitor.visit::<ConfigMap>(None);
    visitor.visit::<PodDisruptionBudget>(None);
    visitor.visit::<PersistentVolume>(None);
    visitor.visit::<PersistentVolumeClaim>(None);
    visitor.visit::<StorageClass>(None);
    visitor.visit::<CsiDriver>(None);
    visitor.visit::<CsiNode>(None);
    visitor.visit::<CsiStorageCapacity>(None);
    if served.device_claims.is_some() {
        visitor.visit::<ResourceClaim>(None);
        visitor.visit::<ResourceSlice>(None);
        visitor.visit::<DeviceClass>(None);
    }
    if served.numa_zones {
        visitor.visit::<NodeResourceTopology>(None);
    }
    visitor.visit::<Pod>(Some(UNFAILED_PODS));
}

/// KAI's role does not grant disruption budgets: without them the scheduler evicts as KAI does.
fn need_of(kind: Kind) -> Need {
    if kind == Kind::PodDisruptionBudget { Need::Optional } else { Need::Required }
}

/// Data of config maps, which can be large and sensitive, is neither sent nor read.
pub fn shape_of(kind: Kind) -> Shape {
    if kind.is_metadata_only() { Shape::Metadata } else { Shape::Whole }
}

/// Starts one informer for each kind; returns the kinds.
pub(crate) fn start_informers(
    process: &mut Process,
    events: &Arc<EventQueue>,
    served: ServedApis,
) -> Vec<Kind> {
    let mut informers = Informers { process, events, served, kinds: Vec::new() };
    visit_kinds(served, &mut informers);
    informers.kinds
}

struct Informers<'a> {
    process: &'a mut Process,
    events: &'a Arc<EventQueue>,
    served: ServedApis,
    kinds: Vec<Kind>,
}

impl KindVisitor for Informers<'_> {
    fn visit<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        let resource = self.served.resource(T::KIND);
        let freshness = self.process.health.watch(&resource.plural);
        let need = need_of(T::KIND);
        let query = query.map(str::to_owned);
        let source = Source { query, need, shape: shape_of(T::KIND), ..Source::all(resource) };
        let (api, events) = (self.process.api.clone(), Arc::clone(self.events));
        self.kinds.push(T::KIND);
        self.process.tasks.spawn(async move {
            let compact = |mut object: T| -> Object {
                // The resource versions of these are read before they are stored; the store compacts them.
                if !matches!(T::KIND, Kind::PodGroup | Kind::BindRequest) {
                    object.compact();
                }
                object.into()
            };
            let handle = |event| events.push(SchedulerEvent::Watch(T::KIND, event));
            watch::list_and_watch_as(&api, &source, &freshness, compact, handle).await;
        });
    }
}

/// Erases the kind of the objects of a watch event.
pub fn into_any_kind<T: Into<Object>>(event: WatchEvent<T>) -> WatchEvent<Object> {
    match event {
        WatchEvent::Listed(objects, version) => {
            WatchEvent::Listed(objects.into_iter().map(Into::into).collect(), version)
        }
        WatchEvent::Applied(object) => WatchEvent::Applied(object.into()),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(object.into()),
        WatchEvent::Invalid(object) => WatchEvent::Invalid(object),
        WatchEvent::Denied => WatchEvent::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::Instant;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn scheduler_ends_when_an_api_is_served_that_was_not() {
        let is_served = Arc::new(AtomicBool::new(false));
        let served = Arc::clone(&is_served);
        let router = Router::new().fallback(move |uri: Uri| {
            let claims = served.load(Ordering::Relaxed) && uri.path() == "/apis/resource.k8s.io";
            let group = serde_json::json!({"versions": [{"version": "v1"}]});
            let answer = if claims {
                (StatusCode::OK, group.to_string())
            } else {
                (StatusCode::NOT_FOUND, String::new())
            };
            std::future::ready(answer)
        });
        let api = api::Api::new(kube::Client::new(router, "default"), "test");
        let before = discover(&api).await.expect("the server responds");
        assert_eq!(before, ServedApis { device_claims: None, numa_zones: false });
        let ended = until_more_is_served(&api, before);
        tokio::pin!(ended);
        let hour = tokio::time::timeout(Duration::from_hours(1), &mut ended).await;
        assert!(hour.is_err(), "nothing is new");
        is_served.store(true, Ordering::Relaxed);
        let since = Instant::now();
        ended.await;
        assert!(since.elapsed() <= DISCOVERY_INTERVAL);
    }
}
