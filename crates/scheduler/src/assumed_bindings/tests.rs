//! Stale watch events and relists against assumed bindings.

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

struct Fixture {
    assumed: AssumedBindings,
    store: Store,
    key: Key,
}

impl Fixture {
    /// The binding of pod `new` to node `n2` is assumed.
    fn new() -> Self {
        let (mut assumed, mut store) = (AssumedBindings::default(), Store::new(Settings::default()));
        let key = Key::new("a", "p");
        assumed.assume(key.clone(), request("new", "n2", None, 0), None, None, Timestamp(0), &mut store);
        Self { assumed, store, key }
    }

    fn node(&self) -> Option<&str> {
        self.store.objects().bind_requests.get(&self.key).map(|request| request.spec.selected_node.as_str())
    }

    fn relist(&mut self, mut listed: Vec<Object>, version: u64) -> Vec<Key> {
        let uncertain = self.assumed.observe_list(&mut listed, version);
        self.store.reset(Kind::BindRequest, listed);
        uncertain
    }
}

#[test]
fn older_request_of_the_same_name_does_not_replace_the_assumed_one() {
    let mut fixture = Fixture::new();
    let old = request("old", "n1", Some("u-old"), 3);
    assert!(!fixture.assumed.observe_applied(&fixture.key, &old));
    assert!(!fixture.assumed.observe_deleted(&fixture.key, &old));
    assert_eq!(fixture.node(), Some("n2"));
}

#[test]
fn list_after_a_restore_of_etcd_removes_a_created_request_that_it_lacks() {
    let mut fixture = Fixture::new();
    fixture.relist(Vec::new(), 20);
    let created = json!(request("new", "n2", Some("u-new"), 21));
    fixture.assumed.confirm(&fixture.key, &created, &mut fixture.store);
    fixture.relist(Vec::new(), 12);
    assert_eq!(fixture.node(), None, "the backup was made before the request was created");
}

#[test]
fn older_list_does_not_remove_the_assumed_request() {
    let mut fixture = Fixture::new();
    fixture.relist(vec![request("old", "n1", Some("u-old"), 3).into()], 5);
    assert_eq!(fixture.node(), Some("n2"));
    let created = json!(request("new", "n2", Some("u-new"), 9));
    fixture.assumed.confirm(&fixture.key, &created, &mut fixture.store);
    fixture.relist(Vec::new(), 8);
    assert_eq!(fixture.node(), Some("n2"), "the list is older than the request");
    fixture.relist(Vec::new(), 9);
    assert_eq!(fixture.node(), None, "the list is not older and lacks the request");
    assert_eq!(fixture.assumed.len(), 0);
}

#[test]
fn observed_request_replaces_a_rejected_one() {
    let mut fixture = Fixture::new();
    fixture.assumed.observe_applied(&fixture.key, &request("old", "n1", Some("u-old"), 3));
    assert!(fixture.assumed.reject(&fixture.key, &mut fixture.store).is_some());
    assert_eq!(fixture.node(), Some("n1"));
}

#[test]
fn watch_event_may_arrive_before_the_response() {
    let mut fixture = Fixture::new();
    let created = request("new", "n2", Some("u-new"), 9);
    assert!(fixture.assumed.observe_applied(&fixture.key, &created), "it is the assumed request");
    assert_eq!(fixture.assumed.len(), 0);
    assert!(fixture.assumed.confirm(&fixture.key, &json!(created), &mut fixture.store).is_none());
}

#[test]
fn created_request_that_an_older_list_lacks_is_looked_up() {
    let mut fixture = Fixture::new();
    assert!(fixture.relist(Vec::new(), 5).is_empty(), "its creation is in flight");
    let created = json!(request("new", "n2", Some("u-new"), 9));
    fixture.assumed.confirm(&fixture.key, &created, &mut fixture.store);
    assert_eq!(fixture.relist(Vec::new(), 8), [fixture.key.clone()]);
    assert_eq!(fixture.node(), Some("n2"), "until the lookup shows that it does not exist");
    assert!(fixture.relist(Vec::new(), 9).is_empty(), "it has been deleted");
    assert_eq!(fixture.node(), None);
}
