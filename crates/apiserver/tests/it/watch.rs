//! Watches: initial events, changes, selectors, bookmarks and errors.

use crate::{client, config_map, delete, merge, pod, post, server};
use futures::{Stream, TryStreamExt};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Reads watch events line by line.
struct Events {
    body: axum::body::Body,
    rest: Vec<u8>,
}

impl Events {
    async fn open(server: &ApiServer, path: &str) -> Self {
        let request = http::Request::builder().uri(path).body(axum::body::Body::empty()).unwrap();
        let response = server.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), rest: Vec::new() }
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => self.rest.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => return None,
            }
        }
    }

    /// The next event as `TYPE name`.
    async fn shown(&mut self) -> String {
        let event = self.next().await.unwrap();
        format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap_or("-")
        )
    }
}

#[tokio::test]
async fn watch_sends_initial_events_and_changes() {
    let server = server();
    post(&server, MAPS, &config_map("a")).await;
    let mut events = Events::open(&server, &format!("{MAPS}?watch=true")).await;
    assert_eq!(events.shown().await, "ADDED a");
    post(&server, MAPS, &config_map("b")).await;
    merge(&server, &format!("{MAPS}/b"), &json!({"data": {"x": "y"}})).await;
    delete(&server, &format!("{MAPS}/b"), "").await;
    assert_eq!(events.shown().await, "ADDED b");
    assert_eq!(events.shown().await, "MODIFIED b");
    let gone = events.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["data"]["x"], "y");
}

#[tokio::test]
async fn watch_resumes_from_a_resource_version() {
    let server = server();
    let (_, made) = post(&server, MAPS, &config_map("a")).await;
    post(&server, MAPS, &config_map("b")).await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = Events::open(&server, &format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    assert_eq!(events.shown().await, "ADDED b");
}

#[tokio::test]
async fn selector_changes_send_added_and_deleted() {
    let server = server();
    let mut events =
        Events::open(&server, &format!("{MAPS}?watch=true&labelSelector=color%3Dred&resourceVersion=1"))
            .await;
    post(&server, MAPS, &config_map("a")).await;
    let paint = |color: &str| json!({"metadata": {"labels": {"color": color}}});
    let path = format!("{MAPS}/a");
    merge(&server, &path, &paint("red")).await;
    merge(&server, &path, &json!({"data": {"x": "y"}})).await;
    let (_, blue) = merge(&server, &path, &paint("blue")).await;
    merge(&server, &path, &paint("red")).await;
    delete(&server, &path, "").await;
    assert_eq!(events.shown().await, "ADDED a");
    assert_eq!(events.shown().await, "MODIFIED a");
    let left = events.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["labels"]["color"], "red");
    assert_eq!(left["object"]["metadata"]["resourceVersion"], blue["metadata"]["resourceVersion"]);
    assert_eq!(events.shown().await, "ADDED a");
    assert_eq!(events.shown().await, "DELETED a");
}

