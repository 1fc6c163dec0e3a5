//! JSON patch, merge patch and strategic merge patch, case by case.

#![expect(clippy::needless_pass_by_value, reason = "literals read better without borrows")]

use super::*;
use crate::schema::builtin;
use proptest::prelude::*;
use serde_json::json;

fn strategic_on(api_version: &str, kind: &str, object: Value, patch: Value) -> Result<Value, Error> {
    strategic(&object, &patch, builtin::schema(api_version, kind).unwrap())
}

fn on_pod(spec: Value, patch: Value) -> Value {
    strategic_on("v1", "Pod", json!({"spec": spec}), json!({"spec": patch})).unwrap()["spec"].clone()
}

#[test]
fn json_patch_applies_operations_in_order() {
    let object = json!({"a": {"b": [1, 2, 3]}, "x~/y": 1});
    let patch = json!([
        {"op": "test", "path": "/a/b/0", "value": 1},
        {"op": "add", "path": "/a/b/1", "value": 9},
        {"op": "add", "path": "/a/b/-", "value": 10},
        {"op": "remove", "path": "/a/b/0"},
        {"op": "replace", "path": "/x~0~1y", "value": {"new": true}},
        {"op": "copy", "from": "/a/b", "path": "/c"},
        {"op": "move", "from": "/a", "path": "/d"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "test", "path": "/nothing", "value": null},
        {"op": "remove", "path": "/c/-1"},
    ]);
    let expected = json!({"x~/y": {"new": true}, "c": [9, 2, 3], "d": {"b": [9, 2, 3, 10]}, "missing": 1});
    assert_eq!(json(&object, &patch).unwrap(), expected);
    assert_eq!(json(&object, &json!([{"op": "replace", "path": "", "value": {}}])).unwrap(), json!({}));
}

#[test]
fn json_patch_errors_equal_kube_apiserver() {
    let object = json!({"a": {"b": [1]}});
    let cases = [
        (json!({"op": "test", "path": "/a/b/0", "value": 2}), "testing value /a/b/0 failed: test failed"),
        (
            json!({"op": "test", "path": "/z/b", "value": 2}),
            "test operation does not apply: is missing path: /z/b: missing value",
        ),
        (
            json!({"op": "add", "path": "/z/b", "value": 2}),
            "add operation does not apply: doc is missing path: \"/z/b\": missing value",
        ),
        (
            json!({"op": "add", "path": "/a/b/7", "value": 2}),
            "error in add for path: '/a/b/7': Unable to access invalid index: 7: invalid index referenced",
        ),
        (
            json!({"op": "add", "path": "/a/b/x", "value": 2}),
            "error in add for path: '/a/b/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!({"op": "remove", "path": "/z"}),
            "error in remove for path: '/z': Unable to remove nonexistent key: z: missing value",
        ),
        (
            json!({"op": "remove", "path": "/z/y"}),
            "remove operation does not apply: doc is missing path: \"/z/y\": missing value",
        ),
        (
            json!({"op": "replace", "path": "/z/y", "value": 1}),
            "replace operation does not apply: doc is missing path: /z/y: missing value",
        ),
        (
            json!({"op": "replace", "path": "/a/b/5", "value": 1}),
            "replace operation does not apply: doc is missing key: /a/b/5: missing value",
        ),
        (
            json!({"op": "move", "from": "/z", "path": "/y"}),
            "error in move for path: 'z': Unable to remove nonexistent key: z: missing value",
        ),
        (
            json!({"op": "copy", "from": "/z/y", "path": "/y"}),
            "copy operation does not apply: doc is missing from path: /z/y: missing value",
        ),
        (json!({"op": "dance", "path": "/a"}), "Unexpected kind: dance"),
        (
            json!({"op": "add"}),
            "add operation failed to decode path: operation missing path field: missing value",
        ),
    ];
    for (operation, expected) in cases {
        assert_eq!(
            json(&object, &json!([operation])),
            Err(Error::Unprocessable(expected.to_owned())),
            "{operation}"
        );
    }
}

#[test]
fn json_patch_operations_are_limited() {
    let operation = json!({"op": "test", "path": "/a", "value": null});
    let many = Value::Array(vec![operation; OPERATIONS_MAX + 1]);
    let error = json(&json!({}), &many).unwrap_err();
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
    assert_eq!(error.status(), 413);
    assert_eq!(json(&json!({}), &json!({})).unwrap_err().status(), 400);
}

#[test]
fn merge_patch_replaces_lists_and_removes_nulls() {
    let object = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
    let patch = json!({"a": {"b": null, "c": [3], "e": {"f": null, "g": 1}}, "d": {"x": null}});
    assert_eq!(merge(&object, &patch).unwrap(), json!({"a": {"c": [3], "e": {"g": 1}}, "d": {}}));
    let patch = json!({"a": {"c": [{"x": null, "y": [{"z": null}]}, null]}});
    assert_eq!(merge(&object, &patch).unwrap()["a"]["c"], json!([{"y": [{}]}, null]));
    assert_eq!(merge(&object, &json!([])).unwrap_err().to_string(), "Invalid JSON Patch");
}

#[test]
fn containers_are_merged_by_name() {
    let spec = json!({"containers": [
        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"name": "b", "image": "b:1"},
    ], "tolerations": [{"key": "t"}]});
    let patch = json!({"containers": [
        {"name": "a", "image": "a:2", "env": [{"name": "X", "value": "9"}]},
        {"name": "c", "image": "c:1"},
    ], "tolerations": [{"key": "u"}]});
    assert_eq!(
        on_pod(spec, patch),
        json!({"containers": [
            {"name": "a", "image": "a:2", "env": [{"name": "X", "value": "9"}, {"name": "Y", "value": "2"}]},
            {"name": "c", "image": "c:1"},
            {"name": "b", "image": "b:1"},
        ], "tolerations": [{"key": "u"}]})
    );
}

