//! What the store keeps, tells and forgets.

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
fn a_record_is_its_own_watch_event() {
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
fn a_second_writer_loses() {
    let (store, table) = filled(1 << 20);
    let seen = store.get(table, "ns/a").unwrap();
    store.update(table, &seen, &mut object("a", "blue")).unwrap();
    let raced = store.update(table, &seen, &mut object("a", "green")).unwrap_err();
    assert_eq!(raced.current.unwrap().label("color"), Some("blue"));
    assert!(store.create(table, "ns/a", &mut object("a", "red")).is_err());
    assert!(store.delete(table, &seen, &mut object("a", "red")).is_err());
}

#[test]
fn pages_show_one_revision_whatever_happens_between_them() {
    let (store, table) = filled(1 << 20);
    let first = store.list(table, &Wanted { limit: Some(2), ..Wanted::default() }, |_| true).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], 2));

    let c = store.get(table, "ns/c").unwrap();
    store.delete(table, &c, &mut c.value()).unwrap();
    store.create(table, "ns/bb", &mut object("bb", "red")).unwrap();
    let d = store.get(table, "ns/d").unwrap();
    store.update(table, &d, &mut object("d", "blue")).unwrap();

    let wanted = Wanted { after: Some("ns/b"), at: Some(first.revision), ..Wanted::default() };
    let second = store.list(table, &wanted, |_| true).unwrap();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second.records[1].label("color"), Some("red"));
    let latest = store.list(table, &Wanted::default(), |_| true).unwrap();
    assert_eq!(names(&latest), ["a", "b", "bb", "d"]);
}

#[test]
fn a_prefix_bounds_a_list() {
    let (store, table) = filled(1 << 20);
    store.create(table, "ns-2/a", &mut object("a", "red")).unwrap();
    let wanted = Wanted { prefix: "ns/", ..Wanted::default() };
    assert_eq!(store.list(table, &wanted, |_| true).unwrap().records.len(), 4);
    assert!(store.any(table, "ns-2/"));
    assert!(!store.any(table, "ns-3/"));
}

#[test]
fn the_log_keeps_to_its_size_and_tells_who_asks_too_late() {
    let store = Store::new(2_000);
    let table = store.table("things");
    let mut cursor = store.cursor(table, 1).unwrap();
    for index in 0..100 {
        store.create(table, &format!("ns/{index}"), &mut object("x", "red")).unwrap();
    }
    assert!(store.read().log.bytes_for_test() <= 2_000);
    assert!(store.poll(&mut cursor).is_err());
    assert!(store.cursor(table, 50).is_err());
    assert!(store.list(table, &Wanted { at: Some(50), ..Wanted::default() }, |_| true).is_err());
    let mut late = store.cursor(table, 99).unwrap();
    assert_eq!(store.poll(&mut late).unwrap().len(), 2);
}

#[tokio::test]
async fn a_cursor_waits_and_misses_nothing() {
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
fn leaving_a_selector_shows_the_state_before_at_the_revision_of_the_change() {
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