#[tokio::test]
async fn field_selector_matches_a_pod_after_binding() {
    let server = server();
    let pods = "/api/v1/namespaces/default/pods";
    let mut events =
        Events::open(&server, &format!("{pods}?watch=true&fieldSelector=spec.nodeName%3Dn1")).await;
    for name in ["a", "b"] {
        post(&server, pods, &pod(name)).await;
        let node = if name == "a" { "n2" } else { "n1" };
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        post(&server, &format!("{pods}/{name}/binding"), &binding).await;
    }
    assert_eq!(events.shown().await, "ADDED b");
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = server();
    post(&server, MAPS, &config_map("a")).await;
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut events = Events::open(&server, &format!("{MAPS}?{query}")).await;
    assert_eq!(events.shown().await, "ADDED a");
    let mark = events.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    let (status, _) = crate::get(&server, &format!("{MAPS}?watch=true&sendInitialEvents=true")).await;
    assert_eq!(status, 422);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_periodic_and_watch_times_out() {
    let server = server();
    let begin = tokio::time::Instant::now();
    let mut events =
        Events::open(&server, &format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=150"))
            .await;
    post(&server, "/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await;
    let mark = events.next().await.unwrap();
    assert_eq!((mark["type"].as_str(), begin.elapsed()), (Some("BOOKMARK"), Duration::from_mins(1)));
    let revision: u64 = mark["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert_eq!(revision, server.core().store.revision());
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(events.next().await, None);
    assert_eq!(begin.elapsed(), Duration::from_secs(150));
}

#[tokio::test]
async fn compacted_resource_version_is_reported_in_the_stream() {
    let mut options = Options::new(1, Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
    options.log_bytes_max = 4_000;
    let server = ApiServer::new(&options);
    let mut slow = Events::open(&server, &format!("{MAPS}?watch=true")).await;
    for index in 0..100 {
        post(&server, MAPS, &config_map(&format!("m{index}"))).await;
    }
    let mut late = Events::open(&server, &format!("{MAPS}?watch=true&resourceVersion=2")).await;
    for events in [&mut slow, &mut late] {
        let event = events.next().await.unwrap();
        assert_eq!((event["type"].as_str(), event["object"]["code"].as_i64()), (Some("ERROR"), Some(410)));
        assert_eq!(event["object"]["reason"], "Expired");
        assert_eq!(events.next().await, None);
    }
}

/// The next event of a typed watch as `TYPE name`.
async fn next_event<K>(events: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin)) -> String
where
    K: kube::Resource<DynamicType = ()>,
{
    let event = tokio::time::timeout(Duration::from_mins(2), events.try_next()).await.unwrap().unwrap();
    match event.expect("the watch stays open") {
        WatchEvent::Added(object) => format!("ADDED {}", object.meta().name.as_deref().unwrap()),
        WatchEvent::Deleted(object) => format!("DELETED {}", object.meta().name.as_deref().unwrap()),
        WatchEvent::Bookmark(bookmark) => {
            let ends_list = bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end");
            format!("BOOKMARK {}", if ends_list { "initial-events-end" } else { "" })
        }
        WatchEvent::Modified(_) | WatchEvent::Error(_) => panic!("no such event is expected"),
    }
}

#[tokio::test]
async fn typed_client_follows_changes_after_a_list() {
    let server = server();
    post(&server, MAPS, &config_map("a")).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let version = list.metadata.resource_version.unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), &version).await.unwrap());
    post(&server, MAPS, &config_map("b")).await;
    assert_eq!(next_event(&mut events).await, "ADDED b");
    delete(&server, &format!("{MAPS}/b"), "").await;
    assert_eq!(next_event(&mut events).await, "DELETED b");
}

#[tokio::test]
async fn typed_client_follows_changes_after_a_streaming_list() {
    let server = server();
    post(&server, MAPS, &config_map("a")).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let params = WatchParams::default().initial_events();
    let mut events = pin!(maps.watch(&params, "0").await.unwrap());
    assert_eq!(next_event(&mut events).await, "ADDED a");
    assert_eq!(next_event(&mut events).await, "BOOKMARK initial-events-end");
    post(&server, MAPS, &config_map("b")).await;
    assert_eq!(next_event(&mut events).await, "ADDED b");
    delete(&server, &format!("{MAPS}/b"), "").await;
    assert_eq!(next_event(&mut events).await, "DELETED b");
}

#[tokio::test]
async fn thousand_watchers_receive_one_write() {
    let server = server();
    let mut watchers = Vec::new();
    for _ in 0..1_000 {
        watchers.push(Events::open(&server, "/api/v1/pods?watch=true&resourceVersion=1").await);
    }
    post(&server, "/api/v1/namespaces/default/pods", &pod("p")).await;
    for watcher in &mut watchers {
        assert_eq!(watcher.shown().await, "ADDED p");
    }
}

#[tokio::test]
async fn typed_client_receives_pod_events() {
    let server = server();
    let pods: Api<Pod> = Api::all(client(&server));
    let mut events = pin!(pods.watch(&WatchParams::default(), "1").await.unwrap());
    post(&server, "/api/v1/namespaces/default/pods", &pod("p")).await;
    assert_eq!(next_event(&mut events).await, "ADDED p");
}
