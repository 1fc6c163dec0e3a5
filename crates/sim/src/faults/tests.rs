//! Each fault, alone.

use super::*;
use crate::connection::Connection;
use crate::journal::Lines;
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
        Api::new(Connection::new(&self.server, &self.faults, client).client(), "test")
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
    let way = Connection::new(&world.server, &world.faults, "victim");
    let running = way.supervise(|way| {
        let (send, client) = (send.clone(), way.client());
        async move {
            send.send(()).unwrap();
            let api = Api::new(client, "test");
            for number in 0..4 {
                let patch = json!({"data": {"n": number.to_string()}});
                let _ = api.create(&CONFIG, "default", &config(&format!("c{number}"))).await;
                let _ =
                    api.merge(&CONFIG, &Key::new("default", &format!("c{number}")), Part::Main, &patch).await;
            }
        }
    });
    running.await;
    assert!(starts.recv().await.is_some() && starts.recv().await.is_some());
    assert_eq!(world.faults.counts("victim").crashes, 1);
    assert!(exists(&world, "c3").await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_part_of_a_client_can_be_cut_off_alone_or_with_the_whole() {
    let world = World::new();
    let (one, two) = (world.api("victim/one"), world.api("victim/two"));
    let works = async |api: &Api| api.list(&CONFIG, "").await.is_ok();
    world.faults.partition("victim/one");
    assert_eq!((works(&one).await, works(&two).await), (false, true));
    world.faults.heal("victim/one");
    world.faults.partition("victim");
    assert_eq!((works(&one).await, works(&two).await), (false, false));
    assert!(works(&world.api("victims")).await);
    world.faults.heal_all();
    assert_eq!((works(&one).await, works(&two).await), (true, true));
    world.faults.crash("victim");
    let dead = one.list(&CONFIG, "").await;
    assert!(matches!(dead, Err(Error::NoAnswer { .. })), "a part dies with the whole: {dead:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn watches_of_a_part_end_with_a_partition_of_the_whole() {
    let world = World::new();
    let api = world.api("victim/one");
    let version = api.list(&CONFIG, "").await.unwrap().resource_version;
    let stream = api.watch(&CONFIG, &version, 3_600).await.unwrap();
    pin_mut!(stream);
    world.faults.partition("victim/two");
    world.api("other").create(&CONFIG, "default", &config("a")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(WatchEvent::Added(_)))));
    world.faults.partition("victim");
    assert!(stream.next().await.unwrap().is_err());
}

const HOST: &str = "hooks.default.svc";

/// A world whose webhook adds a label to every config map.
async fn hooked(policy: &str) -> World {
    use axum::routing::post;
    let world = World::new();
    let answer = async |review: axum::body::Bytes| {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let response = json!({"uid": review["request"]["uid"], "allowed": true});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
    };
    world.server.core().hooks.serve(HOST, axum::Router::new().route("/", post(answer)));
    world.server.core().hooks.go_by(Arc::new(world.faults.clone()));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "a.hooks.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 7, "failurePolicy": policy,
            "clientConfig": {"service": {"name": "hooks", "namespace": "default", "path": "/"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    world.api("other").send("POST", path, Some(("application/json", &configuration))).await.unwrap();
    world
}

async fn write(world: &World, name: &str) -> (Option<String>, Duration) {
    let begin = tokio::time::Instant::now();
    let made = world.api("other").create(&CONFIG, "default", &config(name)).await;
    let why = made.err().map(|error| {
        let Error::Request { source, .. } = error else { panic!("{error}") };
        source.to_string()
    });
    (why, begin.elapsed())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn webhooks_are_slow_broken_or_silent() {
    let world = hooked("Fail").await;
    assert_eq!(write(&world, "well").await, (None, Duration::ZERO));

    let rates = Rates { slow: ALWAYS, delay_max: Duration::from_secs(5), ..Rates::default() };
    world.faults.set_rates_of(&webhook(HOST), rates);
    let (why, took) = write(&world, "slow").await;
    assert!(why.is_none() && took > Duration::ZERO && took <= Duration::from_secs(5), "{why:?} {took:?}");

    world.faults.set_rates_of(&webhook(HOST), Rates { broken: ALWAYS, ..Rates::default() });
    let (why, _) = write(&world, "broken").await;
    assert!(why.unwrap().contains("a simulated fault"));

    for rates in [
        Rates { timeout_before: ALWAYS, ..Rates::default() },
        Rates { timeout_after: ALWAYS, ..Rates::default() },
    ] {
        world.faults.set_rates_of("webhook", rates);
        world.faults.set_rates_of(&webhook(HOST), Rates::default());
        let (why, took) = write(&world, "silent").await;
        assert!(why.unwrap().contains("context deadline exceeded"));
        assert_eq!(took, Duration::from_secs(7), "its configuration says so");
    }
    world.faults.heal_all();
    world.faults.partition(&webhook(HOST));
    assert!(write(&world, "cut").await.0.is_some());
    world.faults.heal_all();
    assert_eq!(write(&world, "healed").await, (None, Duration::ZERO));
    assert_eq!(world.faults.counts(&webhook(HOST)).requests_hurt, 3);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn webhooks_that_may_be_ignored_only_cost_time() {
    let world = hooked("Ignore").await;
    world.faults.partition("webhook");
    assert_eq!(write(&world, "a").await, (None, Duration::from_secs(7)));
    let said = world.faults.journal().lines();
    assert!(
        said.iter().any(|line| line.contains("webhook/hooks.default.svc is asked LostBefore")),
        "{said:?}"
    );
}