#[test]
fn patch_directive_deletes_and_replaces() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "nodeSelector": {"x": "1"}, "volumes": [{"name": "v"}]});
    let patch = json!({
        "containers": [{"name": "a", "$patch": "delete"}],
        "nodeSelector": {"$patch": "replace", "y": "2"},
        "volumes": [{"$patch": "replace"}, {"name": "w"}],
    });
    assert_eq!(
        on_pod(spec, patch),
        json!({"containers": [{"name": "b"}], "nodeSelector": {"y": "2"}, "volumes": [{"name": "w"}]})
    );
    assert_eq!(
        on_pod(json!({"affinity": {"a": 1}}), json!({"affinity": {"$patch": "delete"}})),
        json!({"affinity": {}})
    );
    assert_eq!(on_pod(json!({}), json!({"affinity": {"$patch": "delete"}})), json!({}));
}

#[test]
fn retain_keys_clears_other_keys() {
    let deployment =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        strategic_on("apps/v1", "Deployment", deployment.clone(), patch).unwrap(),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
    let bad = json!({"spec": {"strategy": {"$retainKeys": ["x"], "type": "Recreate"}}});
    let error = strategic_on("apps/v1", "Deployment", deployment, bad).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.status()), ("invalid patch format of retainKeys", 400));
}

#[test]
fn scalar_lists_are_merged_and_deleted_from() {
    let object = json!({"metadata": {"finalizers": ["a", "b"]}});
    let on = |patch: Value| strategic_on("v1", "Pod", object.clone(), json!({"metadata": patch})).unwrap();
    let finalizers = |patch: Value| on(patch)["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(json!({"finalizers": ["c", "a"]})), json!(["c", "a", "b"]));
    assert_eq!(finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["a"]})), json!(["b"]));
    assert_eq!(finalizers(json!({"finalizers": null})), Value::Null);
}

#[test]
fn set_element_order_orders_the_list() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "server"}]});
    let patch = json!({
        "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "x"}],
    });
    assert_eq!(
        on_pod(spec.clone(), patch),
        json!({"containers": [{"name": "c", "image": "x"}, {"name": "b"}, {"name": "a"}, {"name": "server"}]})
    );
    let order_only = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]});
    assert_eq!(
        on_pod(spec.clone(), order_only),
        json!({"containers": [{"name": "b"}, {"name": "a"}, {"name": "server"}]})
    );
    let wrong =
        json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "z"}]}});
    let error = strategic_on("v1", "Pod", json!({"spec": spec}), wrong).unwrap_err();
    assert!(error.to_string().starts_with("The order in patch list:\n[map[name:z]]\n doesn't match"));
}

#[test]
fn ports_are_merged_by_container_port() {
    let service = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 443}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "name": "http"}]}});
    assert_eq!(
        strategic_on("v1", "Service", service, patch).unwrap(),
        json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "http"}, {"port": 443}]}})
    );
}

#[test]
fn conditions_are_merged_by_type() {
    let pod =
        json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}});
    let patch = json!({"status": {"conditions": [{"type": "B", "status": "False"}]}});
    assert_eq!(
        strategic_on("v1", "Pod", pod, patch).unwrap()["status"]["conditions"],
        json!([{"type": "A", "status": "True"}, {"type": "B", "status": "False"}])
    );
}

#[test]
fn malformed_strategic_patches_are_rejected() {
    let pod = || json!({"spec": {"containers": [{"name": "a"}]}, "metadata": {"labels": {"a": "b"}}});
    let refuse = |patch: Value| strategic_on("v1", "Pod", pod(), patch).unwrap_err();
    assert_eq!(
        refuse(json!({"spec": {"containers": [{"image": "x"}]}})).to_string(),
        "map: map[image:x] does not contain declared merge key: name"
    );
    assert_eq!(
        refuse(json!({"spec": {"$patch": "explode"}})).to_string(),
        "unknown patch type: explode in map: map[$patch:explode]"
    );
    assert_eq!(refuse(json!({"spec": {"containers": [[1]]}})).status(), 422);
    assert_eq!(refuse(json!({"spec": {"$deleteFromPrimitiveList": []}})).status(), 400);
    assert_eq!(refuse(json!([])).to_string(), "invalid JSON document");
}

#[test]
fn labels_accept_any_key() {
    let pod = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"x": "y"}}});
    let patch = json!({"metadata": {"labels": {"b": "2", "a": null}, "annotations": null}});
    assert_eq!(strategic_on("v1", "Pod", pod, patch).unwrap(), json!({"metadata": {"labels": {"b": "2"}}}));
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        Just("name"),
        Just("spec"),
        Just("containers"),
        Just("env"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("finalizers"),
        Just("metadata"),
        Just("a"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        prop_oneof![Just("a"), Just("b"), Just("delete"), Just("replace"), Just("merge")]
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_patches_do_not_panic(object in any_json(), patch in any_json()) {
        let _ = strategic(&object, &patch, builtin::schema("v1", "Pod").unwrap());
        let _ = merge(&object, &patch);
        let _ = json(&object, &patch);
    }

    #[test]
    fn merge_patch_is_idempotent(object in any_json(), patch in any_json()) {
        if let Ok(once) = merge(&object, &patch) {
            prop_assert_eq!(merge(&once, &patch).unwrap(), once);
        }
    }
}
