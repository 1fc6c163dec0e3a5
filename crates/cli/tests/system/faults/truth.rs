//! What the scheduler believes, compared with what the server has: after a quiet moment they are the same.

use crate::world::World;
use axum::body::Body;
use kai_cache::config_file::SchedulerConfig;
use kai_cache::snapshot::{Contents, Limits, Replay, SchedulerParams, read_objects, write_zip};
use kai_cache::{Kind, Object, Objects, Stored};
use kai_cli::stack;
use kai_runtime::api::Api;
use kai_runtime::watch::{self, News, Source};
use kai_scheduler::resources::{self, Reader};
use kai_scheduler::serve;
use serde::de::DeserializeOwned;
use std::io::Cursor;
use std::time::Duration;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// Components of which the scheduler audits itself every half a minute.
pub(super) fn options() -> stack::Options {
    let audit_every = Duration::from_secs(30);
    let scheduler = kai_scheduler::Options { audit_every, ..kai_scheduler::Options::default() };
    stack::Options { scheduler, ..stack::Options::simulated() }
}

/// After a quiet moment the scheduler believes what is there, and no audit ever found its cluster wrong.
pub(super) async fn holds(world: &World, seed: u64) {
    world.pass(Duration::from_mins(1)).await;
    let differences = differences(world).await;
    assert!(differences.is_empty(), "seed {seed}: {}", differences.join("\n"));
    assert!(audits_failed(world).abs() < f64::EPSILON, "seed {seed}: an audit failed");
}

/// The most that a snapshot may be.
const BYTES_MAX: usize = 1 << 26;

/// What the scheduler that runs now believes; nothing while none does.
async fn believed(world: &World) -> Option<Objects> {
    let queries = world.insight.queries()?;
    let request = axum::http::Request::get("/get-snapshot").body(Body::empty()).unwrap();
    let response = serve::router(queries).oneshot(request).await.unwrap();
    if !response.status().is_success() {
        return None;
    }
    let zip = axum::body::to_bytes(response.into_body(), BYTES_MAX).await.unwrap();
    Some(objects(&zip))
}

fn objects(zip: &[u8]) -> Objects {
    read_objects("a snapshot", Cursor::new(zip), Limits::default()).unwrap()
}

/// What the server has of that, after the same way through a snapshot.
async fn there(world: &World) -> Objects {
    let offered = resources::offered(world.api()).await.unwrap();
    let mut lists = Lists { api: world.api().clone(), tasks: JoinSet::new() };
    resources::each(offered, &mut lists);
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

impl Reader for Lists {
    fn read<T: Stored + DeserializeOwned + Into<Object> + Send + 'static>(
        &mut self,
        query: Option<&'static str>,
    ) {
        let api = self.api.clone();
        let source = Source { query: query.map(str::to_owned), ..Source::all(resources::of(T::KIND)) };
        self.tasks.spawn(async move {
            let mut all = Vec::new();
            let mut tell = |news: News<T>| {
                if let News::All(objects, _) = news {
                    all.extend(objects.into_iter().map(Into::into));
                }
            };
            watch::all(&api, &source, &mut tell).await.unwrap();
            all
        });
    }
}

/// Kinds whose every change matters; nodes say by the clock how they are.
const KINDS: [Kind; 6] =
    [Kind::Pod, Kind::PodGroup, Kind::Queue, Kind::BindRequest, Kind::ConfigMap, Kind::PriorityClass];

/// How what the scheduler believes differs from what the server has; nothing when it does not, or nobody runs.
async fn differences(world: &World) -> Vec<String> {
    let Some(believed) = believed(world).await else { return Vec::new() };
    let there = there(world).await;
    let mut differences = Vec::new();
    for kind in KINDS {
        let (ours, theirs) = (believed.keys(kind), there.keys(kind));
        differences.extend(
            ours.iter().filter(|key| !theirs.contains(key)).map(|key| format!("{kind} {key} is gone")),
        );
        differences.extend(
            theirs.iter().filter(|key| !ours.contains(key)).map(|key| format!("{kind} {key} is new")),
        );
    }
    for (key, pod) in &believed.pods {
        if there.pods.get(key).is_some_and(|known| known != pod) {
            differences.push(format!("pod {key} is\n{:?}\nand not\n{pod:?}", there.pods[key]));
        }
    }
    for (key, request) in &believed.bind_requests {
        if there.bind_requests.get(key).is_some_and(|known| known != request) {
            differences.push(format!("request {key} is {:?} and not {request:?}", there.bind_requests[key]));
        }
    }
    for (key, group) in &believed.pod_groups {
        if there.pod_groups.get(key).is_some_and(|known| known.spec != group.spec) {
            differences.push(format!("group {key} is {:?} and not {group:?}", there.pod_groups[key]));
        }
    }
    differences
}

/// How often an audit found the scheduler's cluster different from its objects, in all its lives.
fn audits_failed(world: &World) -> f64 {
    let lives = world.insight.metrics();
    let families = lives.iter().flat_map(prometheus::Registry::gather);
    let differences = families.filter(|family| family.name() == "kai_audit_differences_total");
    differences.flat_map(|family| family.get_metric().to_vec()).map(|m| m.get_counter().get_value()).sum()
}
