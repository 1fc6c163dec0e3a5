//! Where the API keeps what the scheduler reads, and how it is followed.

use crate::inbox::{Change, Inbox};
use kai_cache::object::{
    BindRequest, ConfigMap, CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, Namespace, Node,
    NodeResourceTopology, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, PodGroup,
    PriorityClass, Queue, ResourceClaim, ResourceSlice, StorageClass, Topology,
};
use kai_cache::{Kind, Object, Stored};
use kai_engine::input;
use kai_runtime::kind::{self, untyped as resource};
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_runtime::{Key, Process, api};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Pod groups.
pub const POD_GROUP: kai_runtime::ResourceKind =
    resource("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", true);
/// Orders to the binder.
pub const BIND_REQUEST: kai_runtime::ResourceKind =
    resource("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests", true);
/// Queues.
pub const QUEUE: kai_runtime::ResourceKind = resource("scheduling.run.ai", "v2", "Queue", "queues", false);
/// Topologies.
pub const TOPOLOGY: kai_runtime::ResourceKind =
    resource("kai.scheduler", "v1alpha1", "Topology", "topologies", false);

/// Failed pods count for nothing, and there may be many.
const LIVING_PODS: &str = "fieldSelector=status.phase%21%3DFailed";

/// Where the API keeps objects of a kind.
pub fn of(kind: Kind) -> kai_runtime::ResourceKind {
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
        Kind::CsiDriver => resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false),
        Kind::CsiNode => resource("storage.k8s.io", "v1", "CSINode", "csinodes", false),
        Kind::CsiStorageCapacity => {
            resource("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", true)
        }
        Kind::Topology => TOPOLOGY,
        Kind::Queue => QUEUE,
        Kind::PodGroup => POD_GROUP,
        Kind::BindRequest => BIND_REQUEST,
    }
}

/// A name as requests write it.
pub(crate) fn api_key(key: &input::Key) -> Key {
    Key::new(&key.namespace, &key.name)
}

/// What the server offers of the kinds that not every cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Device claims.
    pub device_claims: bool,
    /// NUMA zones of nodes.
    pub numa_zones: bool,
}

/// Asks what the server offers.
pub async fn offered(api: &api::Api) -> api::Result<Offered> {
    Ok(Offered {
        device_claims: is_served(api, &kind::RESOURCE_CLAIM).await?,
        numa_zones: is_served(api, &kind::NODE_RESOURCE_TOPOLOGY).await?,
    })
}

async fn is_served(api: &api::Api, kind: &kai_runtime::ResourceKind) -> api::Result<bool> {
    match api.send("GET", &format!("/apis/{}/{}", kind.group, kind.version), None).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whatever does something with each kind that the scheduler reads.
pub trait Reader {
    /// Does it; the query leaves out what counts for nothing.
    fn read<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    );
}

/// Shows a reader each kind that the scheduler reads; pods come last, since they refer to the others.
pub fn each(offered: Offered, reader: &mut impl Reader) {
    reader.read::<Node>(None);
    reader.read::<Queue>(None);
    reader.read::<PodGroup>(None);
    reader.read::<BindRequest>(None);
    reader.read::<Topology>(None);
    reader.read::<PriorityClass>(None);
    reader.read::<Namespace>(None);
    reader.read::<ConfigMap>(None);
    reader.read::<PodDisruptionBudget>(None);
    reader.read::<PersistentVolume>(None);
    reader.read::<PersistentVolumeClaim>(None);
    reader.read::<StorageClass>(None);
    reader.read::<CsiDriver>(None);
    reader.read::<CsiNode>(None);
    reader.read::<CsiStorageCapacity>(None);
    if offered.device_claims {
        reader.read::<ResourceClaim>(None);
        reader.read::<ResourceSlice>(None);
        reader.read::<DeviceClass>(None);
    }
    if offered.numa_zones {
        reader.read::<NodeResourceTopology>(None);
    }
    reader.read::<Pod>(Some(LIVING_PODS));
}

/// Follows everything that the scheduler reads; says which kinds that is.
pub(crate) fn follow(process: &mut Process, inbox: &Arc<Inbox>, offered: Offered) -> Vec<Kind> {
    let mut watches = Watches { process, inbox, kinds: Vec::new() };
    each(offered, &mut watches);
    watches.kinds
}

struct Watches<'a> {
    process: &'a mut Process,
    inbox: &'a Arc<Inbox>,
    kinds: Vec<Kind>,
}

impl Reader for Watches<'_> {
    fn read<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        let resource = of(T::KIND);
        let freshness = self.process.health.watch(&resource.plural);
        let source = Source { query: query.map(str::to_owned), ..Source::all(resource) };
        let (api, inbox) = (self.process.api.clone(), Arc::clone(self.inbox));
        self.kinds.push(T::KIND);
        self.process.tasks.spawn(async move {
            watch::list_and_watch(&api, &source, &freshness, |news: WatchEvent<T>| {
                inbox.put(Change::WatchEvent(T::KIND, of_any_kind(news)));
            })
            .await;
        });
    }
}

/// The same news about an object of any kind.
pub fn of_any_kind<T: Into<Object>>(news: WatchEvent<T>) -> WatchEvent<Object> {
    match news {
        WatchEvent::Listed(objects, version) => {
            WatchEvent::Listed(objects.into_iter().map(Into::into).collect(), version)
        }
        WatchEvent::Applied(object) => WatchEvent::Applied(object.into()),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(object.into()),
        WatchEvent::Invalid(object) => WatchEvent::Invalid(object),
    }
}
