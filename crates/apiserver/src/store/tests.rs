//! Writes, lists, the change log and its compaction.

use super::*;
use serde_json::json;

fn object(name: &str, color: &str) -> Value {
    json!({"kind": "Thing", "apiVersion": "v1", "metadata": {"name": name, "labels": {"color": color}}, "data": {"a": 1}})
}

fn names(page: &Page) -> Vec<&str> {
    page.records.iter().map(|record| record.name()).collect()
}

fn filled(log_bytes_max: usize) -> (Store, TableId) {
    let store = Store::new(log_bytes_max);
    let table = store.table("things");
    for name in ["a", "b", "c", "d"] {
        store.create(table, &format!("ns/{name}"), &mut object(name, "red")).unwrap();
    }
    (store, table)
}

#[test]
fn record_contains_its_watch_event() {
    let store = Store::new(1 << 20);
    let table = store.table("things");
    let record = store.create(table, "ns/a", &mut object("a", "red")).unwrap();
    let event = String::from_utf8(record.event().to_vec()).unwrap();
    assert_eq!(
        event,
        "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Thing\",\"apiVersion\":\"v1\",\"metadata\":{\"labels\":{\"color\":\"red\"},\
         \"name\":\"a\",\"resourceVersion\":\"2\"},\"data\":{\"a\":1}}}\n"
    );
    assert!(record.json_fields().starts_with(b"\"metadata\":"));
    assert_eq!(record.value()["data"]["a"], 1);
    assert_eq!(record.label("color"), Some("red"));
    assert_eq!((record.namespace(), record.name()), ("ns", "a"));
}

#[test]
fn stale_write_conflicts() {
    let (store, table) = filled(1 << 20);
    let seen = store.get(table, "ns/a").unwrap();
    store.update(table, &seen, &mut object("a", "blue")).unwrap();
    let conflict = store.update(table, &seen, &mut object("a", "green")).unwrap_err();
    assert_eq!(conflict.current.unwrap().label("color"), Some("blue"));
    assert!(store.create(table, "ns/a", &mut object("a", "red")).is_err());
    assert!(store.delete(table, &seen, &mut object("a", "red")).is_err());
}

#[test]
fn pages_are_consistent_at_one_revision() {
    let (store, table) = filled(1 << 20);
    let first = store.list(table, &ListRange { limit: Some(2), ..ListRange::default() }, |_| true).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], 2));

    let c = store.get(table, "ns/c").unwrap();
    store.delete(table, &c, &mut c.value()).unwrap();
    store.create(table, "ns/bb", &mut object("bb", "red")).unwrap();
    let d = store.get(table, "ns/d").unwrap();
    store.update(table, &d, &mut object("d", "blue")).unwrap();

    let wanted = ListRange { after: Some("ns/b"), at: Some(first.revision), ..ListRange::default() };
    let second = store.list(table, &wanted, |_| true).unwrap();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second.records[1].label("color"), Some("red"));
    let latest = store.list(table, &ListRange::default(), |_| true).unwrap();
    assert_eq!(names(&latest), ["a", "b", "bb", "d"]);
}

#[test]
fn list_is_restricted_by_prefix() {
    let (store, table) = filled(1 << 20);
    store.create(table, "ns-2/a", &mut object("a", "red")).unwrap();
    let wanted = ListRange { prefix: "ns/", ..ListRange::default() };
    assert_eq!(store.list(table, &wanted, |_| true).unwrap().records.len(), 4);
    assert!(store.any(table, "ns-2/"));
    assert!(!store.any(table, "ns-3/"));
}

#[test]
fn log_is_compacted_by_size() {
    let store = Store::new(2_000);
    let table = store.table("things");
    let mut cursor = store.cursor(table, 1).unwrap();
    for index in 0..100 {
        store.create(table, &format!("ns/{index}"), &mut object("x", "red")).unwrap();
    }
    assert!(store.read().log.bytes_for_test() <= 2_000);
    assert!(store.poll(&mut cursor).is_err());
    assert!(store.cursor(table, 50).is_err());
    assert!(store.list(table, &ListRange { at: Some(50), ..ListRange::default() }, |_| true).is_err());
    let mut late = store.cursor(table, 99).unwrap();
    assert_eq!(store.poll(&mut late).unwrap().len(), 2);
}

#[tokio::test]
async fn cursor_waits_for_changes_without_gaps() {
    let (store, table) = filled(1 << 20);
    let store = Arc::new(store);
    let mut cursor = store.cursor(table, store.revision()).unwrap();
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for index in 0..500 {
                store.create(table, &format!("ns/x{index}"), &mut object("x", "red")).unwrap();
                if index % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 500 {
        seen.extend(store.next(&mut cursor).await.unwrap().iter().map(|change| change.revision()));
    }
    writer.await.unwrap();
    assert_eq!(seen, (6..506).collect::<Vec<_>>());
}

#[test]
fn selector_exit_sends_the_previous_state_at_the_new_revision() {
    let (store, table) = filled(1 << 20);
    let mut cursor = store.cursor(table, store.revision()).unwrap();
    let seen = store.get(table, "ns/a").unwrap();
    store.update(table, &seen, &mut object("a", "blue")).unwrap();
    let changes = store.poll(&mut cursor).unwrap();
    let event: Value = serde_json::from_slice(&changes[0].left().unwrap()).unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["color"], "red");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], "6");
}
