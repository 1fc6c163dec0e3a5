//! Each fault, alone.

use super::*;
use crate::journal::Lines;
use crate::supervise::connect;
use futures::{StreamExt, pin_mut};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kai_runtime::api::{Api, Error, Part};
use kai_runtime::kind::{Key, Kind};
use kube::core::WatchEvent;
use serde_json::{Value, json};

const ALWAYS: u32 = 1_000_000;
const TIMEOUT: Duration = Duration::from_secs(7);

struct World {
    server: ApiServer,
    faults: Faults,
}

impl World {
    fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(&Options::new(1, clock));
        Self { server, faults: Faults::new(7, Journal::new(clock, Lines::Kept)) }
    }

    fn api(&self, client: &str) -> Api {
        Api::new(connect(&self.server, &self.faults, client), "test")
    }

    fn with(rates: Rates) -> Self {
        let world = Self::new();
        world.faults.set_rates_of("victim", Rates { timeout: TIMEOUT, ..rates });
        world
    }
}

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

const CONFIG: Kind = Kind {
    group: std::borrow::Cow::Borrowed(""),
    version: std::borrow::Cow::Borrowed("v1"),
    kind: std::borrow::Cow::Borrowed("ConfigMap"),
    plural: std::borrow::Cow::Borrowed("configmaps"),
    namespaced: true,
};

async fn exists(world: &World, name: &str) -> bool {
    world.api("other").get(&CONFIG, &Key::new("default", name)).await.is_ok()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_lost_request_may_or_may_not_have_been_done() {
    let before = World::with(Rates { timeout_before: ALWAYS, ..Rates::default() });
    let begin = tokio::time::Instant::now();
    let error = before.api("victim").create(&CONFIG, "default", &config("a")).await.unwrap_err();
    assert_eq!((error.code(), begin.elapsed()), (0, TIMEOUT));
    assert!(!exists(&before, "a").await);

    let after = World::with(Rates { timeout_after: ALWAYS, ..Rates::default() });
    assert!(after.api("victim").create(&CONFIG, "default", &config("a")).await.is_err());
    assert!(exists(&after, "a").await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn conflicts_hit_writes_and_nothing_else() {
    let world = World::with(Rates { conflict: ALWAYS, ..Rates::default() });
    let api = world.api("victim");
    assert!(api.create(&CONFIG, "default", &config("a")).await.unwrap_err().is_conflict());
    assert!(!exists(&world, "a").await);
    assert!(api.list(&CONFIG, "").await.is_ok());
    assert_eq!(world.faults.counts("victim").requests_hurt, 1);
}

async fn events(api: &Api, world: &World, count: usize) -> Vec<Result<WatchEvent<Value>, Error>> {
    let version = api.list(&CONFIG, "").await.unwrap().resource_version;
    let stream = match api.watch(&CONFIG, &version, 60).await {
        Ok(stream) => stream,
        Err(error) => return vec![Err(error)],
    };
    for number in 0..count {
        world.api("other").create(&CONFIG, "default", &config(&format!("c{number}"))).await.unwrap();
    }
    pin_mut!(stream);
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        if !matches!(event, Ok(WatchEvent::Bookmark(_))) {
            seen.push(event);
        }
    }
    seen
}

fn names(events: &[Result<WatchEvent<Value>, Error>]) -> Vec<String> {
    let mut names = Vec::new();
    for event in events {
        if let Ok(WatchEvent::Added(object)) = event {
            names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    names
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn events_are_repeated_delayed_lost_or_dropped() {
    let world = World::with(Rates { event_repeated: ALWAYS, ..Rates::default() });
    assert_eq!(names(&events(&world.api("victim"), &world, 2).await), ["c0", "c0", "c1", "c1"]);

    let rates = Rates { event_late: ALWAYS, delay_max: Duration::from_secs(5), ..Rates::default() };
    let world = World::with(rates);
    assert_eq!(names(&events(&world.api("victim"), &world, 2).await), ["c0", "c1"]);

    let world = World::with(Rates { event_lost: ALWAYS, ..Rates::default() });
    assert!(names(&events(&world.api("victim"), &world, 2).await).is_empty());

    let world = World::with(Rates { event_dropped: ALWAYS, ..Rates::default() });
    let seen = events(&world.api("victim"), &world, 2).await;
    assert!(matches!(seen.as_slice(), [Err(_)]), "{seen:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_watch_can_expire_at_its_start_and_on_its_way() {
    let world = World::with(Rates { expired: ALWAYS, ..Rates::default() });
    let seen = events(&world.api("victim"), &world, 1).await;
    assert!(matches!(seen.as_slice(), [Err(error)] if error.code() == 410), "{seen:?}");

    let world = World::with(Rates { event_expired: ALWAYS, ..Rates::default() });
    let seen = events(&world.api("victim"), &world, 1).await;
    assert!(matches!(seen.as_slice(), [Ok(WatchEvent::Error(status))] if status.code == 410), "{seen:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_partition_cuts_requests_and_watches_of_one_client() {
    let world = World::new();
    let api = world.api("victim");
    let version = api.list(&CONFIG, "").await.unwrap().resource_version;
    let stream = api.watch(&CONFIG, &version, 3_600).await.unwrap();
    pin_mut!(stream);
    world.faults.partition("victim");
    assert!(stream.next().await.unwrap().is_err());
    assert!(api.list(&CONFIG, "").await.is_err());
    assert!(world.api("other").list(&CONFIG, "").await.is_ok());
    world.faults.heal("victim");
    assert!(api.list(&CONFIG, "").await.is_ok());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_client_crashes_between_two_requests_and_is_started_again() {
    let world = World::new();
    world.faults.crash_after("victim", 2);
    let (send, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let running =
        crate::supervise::supervise(world.server.clone(), world.faults.clone(), "victim", |client| {
            let send = send.clone();
            async move {
                send.send(()).unwrap();
                let api = Api::new(client, "test");
                for number in 0..4 {
                    let patch = json!({"data": {"n": number.to_string()}});
                    let _ = api.create(&CONFIG, "default", &config(&format!("c{number}"))).await;
                    let _ = api
                        .merge(&CONFIG, &Key::new("default", &format!("c{number}")), Part::Main, &patch)
                        .await;
                }
            }
        });
    running.await;
    assert!(starts.recv().await.is_some() && starts.recv().await.is_some());
    assert_eq!(world.faults.counts("victim").crashes, 1);
    assert!(exists(&world, "c3").await);
}
