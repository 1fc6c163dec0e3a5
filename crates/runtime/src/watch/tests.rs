//! Events, lists and watches of servers that are slow to know, deny or go backwards.

use super::*;
use crate::kind::{CONFIG_MAP, Key};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use futures::stream;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Small {
    spec: Spec,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Spec {
    size: u32,
}

fn feed(line: &str, version: &mut String) -> (Vec<WatchEvent<Small>>, bool) {
    let api = Api::new(kube::Client::new(Router::new(), "default"), "test");
    let health = Health::default().watch("configmaps");
    let (kind, mut events) = (CONFIG_MAP, Vec::new());
    let handle = |event| events.push(event);
    let mut decoder = Decoder::new(&api, &kind, |object: Small| object, handle);
    let mut sink = Only { decoder: &mut decoder, health: &health };
    let decoded = decode_event(line.as_bytes(), version, &mut sink).is_ok();
    (events, decoded)
}

#[tokio::test]
async fn invalid_object_is_reported_and_the_watch_continues() {
    let mut version = "4".to_owned();
    let line = r#"{"type":"ADDED","object":{"metadata":{"namespace":"a","name":"b","resourceVersion":"7"},"spec":{"size":"big"}}}"#;
    let (events, continues) = feed(line, &mut version);
    assert!(
        matches!(&events[..], [WatchEvent::Invalid(object)] if object.key == Key::new("a", "b")),
        "{events:?}"
    );
    assert!(continues);
    assert_eq!(version, "7");
}

#[tokio::test]
async fn event_is_decoded_in_any_json_form() {
    let object = r#"{"metadata":{"name":"b","resourceVersion":"7"},"spec":{"size":3}}"#;
    for line in [
        format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"),
        format!("{{\"object\":{object},\"type\":\"ADDED\"}}"),
        format!("{{ \"type\": \"ADDED\", \"object\": {object} }}"),
        format!("{{\"type\":\"ADDED\",\"object\":{object},\"more\":{{}}}}"),
    ] {
        let mut version = "4".to_owned();
        let (events, _) = feed(&line, &mut version);
        assert_eq!(events, [WatchEvent::Applied(Small { spec: Spec { size: 3 } })], "{line}");
        assert_eq!(version, "7", "{line}");
    }
    let mut version = "4".to_owned();
    let (events, continues) =
        feed(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#, &mut version);
    assert!(events.is_empty() && continues);
    assert_eq!(version, "9");
}

thread_local! {
    /// How many [`Whole`] exist, now and at most.
    static WHOLE: std::cell::Cell<(usize, usize)> = const { std::cell::Cell::new((0, 0)) };
}

/// An object as it is deserialised.
#[derive(Deserialize)]
#[serde(from = "serde::de::IgnoredAny")]
struct Whole;

impl From<serde::de::IgnoredAny> for Whole {
    fn from(_: serde::de::IgnoredAny) -> Self {
        let (now, most) = WHOLE.get();
        WHOLE.set((now + 1, most.max(now + 1)));
        Self
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let (now, most) = WHOLE.get();
        WHOLE.set((now - 1, most));
    }
}

#[tokio::test]
async fn list_keeps_only_the_converted_objects() {
    async fn page(uri: axum::http::Uri) -> String {
        let last = uri.query().is_some_and(|query| query.contains("continue=next"));
        let token = if last { "" } else { "next" };
        let items = vec![serde_json::json!({"metadata": {"name": "p"}}); 100];
        serde_json::json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": items})
            .to_string()
    }
    let client = kube::Client::new(axum::Router::new().fallback(page), "default");
    let api = Api::new(client, "test");
    let mut listed = Vec::new();
    let convert = |_: Whole| ();
    let version =
        list_as(&api, &Source::all(crate::kind::POD), &convert, &mut |event| listed.push(event)).await;
    assert_eq!(version.unwrap(), "7");
    assert_eq!(listed, [WatchEvent::Listed(vec![(); 200], 7)]);
    assert_eq!(WHOLE.get(), (0, 1), "one object at a time");
}

#[tokio::test]
async fn repeated_event_does_not_set_the_version_back() {
    let mut version = "9".to_owned();
    let line =
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"b","resourceVersion":"7"},"spec":{"size":3}}}"#;
    let (events, _) = feed(line, &mut version);
    assert_eq!(events, [WatchEvent::Applied(Small { spec: Spec { size: 3 } })]);
    assert_eq!(version, "9");
}

