//! Each fault on its own.

use super::*;
use crate::connection::Connection;
use crate::journal::Lines;
use futures::{StreamExt, pin_mut};
use kai_apiserver::{ApiServer, Options, RestoredRevision};
use kai_clock::Clock;
use kai_runtime::api::{Api, Error, Part};
use kai_runtime::health::Health;
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::kind::{Key, ResourceKind};
use kube::core::WatchEvent;
use serde_json::{Value, json};

const ALWAYS: u32 = 1_000_000;
const TIMEOUT: Duration = Duration::from_secs(7);

struct TestServer {
    inner: ApiServer,
    faults: Faults,
}

impl TestServer {
    fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(&Options::new(1, clock));
        Self { inner: server, faults: Faults::new(7, Journal::new(clock, Lines::Kept)) }
    }

    fn api(&self, client: &str) -> Api {
        Api::new(Connection::new(&self.inner, &self.faults, client).client(), "test")
    }

    fn with(rates: FaultRates) -> Self {
        let server = Self::new();
        server.faults.set_client_rates("victim", FaultRates { timeout: TIMEOUT, ..rates });
        server
    }
}

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

const CONFIG: ResourceKind = ResourceKind {
    group: std::borrow::Cow::Borrowed(""),
    version: std::borrow::Cow::Borrowed("v1"),
    kind: std::borrow::Cow::Borrowed("ConfigMap"),
    plural: std::borrow::Cow::Borrowed("configmaps"),
    namespaced: true,
};

