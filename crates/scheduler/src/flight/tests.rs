//! What older news and late lists do to a decision: nothing.

use super::*;
use kai_cache::Settings;
use serde_json::json;

fn request(pod_uid: &str, node: &str, uid: Option<&str>, version: u64) -> BindRequest {
    BindRequest::deserialize(&json!({
        "metadata": {
            "name": "p", "namespace": "a", "uid": uid, "resourceVersion": version.to_string(),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod_uid}],
        },
        "spec": {"podName": "p", "selectedNode": node},
    }))
    .unwrap()
}

struct World {
    flight: Flight,
    store: Store,
    key: Key,
}

impl World {
    /// A binding of pod `new` to node `n2` is under way.
    fn flying() -> Self {
        let (mut flight, mut store) = (Flight::default(), Store::new(Settings::default()));
        let key = Key::new("a", "p");
        flight.begin(key.clone(), request("new", "n2", None, 0), None, None, Timestamp(0), &mut store);
        Self { flight, store, key }
    }

    fn node(&self) -> Option<&str> {
        self.store.objects().bind_requests.get(&self.key).map(|request| request.spec.selected_node.as_str())
    }

    fn reset(&mut self, mut listed: Vec<Object>, version: u64) {
        self.flight.listed(&mut listed, version);
        self.store.reset(Kind::BindRequest, listed);
    }
}

#[test]
fn an_older_request_of_the_same_name_changes_nothing() {
    let mut world = World::flying();
    let old = request("old", "n1", Some("u-old"), 3);
    assert!(!world.flight.shown(&world.key, &old));
    assert!(!world.flight.gone(&world.key, &old));
    assert_eq!(world.node(), Some("n2"));
}

#[test]
fn a_list_from_before_does_not_take_a_decision_away() {
    let mut world = World::flying();
    world.reset(vec![request("old", "n1", Some("u-old"), 3).into()], 5);
    assert_eq!(world.node(), Some("n2"));
    let made = json!(request("new", "n2", Some("u-new"), 9));
    world.flight.made(&world.key, &made, &mut world.store);
    world.reset(Vec::new(), 8);
    assert_eq!(world.node(), Some("n2"), "the list is older than the request");
    world.reset(Vec::new(), 9);
    assert_eq!(world.node(), None, "it was there before the list, and is not on it");
    assert_eq!(world.flight.len(), 0);
}

#[test]
fn what_was_seen_takes_the_place_of_a_refused_decision() {
    let mut world = World::flying();
    world.flight.shown(&world.key, &request("old", "n1", Some("u-old"), 3));
    assert!(world.flight.refused(&world.key, &mut world.store).is_some());
    assert_eq!(world.node(), Some("n1"));
}

#[test]
fn the_watch_may_be_faster_than_the_answer() {
    let mut world = World::flying();
    let made = request("new", "n2", Some("u-new"), 9);
    assert!(world.flight.shown(&world.key, &made), "it is the one that was decided");
    assert_eq!(world.flight.len(), 0);
    assert!(world.flight.made(&world.key, &json!(made), &mut world.store).is_none());
}