#[tokio::test]
async fn expired_version_ends_the_watch() {
    let mut version = "9".to_owned();
    let (events, continues) =
        feed(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#, &mut version);
    assert!(events.is_empty());
    assert!(!continues);
}

/// Whether each list of metadata that a server sends is empty, and the task that watches.
fn watch_metadata(server: Router) -> (mpsc::UnboundedReceiver<bool>, JoinSet<()>) {
    let api = Api::new(kube::Client::new(server, "default"), "test");
    let (sender, events) = mpsc::unbounded_channel();
    let source = Source { shape: Shape::Metadata, ..Source::all(CONFIG_MAP) };
    let health = Health::default().watch("configmaps");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let handle = |event: WatchEvent<PartialMeta>| {
            if let WatchEvent::Listed(objects, 7) = event {
                let _ = sender.send(objects.is_empty());
            }
        };
        list_and_watch(&api, &source, &health, handle).await;
    });
    (events, tasks)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn metadata_is_requested_in_lists_and_watches() {
    async fn partial(uri: Uri, headers: axum::http::HeaderMap) -> Response {
        let accept = headers.get("accept").unwrap().to_str().unwrap();
        let is_watch = uri.query().unwrap_or_default().contains("watch=true");
        let kind = if is_watch { "PartialObjectMetadata" } else { "PartialObjectMetadataList" };
        let wanted = format!("application/json;as={kind};v=v1;g=meta.k8s.io,application/json");
        assert_eq!(accept, wanted);
        if is_watch {
            return Response::new(Body::from_stream(stream::pending::<Chunk>()));
        }
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]});
        Response::new(Body::from(list.to_string()))
    }
    let (mut events, mut tasks) = watch_metadata(Router::new().fallback(partial));
    assert_eq!(events.recv().await, Some(false));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(tasks.try_join_next().is_none(), "the watch is open");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn list_without_items_is_empty() {
    async fn empty(uri: Uri) -> Response {
        if uri.query().unwrap_or_default().contains("watch=true") {
            return Response::new(Body::from_stream(stream::pending::<Chunk>()));
        }
        // As kube-apiserver encodes an empty PartialObjectMetadataList.
        Response::new(Body::from(r#"{"metadata": {"resourceVersion": "7"}, "items": null}"#))
    }
    let (mut events, _tasks) = watch_metadata(Router::new().fallback(empty));
    assert_eq!(events.recv().await, Some(true));
}

/// A server whose resource versions go backwards once, and which denies lists while `denies` is set.
#[derive(Default)]
struct Server {
    denies: AtomicBool,
    watches: AtomicUsize,
}

async fn respond(State(server): State<Arc<Server>>, uri: Uri) -> Response {
    let watches = server.watches.load(Ordering::Relaxed);
    let query = uri.query().unwrap_or_default();
    if query.contains("watch=true") {
        server.watches.fetch_add(1, Ordering::Relaxed);
        // The first watch ends at once, as when the server restarts; the next one waits for later versions.
        let is_first = watches == 0;
        let body = if is_first { Body::empty() } else { Body::from_stream(stream::pending::<Chunk>()) };
        return Response::new(body);
    }
    if server.denies.load(Ordering::Relaxed) {
        let message = "configmaps is forbidden: User \"u\" cannot list resource \"configmaps\" in API group \"\" at the \
                       cluster scope";
        let status = json!({"kind": "Status", "status": "Failure", "code": 403, "message": message});
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    }
    let (version, size) = if watches == 0 { ("150", 1) } else { ("100", 2) };
    let items = json!([{"metadata": {"name": "a"}, "spec": {"size": size}}]);
    let list = json!({"metadata": {"resourceVersion": version}, "items": items});
    Response::new(Body::from(list.to_string()))
}

type Chunk = std::result::Result<Vec<u8>, std::convert::Infallible>;
type Seen = mpsc::UnboundedReceiver<WatchEvent<Small>>;

fn start(server: &Arc<Server>, need: Need, health: &Health) -> (Seen, JoinSet<()>) {
    let router = Router::new().fallback(respond).with_state(Arc::clone(server));
    let api = Api::new(kube::Client::new(router, "default"), "test");
    let (sender, events) = mpsc::unbounded_channel();
    let (mut tasks, health) = (JoinSet::new(), health.watch("configmaps"));
    tasks.spawn(async move {
        let source = Source { need, ..Source::all(CONFIG_MAP) };
        let handle = |event| {
            let _ = sender.send(event);
        };
        list_and_watch(&api, &source, &health, handle).await;
    });
    (events, tasks)
}

fn listed(size: u32, version: u64) -> WatchEvent<Small> {
    WatchEvent::Listed(vec![Small { spec: Spec { size } }], version)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn server_that_is_behind_the_watch_is_listed_again() {
    let server = Arc::new(Server::default());
    let (mut events, _tasks) = start(&server, Need::Required, &Health::default());
    assert_eq!(events.recv().await, Some(listed(1, 150)));
    // A watch from version 150 on would deliver nothing before the server has reached it.
    assert_eq!(events.recv().await, Some(listed(2, 100)));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn optional_resource_is_done_without_until_it_may_be_listed() {
    let server = Arc::new(Server::default());
    server.denies.store(true, Ordering::Relaxed);
    let health = Health::default();
    let (mut events, _tasks) = start(&server, Need::Optional, &health);
    assert_eq!(events.recv().await, Some(WatchEvent::Denied));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(health.problems().is_empty(), "{:?}", health.problems());
    server.denies.store(false, Ordering::Relaxed);
    assert_eq!(events.recv().await, Some(listed(1, 150)), "denied once");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn required_resource_that_may_not_be_listed_is_named_by_readiness() {
    let server = Arc::new(Server::default());
    server.denies.store(true, Ordering::Relaxed);
    let health = Health::default();
    let (mut events, _tasks) = start(&server, Need::Required, &health);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(events.try_recv().is_err());
    let problems = health.problems().join(", ");
    assert!(problems.contains("cannot list resource \"configmaps\""), "{problems}");
    server.denies.store(false, Ordering::Relaxed);
    assert_eq!(events.recv().await, Some(listed(1, 150)));
}
