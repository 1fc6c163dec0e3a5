//! Tests of shared watches against a server whose answers the test decides.

use super::super::{WatchEvent, list_and_watch_as};
use super::queue::WAITING_MAX;
use super::*;
use crate::health::Health;
use crate::kind::POD;
use axum::Router;
use axum::body::Body;
use axum::extract::State as Shares;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::sync::mpsc;

/// A server of pods: lists its state, and sends what the test sends to every open watch.
#[derive(Default)]
struct Server {
    pods: Mutex<BTreeMap<String, Value>>,
    version: Mutex<u64>,
    watches: Mutex<Vec<mpsc::UnboundedSender<String>>>,
    /// Paths of lists and watches.
    requests: Mutex<Vec<String>>,
    denies: Mutex<bool>,
}

impl Server {
    /// Creates or changes a pod.
    fn put(&self, name: &str, fields: &Value) {
        self.change("MODIFIED", name, fields);
    }

    fn delete(&self, name: &str) {
        self.change("DELETED", name, &json!({}));
    }

    fn change(&self, type_: &str, name: &str, fields: &Value) {
        *self.version.lock() += 1;
        let meta = json!({"name": name, "namespace": "x", "uid": name, "resourceVersion": self.version.lock().to_string()});
        let mut pod = fields.clone();
        pod["metadata"] = meta;
        if type_ == "DELETED" {
            self.pods.lock().remove(name);
        } else {
            self.pods.lock().insert(name.to_owned(), pod.clone());
        }
        self.send(&json!({"type": type_, "object": pod}));
    }

    fn send(&self, event: &Value) {
        self.watches.lock().retain(|watch| watch.send(format!("{event}\n")).is_ok());
    }

    /// Ends every watch, as at the end of its time.
    fn end_watches(&self) {
        self.watches.lock().clear();
    }

    fn counts(&self) -> (usize, usize) {
        let requests = self.requests.lock();
        let watches = requests.iter().filter(|path| path.contains("watch=true")).count();
        (requests.len() - watches, watches)
    }
}

async fn respond(Shares(server): Shares<Arc<Server>>, uri: Uri, headers: HeaderMap) -> Response {
    let accept = headers.get("accept").unwrap().to_str().unwrap();
    server.requests.lock().push(format!("{uri} {accept}"));
    if uri.query().unwrap_or_default().contains("watch=true") {
        let (sender, events) = mpsc::unbounded_channel();
        server.watches.lock().push(sender);
        let events = futures::stream::unfold(events, async |mut events| {
            let line: String = events.recv().await?;
            Some((Ok::<_, Infallible>(line), events))
        });
        return Response::new(Body::from_stream(events));
    }
    if *server.denies.lock() {
        let message = "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
        let status = json!({"kind": "Status", "status": "Failure", "code": 403, "message": message});
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    }
    let pods: Vec<Value> = server.pods.lock().values().cloned().collect();
    let list = json!({"metadata": {"resourceVersion": server.version.lock().to_string()}, "items": pods});
    Response::new(Body::from(list.to_string()))
}

/// A process whose components share watches of a server.
struct Fixture {
    server: Arc<Server>,
    api: Api,
    watches: SharedWatches,
}

impl Fixture {
    fn new() -> Self {
        let server = Arc::new(Server::default());
        let router = Router::new().fallback(respond).with_state(Arc::clone(&server));
        let api = Api::new(kube::Client::new(router, "default"), "test");
        let watches = SharedWatches::new(api.clone());
        Self { server, api, watches }
    }

    fn subscribe(&self, source: Source) -> Seen {
        let (sender, events) = mpsc::unbounded_channel();
        let health = Health::default();
        let (api, watch_health) = (self.api.clone().sharing(self.watches.clone()), health.watch("pods"));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let name = |pod: Value| kai_object::name(&pod).to_owned();
            let handle = |event| {
                let _ = sender.send(event);
            };
            list_and_watch_as(&api, &source, &watch_health, name, handle).await;
        });
        Seen { events, health, task }
    }
}

/// What a subscriber received, as names of pods.
struct Seen {
    events: mpsc::UnboundedReceiver<WatchEvent<String>>,
    health: Health,
    task: JoinSet<()>,
}

impl Seen {
    async fn next(&mut self) -> WatchEvent<String> {
        tokio::time::timeout(Duration::from_mins(1), self.events.recv()).await.expect("an event").unwrap()
    }

    async fn has_nothing(&mut self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let event = self.events.try_recv();
        assert!(event.is_err(), "{event:?}");
    }
}

fn listed(names: &[&str], version: u64) -> WatchEvent<String> {
    WatchEvent::Listed(names.iter().map(|name| (*name).to_owned()).collect(), version)
}