async fn exists(server: &TestServer, name: &str) -> bool {
    server.api("other").get_dynamic(&CONFIG, &Key::new("default", name)).await.is_ok()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn lost_requests_are_processed_only_when_the_response_is_lost() {
    let before = TestServer::with(FaultRates { timeout_before: ALWAYS, ..FaultRates::default() });
    let begin = tokio::time::Instant::now();
    let error = before.api("victim").create_dynamic(&CONFIG, "default", &config("a")).await.unwrap_err();
    assert_eq!((error.code(), begin.elapsed()), (0, TIMEOUT));
    assert!(!exists(&before, "a").await);

    let after = TestServer::with(FaultRates { timeout_after: ALWAYS, ..FaultRates::default() });
    assert!(after.api("victim").create_dynamic(&CONFIG, "default", &config("a")).await.is_err());
    assert!(exists(&after, "a").await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn torn_response_follows_a_processed_request_and_a_foreign_page_none() {
    let torn = TestServer::with(FaultRates { response_torn: ALWAYS, ..FaultRates::default() });
    assert!(torn.api("victim").create_dynamic(&CONFIG, "default", &config("a")).await.is_err());
    assert!(exists(&torn, "a").await);
    assert!(torn.api("victim").list_dynamic(&CONFIG, "").await.is_err());

    let foreign = TestServer::with(FaultRates { response_foreign: ALWAYS, ..FaultRates::default() });
    let api = foreign.api("victim");
    for number in 0..20 {
        let name = format!("a{number}");
        assert!(api.create_dynamic(&CONFIG, "default", &config(&name)).await.is_err(), "{number}");
        assert!(!exists(&foreign, &name).await);
        assert!(api.get_dynamic(&CONFIG, &Key::new("default", "a")).await.is_err(), "{number}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn injected_conflicts_affect_only_writes() {
    let server = TestServer::with(FaultRates { conflict: ALWAYS, ..FaultRates::default() });
    let api = server.api("victim");
    assert!(api.create_dynamic(&CONFIG, "default", &config("a")).await.unwrap_err().is_conflict());
    assert!(!exists(&server, "a").await);
    assert!(api.list_dynamic(&CONFIG, "").await.is_ok());
    assert_eq!(server.faults.counts("victim").faulty_requests, 1);
}

async fn events(api: &Api, server: &TestServer, count: usize) -> Vec<Result<WatchEvent<Value>, Error>> {
    let version = api.list_dynamic(&CONFIG, "").await.unwrap().resource_version;
    let stream = match api.watch_dynamic(&CONFIG, &version, 60).await {
        Ok(stream) => stream,
        Err(error) => return vec![Err(error)],
    };
    for number in 0..count {
        server.api("other").create_dynamic(&CONFIG, "default", &config(&format!("c{number}"))).await.unwrap();
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
    let server = TestServer::with(FaultRates { event_repeated: ALWAYS, ..FaultRates::default() });
    assert_eq!(names(&events(&server.api("victim"), &server, 2).await), ["c0", "c0", "c1", "c1"]);

    let rates = FaultRates { event_late: ALWAYS, delay_max: Duration::from_secs(5), ..FaultRates::default() };
    let server = TestServer::with(rates);
    assert_eq!(names(&events(&server.api("victim"), &server, 2).await), ["c0", "c1"]);

    let server = TestServer::with(FaultRates { event_lost: ALWAYS, ..FaultRates::default() });
    assert!(names(&events(&server.api("victim"), &server, 2).await).is_empty());

    let server = TestServer::with(FaultRates { event_dropped: ALWAYS, ..FaultRates::default() });
    let seen = events(&server.api("victim"), &server, 2).await;
    assert!(matches!(seen.as_slice(), [Err(_)]), "{seen:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn watch_expires_at_its_start_and_between_events() {
    let server = TestServer::with(FaultRates { expired: ALWAYS, ..FaultRates::default() });
    let seen = events(&server.api("victim"), &server, 1).await;
    assert!(matches!(seen.as_slice(), [Err(error)] if error.code() == 410), "{seen:?}");

    let server = TestServer::with(FaultRates { event_expired: ALWAYS, ..FaultRates::default() });
    let seen = events(&server.api("victim"), &server, 1).await;
    assert!(matches!(seen.as_slice(), [Ok(WatchEvent::Error(status))] if status.code == 410), "{seen:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn watches_fall_silent_end_inside_an_event_or_lag() {
    let silence = Duration::from_secs(45);
    let server = TestServer::with(FaultRates { event_silenced: ALWAYS, silence, ..FaultRates::default() });
    let begin = tokio::time::Instant::now();
    let seen = events(&server.api("victim"), &server, 2).await;
    assert!(matches!(seen.as_slice(), [Err(_)]), "{seen:?}");
    assert_eq!(begin.elapsed(), silence);

    let server = TestServer::with(FaultRates { event_torn: ALWAYS, ..FaultRates::default() });
    let seen = events(&server.api("victim"), &server, 2).await;
    assert!(names(&seen).is_empty(), "{seen:?}");

    let server = TestServer::with(FaultRates { event_closed: ALWAYS, ..FaultRates::default() });
    let seen = events(&server.api("victim"), &server, 2).await;
    assert!(seen.is_empty(), "{seen:?}");

    let delay_max = Duration::from_secs(5);
    let server = TestServer::with(FaultRates { watch_lagging: ALWAYS, delay_max, ..FaultRates::default() });
    let api = server.api("victim");
    let version = api.list_dynamic(&CONFIG, "").await.unwrap().resource_version;
    let stream = api.watch_dynamic(&CONFIG, &version, 60).await.unwrap();
    pin_mut!(stream);
    let other = server.api("other");
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.create_dynamic(&CONFIG, "default", &config("a")).await.unwrap();
        tokio::time::Instant::now()
    };
    let (event, created) = futures::join!(stream.next(), later);
    assert!(matches!(event, Some(Ok(WatchEvent::Added(_)))));
    assert!(created.elapsed() > Duration::ZERO && created.elapsed() <= delay_max, "{:?}", created.elapsed());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn lists_have_small_pages_that_expire_in_the_middle() {
    let server =
        TestServer::with(FaultRates { page_objects: 1, page_expired: ALWAYS, ..FaultRates::default() });
    for name in ["a", "b"] {
        server.api("other").create_dynamic(&CONFIG, "default", &config(name)).await.unwrap();
    }
    let (api, path) = (server.api("victim"), CONFIG.path("default"));
    let page = api.send("GET", &format!("{path}?limit=500"), None).await.unwrap();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
    let next = page["metadata"]["continue"].as_str().unwrap();
    let error = api.send("GET", &format!("{path}?limit=500&continue={next}"), None).await.unwrap_err();
    assert_eq!(error.code(), 410);
    assert_eq!(api.list_dynamic(&CONFIG, "default").await.unwrap().items.len(), 2, "without a limit");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn rights_and_kinds_are_missing_until_they_are_back() {
    let server = TestServer::new();
    let api = server.api("victim");
    for (outage, code) in [(Outage::forbidden("/configmaps"), 403), (Outage::not_served("/configmaps"), 404)]
    {
        server.faults.set_outage("victim", outage);
        assert_eq!(api.list_dynamic(&CONFIG, "").await.unwrap_err().code(), code);
        server.faults.heal("victim");
        assert!(api.list_dynamic(&CONFIG, "").await.is_ok());
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn partition_breaks_requests_and_watches_of_one_client() {
    let server = TestServer::new();
    let api = server.api("victim");
    let version = api.list_dynamic(&CONFIG, "").await.unwrap().resource_version;
    let stream = api.watch_dynamic(&CONFIG, &version, 3_600).await.unwrap();
    pin_mut!(stream);
    server.faults.partition("victim");
    assert!(stream.next().await.unwrap().is_err());
    assert!(api.list_dynamic(&CONFIG, "").await.is_err());
    assert!(server.api("other").list_dynamic(&CONFIG, "").await.is_ok());
    server.faults.heal("victim");
    assert!(api.list_dynamic(&CONFIG, "").await.is_ok());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn client_crashes_between_two_requests_and_is_restarted() {
    let server = TestServer::new();
    server.faults.crash_after("victim", 2);
    let (send, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let connection = Connection::new(&server.inner, &server.faults, "victim");
    let running = connection.supervise(|connection| {
        let (send, client) = (send.clone(), connection.client());
        async move {
            send.send(()).unwrap();
            let api = Api::new(client, "test");
            for number in 0..4 {
                let patch = json!({"data": {"n": number.to_string()}});
                let _ = api.create_dynamic(&CONFIG, "default", &config(&format!("c{number}"))).await;
                let _ = api
                    .patch_dynamic(&CONFIG, &Key::new("default", format!("c{number}")), Part::Main, &patch)
                    .await;
            }
        }
    });
    running.await;
    assert!(starts.recv().await.is_some() && starts.recv().await.is_some());
    assert_eq!(server.faults.counts("victim").crashes, 1);
    assert!(exists(&server, "c3").await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn child_client_is_partitioned_alone_or_with_its_parent() {
    let server = TestServer::new();
    let (one, two) = (server.api("victim/one"), server.api("victim/two"));
    let works = async |api: &Api| api.list_dynamic(&CONFIG, "").await.is_ok();
    server.faults.partition("victim/one");
    assert_eq!((works(&one).await, works(&two).await), (false, true));
    server.faults.heal("victim/one");
    server.faults.partition("victim");
    assert_eq!((works(&one).await, works(&two).await), (false, false));
    assert!(works(&server.api("victims")).await);
    server.faults.heal_all();
    assert_eq!((works(&one).await, works(&two).await), (true, true));
    server.faults.crash("victim");
    let dead = one.list_dynamic(&CONFIG, "").await;
    assert!(matches!(dead, Err(Error::Timeout { .. })), "a child crashes with its parent: {dead:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn watches_of_a_child_break_with_a_partition_of_its_parent() {
    let server = TestServer::new();
    let api = server.api("victim/one");
    let version = api.list_dynamic(&CONFIG, "").await.unwrap().resource_version;
    let stream = api.watch_dynamic(&CONFIG, &version, 3_600).await.unwrap();
    pin_mut!(stream);
    server.faults.partition("victim/two");
    server.api("other").create_dynamic(&CONFIG, "default", &config("a")).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(WatchEvent::Added(_)))));
    server.faults.partition("victim");
    assert!(stream.next().await.unwrap().is_err());
}

const HOST: &str = "hooks.default.svc";

/// A server with a webhook that allows every config map.
async fn with_webhook(policy: &str) -> TestServer {
    use axum::routing::post;
    let server = TestServer::new();
    let answer = async |review: axum::body::Bytes| {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let response = json!({"uid": review["request"]["uid"], "allowed": true});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
    };
    server.inner.core().webhooks.serve(HOST, axum::Router::new().route("/", post(answer)));
    server.inner.core().webhooks.set_transport(Arc::new(server.faults.clone()));
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
    server.api("other").send("POST", path, Some(("application/json", &configuration))).await.unwrap();
    server
}

async fn write(server: &TestServer, name: &str) -> (Option<String>, Duration) {
    let begin = tokio::time::Instant::now();
    let made = server.api("other").create_dynamic(&CONFIG, "default", &config(name)).await;
    let why = made.err().map(|error| {
        let Error::Request { source, .. } = error else { panic!("{error}") };
        source.to_string()
    });
    (why, begin.elapsed())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn webhook_calls_are_delayed_fail_or_time_out() {
    let server = with_webhook("Fail").await;
    assert_eq!(write(&server, "well").await, (None, Duration::ZERO));

    let rates = FaultRates { slow: ALWAYS, delay_max: Duration::from_secs(5), ..FaultRates::default() };
    server.faults.set_client_rates(&webhook_client(HOST), rates);
    let (why, took) = write(&server, "slow").await;
    assert!(why.is_none() && took > Duration::ZERO && took <= Duration::from_secs(5), "{why:?} {took:?}");

    server.faults.set_client_rates(
        &webhook_client(HOST),
        FaultRates { webhook_error: ALWAYS, ..FaultRates::default() },
    );
    let (why, _) = write(&server, "broken").await;
    assert!(why.unwrap().contains("a simulated fault"));

    for (rates, expected) in [
        (FaultRates { webhook_garbage: ALWAYS, ..FaultRates::default() }, "failed calling webhook"),
        (FaultRates { webhook_denied: ALWAYS, ..FaultRates::default() }, "denied by a simulated fault"),
    ] {
        server.faults.set_client_rates(&webhook_client(HOST), rates);
        let why = write(&server, "refused").await.0.unwrap();
        assert!(why.contains(expected), "{why}");
    }
    for rates in [
        FaultRates { timeout_before: ALWAYS, ..FaultRates::default() },
        FaultRates { timeout_after: ALWAYS, ..FaultRates::default() },
    ] {
        server.faults.set_client_rates("webhook", rates);
        server.faults.set_client_rates(&webhook_client(HOST), FaultRates::default());
        let (why, took) = write(&server, "silent").await;
        assert!(why.unwrap().contains("context deadline exceeded"));
        assert_eq!(took, Duration::from_secs(7), "the timeout of its configuration");
    }
    server.faults.heal_all();
    server.faults.partition(&webhook_client(HOST));
    assert!(write(&server, "cut").await.0.is_some());
    server.faults.heal_all();
    assert_eq!(write(&server, "healed").await, (None, Duration::ZERO));
    assert_eq!(server.faults.counts(&webhook_client(HOST)).faulty_requests, 5);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn unreachable_webhook_with_policy_ignore_only_delays_the_request() {
    let server = with_webhook("Ignore").await;
    server.faults.partition("webhook");
    assert_eq!(write(&server, "a").await, (None, Duration::from_secs(7)));
    let lines = server.faults.journal().lines();
    assert!(lines.iter().any(|line| line.contains("webhook/hooks.default.svc call LostBefore")), "{lines:?}");
}

/// Without a look at the server's version after each reconnection, the watch would wait for a version that the server no longer
/// has.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn informers_follow_a_server_that_was_restored_from_a_backup() {
    for revision in [RestoredRevision::AsSaved, RestoredRevision::Bumped] {
        let server = TestServer::new();
        let api = server.api("other");
        api.create_dynamic(&CONFIG, "default", &config("kept")).await.unwrap();
        let informers = Arc::new(Informers::dynamic_of([Informer::dynamic(CONFIG)]));
        let mut tasks = tokio::task::JoinSet::new();
        informers.start(&server.api("victim"), &Health::default(), &mut tasks);
        informers.synced(&[CONFIG]).await;
        let backup = server.inner.back_up();
        let changed = json!({"data": {"x": "lost"}});
        api.patch_dynamic(&CONFIG, &Key::new("default", "kept"), Part::Main, &changed).await.unwrap();
        for number in 0..5 {
            api.create_dynamic(&CONFIG, "default", &config(&format!("lost-{number}"))).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.inner.restore(&backup, revision);
        api.create_dynamic(&CONFIG, "default", &config("new")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        let known = informers.dynamic(&CONFIG).in_namespace("default");
        let names: Vec<&str> = known.iter().map(|config| kai_object::name(config)).collect();
        assert_eq!(names, ["kept", "new"], "{revision:?}");
        assert!(known[0]["data"].is_null(), "{revision:?}: {}", known[0]);
    }
}
