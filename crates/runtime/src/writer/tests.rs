//! Priorities, coalescing and order of writes, on the embedded server.

use super::*;
use crate::kind::CONFIG_MAP;
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use serde_json::json;

struct Fixture {
    api: Api,
    writer: Writer,
    done: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new() -> Self {
        let server =
            ApiServer::new(&Options::new(1, Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
        let api = Api::new(kube::Client::new(server.service(), "default"), "test");
        Self { api, writer: Writer::default(), done: Arc::default() }
    }

    fn write(&self, priority: WritePriority, name: &str, slot: Option<&'static str>, value: &str) {
        let key = Key::new("default", name);
        let (done, label) = (Arc::clone(&self.done), format!("{name}={value}"));
        self.writer.submit(Write {
            priority,
            object: (CONFIG_MAP, key.clone()),
            slot,
            method: "PATCH",
            path: format!("{}?fieldManager=test&force=true", CONFIG_MAP.path_of(&key)),
            content_type: "application/apply-patch+yaml",
            body: json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "default"}, "data": {"value": value},
            }),
            retry: Retry::UntilAnswered,
            done: Some(Box::new(move |answer| {
                assert!(answer.is_ok(), "{answer:?}");
                done.lock().push(label);
            })),
        });
    }

    async fn run(&self) -> Vec<String> {
        let mut tasks = tokio::task::JoinSet::new();
        let (writer, api) = (self.writer.clone(), self.api.clone());
        tasks.spawn(async move { writer.run(api).await });
        self.writer.idle().await;
        self.done.lock().clone()
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn writes_are_sent_by_priority() {
    let fixture = Fixture::new();
    fixture.write(WritePriority::Event, "c", None, "1");
    fixture.write(WritePriority::Status, "b", None, "1");
    fixture.write(WritePriority::Action, "a", None, "1");
    assert_eq!(fixture.run().await, ["a=1", "b=1", "c=1"]);
}

fn names(taken: &[Queued]) -> Vec<&str> {
    taken.iter().map(|queued| queued.write.object.1.name.as_str()).collect()
}

fn take_all(writer: &Writer) -> Vec<Queued> {
    std::iter::from_fn(|| writer.lock().take(Instant::now())).collect()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reports_wait_while_an_action_is_in_flight() {
    let fixture = Fixture::new();
    fixture.write(WritePriority::Event, "c", None, "1");
    fixture.write(WritePriority::Status, "b", Some("status"), "1");
    fixture.write(WritePriority::Action, "a", None, "1");
    let action = take_all(&fixture.writer);
    assert_eq!(names(&action), ["a"]);
    fixture.write(WritePriority::Status, "b", Some("status"), "2");
    fixture.writer.lock().finish(&action[0].write);
    let reports = take_all(&fixture.writer);
    assert_eq!(names(&reports), ["b", "c"]);
    assert_eq!(reports[0].write.body["data"]["value"], "2", "the latest state alone is written");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn reports_take_turns_with_actions_once_they_have_waited_for_long() {
    let fixture = Fixture::new();
    for number in 0..2 {
        fixture.write(WritePriority::Status, &format!("s{number}"), Some("status"), "1");
    }
    tokio::time::advance(REPORT_DELAY_MAX / 2).await;
    // A later state does not extend the delay.
    fixture.write(WritePriority::Status, "s0", Some("status"), "2");
    for number in 0..3 {
        fixture.write(WritePriority::Action, &format!("a{number}"), None, "1");
    }
    let first = fixture.writer.lock().take(Instant::now()).unwrap();
    assert_eq!(names(&[first]), ["a0"]);
    tokio::time::advance(REPORT_DELAY_MAX / 2).await;
    fixture.write(WritePriority::Status, "new", Some("status"), "1");
    assert_eq!(names(&take_all(&fixture.writer)), ["s0", "a1", "s1", "a2"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn later_write_replaces_a_queued_one_of_the_same_slot() {
    let fixture = Fixture::new();
    fixture.write(WritePriority::Status, "a", Some("status"), "1");
    fixture.write(WritePriority::Status, "a", Some("status"), "2");
    fixture.write(WritePriority::Status, "a", Some("other"), "3");
    assert_eq!(fixture.run().await, ["a=2", "a=3"]);
    assert_eq!(fixture.writer.counts().sent, 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn writes_to_one_object_keep_their_order_across_priorities() {
    let fixture = Fixture::new();
    fixture.write(WritePriority::Status, "a", None, "1");
    fixture.write(WritePriority::Action, "a", None, "2");
    fixture.write(WritePriority::Status, "b", None, "1");
    assert_eq!(fixture.run().await, ["a=1", "b=1", "a=2"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn events_beyond_the_limit_are_dropped_and_counted() {
    let fixture = Fixture::new();
    for number in 0..EVENTS_MAX + 5 {
        fixture.write(WritePriority::Event, &format!("e{number}"), None, "1");
    }
    assert_eq!(fixture.writer.counts().dropped, 5);
    fixture.writer.cancel(&(CONFIG_MAP, Key::new("default", "e0")), "none");
    assert_eq!(fixture.writer.counts().queued, EVENTS_MAX);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn write_that_a_webhook_fails_is_retried_a_few_times_only() {
    let requests = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&requests);
    let refuse = move || {
        *counted.lock() += 1;
        let message =
            "Internal error occurred: failed calling webhook \"policy.example.com\": connection refused";
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
            "message": message,
        });
        async move { (http::StatusCode::INTERNAL_SERVER_ERROR, status.to_string()) }
    };
    let client = kube::Client::new(axum::Router::new().fallback(refuse), "default");
    let mut fixture = Fixture::new();
    fixture.api = Api::new(client, "test");
    let answered = Arc::new(Mutex::new(None));
    let answer = Arc::clone(&answered);
    fixture.writer.submit(Write {
        priority: WritePriority::Action,
        object: (CONFIG_MAP, Key::new("default", "a")),
        slot: None,
        method: "POST",
        path: CONFIG_MAP.path("default"),
        content_type: "application/json",
        body: json!({}),
        retry: Retry::UntilAnswered,
        done: Some(Box::new(move |response| *answer.lock() = Some(response.unwrap_err().code()))),
    });
    let before = Instant::now();
    fixture.run().await;
    assert_eq!((*requests.lock(), *answered.lock()), (WEBHOOK_ATTEMPTS, Some(500)));
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
}

/// Else a rate limit would look like a slow server, and the number of writes in flight would fall to its minimum.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn wait_for_the_rate_limit_is_not_latency_of_the_server() {
    let fixture = Fixture::new();
    let limiter = crate::rate_limit::RateLimiter::new(1.0, 1).unwrap();
    let api = fixture.api.clone().rate_limited(limiter);
    let mut waited = Duration::ZERO;
    for _ in 0..3 {
        let began = Instant::now();
        let (answer, latency) = api.send_timed("GET", &CONFIG_MAP.path("default"), None).await;
        assert!(answer.is_ok() && latency < Duration::from_millis(100), "{answer:?} after {latency:?}");
        waited += began.elapsed();
    }
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
}
