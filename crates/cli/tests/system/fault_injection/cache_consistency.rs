//! Compares the scheduler cache with the objects in the API server: without changes they converge.

use crate::test_cluster::TestCluster;
use axum::body::Body;
use kai_cache::config_file::SchedulerConfig;
use kai_cache::snapshot::{Contents, Limits, Replay, SchedulerParams, read_objects, write_zip};
use kai_cache::{Kind, Object, Objects, Stored};
use kai_components::ComponentOptions;
use kai_runtime::api::Api;
use kai_runtime::watch::{self, Source, WatchEvent};
use kai_scheduler::resources::{self, KindVisitor};
use kai_scheduler::{Binding, serve};
use serde::de::DeserializeOwned;
use std::io::Cursor;
use std::time::Duration;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// Options with a scheduler that audits its cache every 30 seconds. Every other seed binds directly, the rest as KAI does.
pub(super) fn options(seed: u64) -> ComponentOptions {
    let audit_every = Duration::from_secs(30);
    let binding = if seed.is_multiple_of(2) { Binding::Requests } else { Binding::Direct };
    let scheduler = kai_scheduler::Options { audit_every, binding, ..kai_scheduler::Options::default() };
    ComponentOptions { scheduler, ..ComponentOptions::simulated() }
}

/// After a minute without changes the cache equals the stored objects, and no audit has found a difference.
pub(super) async fn assert_consistent(cluster: &TestCluster, seed: u64) {
    cluster.sleep(Duration::from_mins(1)).await;
    let differences = differences(cluster).await;
    assert!(differences.is_empty(), "seed {seed}: {}", differences.join("\n"));
    assert!(audits_failed(cluster).abs() < f64::EPSILON, "seed {seed}: an audit failed");
}

const SNAPSHOT_BYTES_MAX: usize = 1 << 26;

/// Objects in the cache of the running scheduler; `None` while none runs.
async fn cached(cluster: &TestCluster) -> Option<Objects> {
    let queries = cluster.scheduler.queries()?;
    let request = axum::http::Request::get("/get-snapshot").body(Body::empty()).unwrap();
    let response = serve::router(queries).oneshot(request).await.unwrap();
    if !response.status().is_success() {
        return None;
    }
    let zip = axum::body::to_bytes(response.into_body(), SNAPSHOT_BYTES_MAX).await.unwrap();
    Some(objects(&zip))
}

fn objects(zip: &[u8]) -> Objects {
    read_objects("a snapshot", Cursor::new(zip), Limits::default()).unwrap()
}

/// The same kinds from the API server, written to a snapshot and read back like the cache.
async fn stored(cluster: &TestCluster) -> Objects {
    let offered = resources::discover(cluster.api()).await.unwrap();
    let mut lists = Lists { api: cluster.api().clone(), tasks: JoinSet::new() };
    resources::visit_kinds(offered, &mut lists);
    let mut objects = Objects::default();
    while let Some(listed) = lists.tasks.join_next().await {
        for object in listed.unwrap() {
            objects.insert(object);
        }
    }
    let (config, params, replay) =
        (SchedulerConfig::default(), SchedulerParams::default(), Replay::default());
    let contents =
        Contents { config: &config, params: &params, objects: &objects, replay: &replay, discovery: None };
    let mut zip = Cursor::new(Vec::new());
    write_zip(contents, &mut zip).unwrap();
    self::objects(&zip.into_inner())
}

struct Lists {
    api: Api,
    tasks: JoinSet<Vec<Object>>,
}

impl KindVisitor for Lists {
    fn visit<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        let api = self.api.clone();
        let source = Source { query: query.map(str::to_owned), ..Source::all(resources::of(T::KIND)) };
        self.tasks.spawn(async move {
            let mut all = Vec::new();
            let mut collect = |event: WatchEvent<T>| {
                if let WatchEvent::Listed(objects, _) = event {
                    all.extend(objects.into_iter().map(Into::into));
                }
            };
            watch::list(&api, &source, &mut collect).await.unwrap();
            all
        });
    }
}

/// Kinds that must be equal. Nodes are left out: their heartbeats change all the time.
const KINDS: [Kind; 6] =
    [Kind::Pod, Kind::PodGroup, Kind::Queue, Kind::BindRequest, Kind::ConfigMap, Kind::PriorityClass];

/// Differences between the cache and the API server; none while no scheduler runs.
async fn differences(cluster: &TestCluster) -> Vec<String> {
    let Some(mut cached) = cached(cluster).await else { return Vec::new() };
    // A group that has the uid of its pod has no object.
    cached.pod_groups.retain(|_, group| {
        let owner = group.metadata.owner_references.iter().flatten().next();
        owner.is_none_or(|owner| Some(&owner.uid) != group.metadata.uid.as_ref())
    });
    let stored = stored(cluster).await;
    let mut differences = Vec::new();
    for kind in KINDS {
        let (ours, theirs) = (cached.keys(kind), stored.keys(kind));
        differences.extend(
            ours.iter()
                .filter(|key| !theirs.contains(key))
                .map(|key| format!("{kind} {key} is deleted, and cached")),
        );
        differences.extend(
            theirs
                .iter()
                .filter(|key| !ours.contains(key))
                .map(|key| format!("{kind} {key} is missing in the cache")),
        );
    }
    for (key, pod) in &cached.pods {
        if stored.pods.get(key).is_some_and(|known| known != pod) {
            differences.push(format!("pod {key} is\n{:?}\nand not\n{pod:?}", stored.pods[key]));
        }
    }
    for (key, request) in &cached.bind_requests {
        if stored.bind_requests.get(key).is_some_and(|known| known != request) {
            differences.push(format!("request {key} is {:?} and not {request:?}", stored.bind_requests[key]));
        }
    }
    for (key, group) in &cached.pod_groups {
        if stored.pod_groups.get(key).is_some_and(|known| known.spec != group.spec) {
            differences.push(format!("group {key} is {:?} and not {group:?}", stored.pod_groups[key]));
        }
    }
    differences
}

/// Differences that audits found, summed over all restarts of the scheduler.
fn audits_failed(cluster: &TestCluster) -> f64 {
    let registries = cluster.scheduler.metrics();
    let families = registries.iter().flat_map(prometheus::Registry::gather);
    let differences = families.filter(|family| family.name() == "kai_audit_differences_total");
    differences.flat_map(|family| family.get_metric().to_vec()).map(|m| m.get_counter().get_value()).sum()
}