fn applied(name: &str) -> WatchEvent<String> {
    WatchEvent::Applied(name.to_owned())
}

fn deleted(name: &str) -> WatchEvent<String> {
    WatchEvent::Deleted(name.to_owned())
}

fn of_scheduler(name: &str) -> Value {
    json!({"spec": {"schedulerName": name}})
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn subscribers_share_one_list_and_one_watch() {
    let fixture = Fixture::new();
    fixture.server.put("a", &json!({}));
    let mut all =
        [Source::all(POD), Source::all(POD), Source::all(POD)].map(|source| fixture.subscribe(source));
    for seen in &mut all {
        assert_eq!(seen.next().await, listed(&["a"], 1));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.put("b", &json!({}));
    fixture.server.delete("a");
    for seen in &mut all {
        assert_eq!(seen.next().await, applied("b"));
        assert_eq!(seen.next().await, deleted("a"));
        assert!(seen.health.problems().is_empty());
    }
    assert_eq!(fixture.server.counts(), (1, 1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn late_subscriber_lists_for_itself_and_joins_the_watch() {
    let fixture = Fixture::new();
    let mut first = fixture.subscribe(Source::all(POD));
    assert_eq!(first.next().await, listed(&[], 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.put("a", &json!({}));
    let mut late = fixture.subscribe(Source::all(POD));
    assert!(!late.health.problems().is_empty(), "nothing is listed yet");
    assert_eq!(late.next().await, listed(&["a"], 1));
    late.has_nothing().await;
    fixture.server.put("b", &json!({}));
    assert_eq!(late.next().await, applied("b"));
    assert_eq!(first.next().await, applied("a"));
    assert_eq!(first.next().await, applied("b"));
    assert!(late.health.problems().is_empty());
    assert_eq!(fixture.server.counts(), (2, 1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn subscriber_that_ends_leaves_the_others_alone_and_the_last_ends_the_watch() {
    let fixture = Fixture::new();
    let (mut first, mut second) = (fixture.subscribe(Source::all(POD)), fixture.subscribe(Source::all(POD)));
    assert_eq!(first.next().await, listed(&[], 0));
    assert_eq!(second.next().await, listed(&[], 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.task.shutdown().await;
    fixture.server.put("a", &json!({}));
    assert_eq!(second.next().await, applied("a"));
    second.task.shutdown().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.send(&json!({}));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fixture.server.watches.lock().iter().all(mpsc::UnboundedSender::is_closed));
    let mut again = fixture.subscribe(Source::all(POD));
    assert_eq!(again.next().await, listed(&["a"], 1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn each_subscriber_applies_its_own_selector() {
    let fixture = Fixture::new();
    fixture.server.put("ours", &of_scheduler("kai"));
    fixture.server.put("theirs", &of_scheduler("other"));
    let mut all = fixture.subscribe(Source::all(POD));
    let mut ours = fixture.subscribe(Source::all(POD).query("fieldSelector=spec.schedulerName%3Dkai"));
    let mut unfailed = fixture.subscribe(Source::all(POD).query("fieldSelector=status.phase%21%3DFailed"));
    assert_eq!(all.next().await, listed(&["ours", "theirs"], 2));
    assert_eq!(ours.next().await, listed(&["ours"], 2));
    assert_eq!(unfailed.next().await, listed(&["ours", "theirs"], 2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failed = |name: &str| json!({"spec": {"schedulerName": name}, "status": {"phase": "Failed"}});
    fixture.server.put("theirs", &failed("other"));
    fixture.server.put("ours", &failed("kai"));
    assert_eq!([all.next().await, all.next().await], [applied("theirs"), applied("ours")]);
    assert_eq!(ours.next().await, applied("ours"));
    assert_eq!([unfailed.next().await, unfailed.next().await], [deleted("theirs"), deleted("ours")]);
    assert_eq!(fixture.server.counts(), (1, 1));
    let requests = fixture.server.requests.lock().join("\n");
    assert!(!requests.contains("fieldSelector"), "{requests}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_common_selector_is_left_to_the_server() {
    let fixture = Fixture::new();
    let source = || Source::all(POD).query("fieldSelector=spec.schedulerName%3Dkai");
    let (mut first, mut second) = (fixture.subscribe(source()), fixture.subscribe(source()));
    assert_eq!(first.next().await, listed(&[], 0));
    assert_eq!(second.next().await, listed(&[], 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fixture.server.requests.lock().iter().all(|path| path.contains("fieldSelector")));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn subscriber_that_asks_for_more_has_the_watch_widened() {
    let fixture = Fixture::new();
    fixture.server.put("a", &of_scheduler("kai"));
    let narrow = Source { shape: Shape::Metadata, ..Source::all(POD) };
    let mut first = fixture.subscribe(narrow);
    assert_eq!(first.next().await, listed(&["a"], 1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut whole = fixture.subscribe(Source::all(POD));
    assert_eq!(whole.next().await, listed(&["a"], 1));
    assert_eq!(first.next().await, listed(&["a"], 1), "listed again");
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.put("b", &json!({}));
    assert_eq!([first.next().await, whole.next().await], [applied("b"), applied("b")]);
    let requests = fixture.server.requests.lock().clone();
    let partial = requests.iter().filter(|path| path.contains("PartialObjectMetadata")).count();
    assert_eq!((partial, requests.len()), (2, 4), "{requests:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn expired_watch_is_listed_once_for_all_subscribers() {
    let fixture = Fixture::new();
    let (mut first, mut second) = (fixture.subscribe(Source::all(POD)), fixture.subscribe(Source::all(POD)));
    assert_eq!(first.next().await, listed(&[], 0));
    assert_eq!(second.next().await, listed(&[], 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.pods.lock().insert("a".to_owned(), json!({"metadata": {"name": "a"}}));
    *fixture.server.version.lock() = 9;
    fixture.server.send(&json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}}));
    assert_eq!(first.next().await, listed(&["a"], 9));
    assert_eq!(second.next().await, listed(&["a"], 9));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.server.counts(), (2, 2));
    fixture.server.end_watches();
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.put("b", &json!({}));
    assert_eq!([first.next().await, second.next().await], [applied("b"), applied("b")], "resumed");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_object_and_unusual_json_reach_every_subscriber() {
    let fixture = Fixture::new();
    let mut seen = fixture.subscribe(Source::all(POD));
    assert_eq!(seen.next().await, listed(&[], 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let send = |line: &str| {
        let watches = fixture.server.watches.lock();
        watches.iter().for_each(|watch| watch.send(format!("{line}\n")).unwrap());
    };
    let pod = r#"{"metadata": {"name": "a", "resourceVersion": "3"}}"#;
    send(&format!(r#"{{"object": {pod}, "type": "ADDED"}}"#));
    send(&format!(r#"{{"type":"ADDED","object":{pod},"more":{{}}}}"#));
    send(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#);
    send(r#"{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"12"}}}"#);
    assert_eq!(
        [seen.next().await, seen.next().await, seen.next().await],
        [applied("a"), applied("a"), applied("b")]
    );
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn denied_resource_is_denied_to_those_that_can_do_without() {
    let fixture = Fixture::new();
    *fixture.server.denies.lock() = true;
    let mut optional = fixture.subscribe(Source { need: Need::Optional, ..Source::all(POD) });
    let mut required = fixture.subscribe(Source::all(POD));
    assert_eq!(optional.next().await, WatchEvent::Denied);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(optional.health.problems().is_empty());
    let problems = required.health.problems().join(", ");
    assert!(problems.contains("cannot list resource \"pods\""), "{problems}");
    *fixture.server.denies.lock() = false;
    assert_eq!(optional.next().await, listed(&[], 0));
    assert_eq!(required.next().await, listed(&[], 0));
    assert!(required.health.problems().is_empty());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn subscriber_that_does_not_read_lists_again_and_delays_no_other() {
    let fixture = Fixture::new();
    let mut reading = fixture.subscribe(Source::all(POD));
    let idle = fixture.watches.subscribe(&Source::all(POD));
    assert_eq!(reading.next().await, listed(&[], 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let big = json!({"text": "x".repeat(WAITING_MAX / 4)});
    for number in 0..5 {
        fixture.server.put("a", &big);
        assert_eq!(reading.next().await, applied("a"), "event {number}");
    }
    let mut kinds = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(1), idle.queue.next()).await {
        kinds.push(match message {
            Message::Lagged => "lagged",
            Message::Event(_) => "event",
            Message::ListBegins
            | Message::Page(_)
            | Message::Listed(_)
            | Message::Denied
            | Message::State(_) => "other",
        });
    }
    assert_eq!(kinds, ["lagged", "event", "event"], "what was dropped has to be listed");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn end_of_the_driver_is_noticed_and_the_next_subscriber_has_a_new_one() {
    let fixture = Fixture::new();
    let mut seen = fixture.subscribe(Source::all(POD));
    assert_eq!(seen.next().await, listed(&[], 0));
    let shared = fixture.watches.0.watches.lock().values().next().map(Arc::clone).unwrap();
    shared.state.lock().driver.abort_all();
    assert!(
        seen.task.join_next().await.is_some_and(|ended| ended.is_ok()),
        "the component ends, and is restarted"
    );
    let mut again = fixture.subscribe(Source::all(POD));
    assert_eq!(again.next().await, listed(&[], 0));
}
