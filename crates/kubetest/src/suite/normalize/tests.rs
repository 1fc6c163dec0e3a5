//! Placeholders and kept values.

use super::*;
use serde_json::json;

fn normalized(bodies: Vec<Value>) -> Vec<Value> {
    let raw = bodies
        .into_iter()
        .map(|body| RawResponse {
            entry: Entry { body, ..Entry::default() },
            keep: Vec::new(),
            any_order: false,
        })
        .collect();
    transcript(raw, ManagedFields::Drop, &[]).into_iter().map(|entry| entry.body).collect()
}

const A: &str = "0b4a5e0c-4f0e-4c9e-9d3c-000000000001";
const B: &str = "0b4a5e0c-4f0e-4c9e-9d3c-000000000002";

#[test]
fn versions_are_numbered_per_object_and_lists_compared_with_the_newest() {
    let object = |uid: &str, version: &str| json!({"metadata": {"uid": uid, "resourceVersion": version}});
    let list = |version: &str| json!({"metadata": {"resourceVersion": version}, "items": []});
    let shown = normalized(vec![
        object(A, "10"),
        object(B, "12"),
        object(A, "17"),
        object(A, "17"),
        list("17"),
        list("11"),
    ]);
    let versions: Vec<&str> =
        shown.iter().map(|body| body["metadata"]["resourceVersion"].as_str().unwrap()).collect();
    assert_eq!(versions, ["<1>", "<1>", "<2>", "<2>", "<list>", "<old list>"]);
    assert_eq!(shown[1]["metadata"]["uid"], "<uid 2>");
}

#[test]
fn recent_times_are_replaced_and_times_of_the_suite_kept() {
    let shown = normalized(vec![json!([
        "2026-03-01T10:00:00Z",
        "2026-03-01T10:00:00.123456Z",
        "2001-01-01T00:00:00Z"
    ])]);
    assert_eq!(shown[0], json!(["<time>", "<time.6>", "2001-01-01T00:00:00Z"]));
}

#[test]
fn generated_names_are_replaced_in_later_responses() {
    let shown = normalized(vec![
        json!({"metadata": {"generateName": "web-", "name": "web-x7k2p"}}),
        json!({"message": "pods \"web-x7k2p\" not found"}),
    ]);
    assert_eq!(shown[1]["message"], "pods \"web-<generated 0>\" not found");
}

#[test]
fn kept_parts_have_their_paths_as_keys() {
    let body = json!({"groups": [{"name": "apps", "v": 1}, {"name": "batch", "v": 2}], "kind": "List"});
    let kept =
        parts(&body, &["/kind".to_owned(), "/groups/name=batch/v".to_owned(), "/groups/*/name".to_owned()]);
    assert_eq!(
        kept,
        json!({"/kind": "List", "/groups/name=batch/v": [2], "/groups/*/name": ["apps", "batch"]})
    );
}
