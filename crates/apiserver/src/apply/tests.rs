//! Server-side apply and managed fields, case by case.

#![expect(clippy::needless_pass_by_value, reason = "literals read better without borrows")]

use super::*;
use crate::field::Path;
use crate::schema::builtin;
use proptest::prelude::*;
use serde_json::json;

fn deployment_schema() -> &'static Schema {
    builtin::schema("apps/v1", "Deployment").unwrap()
}

fn by<'a>(manager: &'a str, now: &'a str) -> Write<'a> {
    Write {
        manager,
        api_version: "apps/v1",
        subresource: "",
        now,
        schema: deployment_schema(),
        scope: Scope::Except(&["status"]),
    }
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, "spec": spec})
}

fn fields_of<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == manager);
    &entry.unwrap_or_else(|| panic!("{manager} manages nothing of {object}"))["fieldsV1"]
}

fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries
        .iter()
        .map(|entry| {
            format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap())
        })
        .collect()
}

fn applied(live: &Value, wanted: &Value, force: Force, write: &Write<'_>) -> Value {
    apply(Some(live), wanted, force, write).unwrap()
}

#[test]
fn created_fields_are_owned_by_the_creator() {
    let mut object = deployment(json!({
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {}}]}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
    }));
    object["metadata"]["labels"] = json!({"x": "y"});
    object["metadata"]["uid"] = json!("u");
    object["status"] = json!({"replicas": 1});
    create(&mut object, &by("kubectl-create", "2026-01-01T00:00:00Z"));
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "apps/v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
                "f:spec": {
                    "f:replicas": {}, "f:selector": {},
                    "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                    "f:template": {
                        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                            ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                        }}},
                    },
                },
            },
        }])
    );
}

#[test]
fn update_takes_ownership_of_changed_fields() {
    let mut live = deployment(json!({"replicas": 1, "paused": true}));
    create(&mut live, &by("a", "2026-01-01T00:00:00Z"));
    let mut new = live.clone();
    new["spec"] = json!({"replicas": 2, "minReadySeconds": 5});
    update(&live, &mut new, &by("b", "2026-01-02T00:00:00Z"));
    assert_eq!(managers(&new), ["b Update"]);
    assert_eq!(fields_of(&new, "b"), &json!({"f:spec": {"f:replicas": {}, "f:minReadySeconds": {}}}));
    let mut same = new.clone();
    update(&new, &mut same, &by("c", "2026-01-03T00:00:00Z"));
    assert_eq!(same, new);
}

#[test]
fn status_subresource_has_its_own_manager_entry() {
    let mut live = deployment(json!({"replicas": 1}));
    create(&mut live, &by("a", "t1"));
    let mut new = live.clone();
    new["status"] = json!({"replicas": 3, "conditions": [{"type": "Available", "status": "True"}]});
    let write = Write { subresource: "status", scope: Scope::Except(&["spec"]), ..by("controller", "t2") };
    update(&live, &mut new, &write);
    assert_eq!(managers(&new), ["a Update", "controller Update"]);
    assert_eq!(new["metadata"]["managedFields"][1]["subresource"], "status");
    assert_eq!(
        fields_of(&new, "controller"),
        &json!({"f:status": {".": {}, "f:replicas": {}, "f:conditions": {".": {}, "k:{\"type\":\"Available\"}": {".": {}, "f:status": {}, "f:type": {}}}}})
    );
}

#[test]
fn managed_fields_can_be_reset_and_malformed_ones_are_ignored() {
    let mut live = deployment(json!({"replicas": 1}));
    create(&mut live, &by("a", "t1"));
    live["metadata"]["uid"] = json!("u");
    let mut reset = live.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    update(&live, &mut reset, &by("b", "t2"));
    assert_eq!(reset["metadata"].get("managedFields"), None);
    let mut bad = live.clone();
    bad["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Dance"}]);
    update(&live, &mut bad, &by("b", "t2"));
    assert_eq!(managers(&bad), ["a Update"]);
    let mut untracked = reset.clone();
    untracked["spec"]["replicas"] = json!(9);
    update(&reset, &mut untracked, &by("b", "t3"));
    assert_eq!(untracked["metadata"].get("managedFields"), None);
}

#[test]
fn apply_creates_the_object_and_owns_its_fields() {
    let wanted = deployment(
        json!({"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}),
    );
    let object = apply(None, &wanted, Force::No, &by("me", "t1")).unwrap();
    assert_eq!(managers(&object), ["me Apply"]);
    assert_eq!(
        fields_of(&object, "me"),
        &json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers":
            {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}})
    );
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "i");
}

#[test]
fn repeated_apply_is_idempotent() {
    let wanted = deployment(json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}));
    let object = apply(None, &wanted, Force::No, &by("me", "t1")).unwrap();
    assert_eq!(applied(&object, &wanted, Force::No, &by("me", "t2")), object);
}

#[test]
fn fields_dropped_from_the_configuration_are_removed() {
    let first = deployment(json!({
        "replicas": 1, "paused": true,
        "template": {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "j"}]}},
    }));
    let object = apply(None, &first, Force::No, &by("me", "t1")).unwrap();
    let second = deployment(json!({
        "replicas": 2,
        "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "y", "image": "k"}]}},
    }));
    let object = applied(&object, &second, Force::No, &by("me", "t2"));
    assert_eq!(object["spec"].get("paused"), None);
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["spec"]["template"]["metadata"]["labels"], json!({"a": "1"}));
    assert_eq!(object["spec"]["template"]["spec"]["containers"], json!([{"name": "y", "image": "k"}]));
    assert_eq!(object["metadata"]["managedFields"][0]["time"], "t2");
}

#[test]
fn emptied_map_keeps_its_owner() {
    let with = |annotations: Value| {
        let metadata = json!({"name": "d", "namespace": "n", "annotations": annotations});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"paused": true}})
    };
    let mut live = with(json!({"a": "1"}));
    create(&mut live, &by("one", "t1"));
    let object = applied(&live, &with(json!({"a": "2"})), Force::Yes, &by("two", "t2"));
    let object = applied(&object, &deployment(json!({"paused": true})), Force::Yes, &by("two", "t3"));
    assert_eq!(object["metadata"].get("annotations"), None);
    assert_eq!(
        fields_of(&object, "one"),
        &json!({"f:metadata": {"f:annotations": {}}, "f:spec": {"f:paused": {}}})
    );
}

#[test]
fn fields_of_other_appliers_are_kept() {
    let one = deployment(json!({"replicas": 1, "paused": true}));
    let object = apply(None, &one, Force::No, &by("one", "t1")).unwrap();
    let two = deployment(json!({"paused": true, "minReadySeconds": 3}));
    let object = applied(&object, &two, Force::No, &by("two", "t2"));
    assert_eq!(managers(&object), ["one Apply", "two Apply"]);
    let object = applied(&object, &deployment(json!({"replicas": 1})), Force::No, &by("one", "t3"));
    assert_eq!(object["spec"]["paused"], true);
    assert_eq!(object["spec"]["minReadySeconds"], 3);
    assert_eq!(fields_of(&object, "one"), &json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn defaults_and_updated_fields_are_kept() {
    let object = apply(None, &deployment(json!({"replicas": 1})), Force::No, &by("me", "t1")).unwrap();
    let mut defaulted = object.clone();
    defaulted["spec"]["progressDeadlineSeconds"] = json!(600);
    let mut updated = defaulted.clone();
    updated["spec"]["paused"] = json!(true);
    update(&defaulted, &mut updated, &by("other", "t2"));
    let again = applied(&updated, &deployment(json!({"minReadySeconds": 1})), Force::No, &by("me", "t3"));
    let spec = &again["spec"];
    assert_eq!(
        (&spec["progressDeadlineSeconds"], &spec["paused"], &spec["minReadySeconds"]),
        (&json!(600), &json!(true), &json!(1))
    );
    assert_eq!(spec.get("replicas"), None);
}

#[test]
fn changing_a_field_of_another_manager_is_a_conflict() {
    let mut live = deployment(
        json!({"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}),
    );
    create(&mut live, &by("kubectl", "t1"));
    let wanted = deployment(json!({"replicas": 3}));
    let error = apply(Some(&live), &wanted, Force::No, &by("me", "t2")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas"
    );
    let wanted = deployment(
        json!({"replicas": 3, "template": {"spec": {"containers": [{"name": "c", "image": "new"}]}}}),
    );
    let error = apply(Some(&live), &wanted, Force::No, &by("me", "t2")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using apps/v1:\n- .spec.replicas\n- .spec.template.spec.containers[name=\"c\"].image"
    );
    let Error::Conflicts(conflicts) = error else { panic!("it is a conflict") };
    assert_eq!(conflicts[0].message(), "conflict with \"kubectl\" using apps/v1");
}

#[test]
fn forced_apply_takes_ownership() {
    let mut live = deployment(json!({"replicas": 1, "paused": true}));
    create(&mut live, &by("a", "t1"));
    let object = applied(&live, &deployment(json!({"replicas": 3})), Force::Yes, &by("b", "t2"));
    assert_eq!(managers(&object), ["b Apply", "a Update"]);
    assert_eq!(fields_of(&object, "a"), &json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(object["spec"], json!({"replicas": 3, "paused": true}));
}

#[test]
fn applying_an_equal_value_shares_ownership() {
    let object = apply(None, &deployment(json!({"replicas": 1})), Force::No, &by("a", "t1")).unwrap();
    let object = applied(&object, &deployment(json!({"replicas": 1})), Force::No, &by("b", "t2"));
    assert_eq!(managers(&object), ["b Apply", "a Apply"]);
    let error =
        apply(Some(&object), &deployment(json!({"replicas": 2})), Force::No, &by("b", "t3")).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas");
}

#[test]
fn untracked_object_gets_a_before_first_apply_manager() {
    let mut live = deployment(json!({"replicas": 1}));
    live["metadata"]["uid"] = json!("u");
    let object = applied(&live, &deployment(json!({"paused": true})), Force::No, &by("me", "t1"));
    assert_eq!(
        managers(&object),
        ["before-first-apply Update", "me Apply"].into_iter().rev().collect::<Vec<_>>()
    );
    assert_eq!(fields_of(&object, "before-first-apply"), &json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn finalizers_are_merged_as_a_set() {
    let with = |finalizers: Value| {
        let metadata = json!({"name": "d", "namespace": "n", "finalizers": finalizers});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
    };
    let object = apply(None, &with(json!(["x/a"])), Force::No, &by("one", "t1")).unwrap();
    let object = applied(&object, &with(json!(["x/b"])), Force::No, &by("two", "t2"));
    assert_eq!(object["metadata"]["finalizers"], json!(["x/a", "x/b"]));
    assert_eq!(fields_of(&object, "two"), &json!({"f:metadata": {"f:finalizers": {"v:\"x/b\"": {}}}}));
    let object = applied(&object, &with(json!([])), Force::No, &by("one", "t3"));
    assert_eq!(object["metadata"]["finalizers"], json!(["x/b"]));
}

#[test]
fn applied_list_elements_keep_their_order() {
    let containers = |names: &[&str]| {
        let list: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        deployment(json!({"template": {"spec": {"containers": list}}}))
    };
    let names = |object: &Value| -> Vec<String> {
        let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        list.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let live = apply(None, &containers(&["a", "b", "c"]), Force::No, &by("one", "t1")).unwrap();
    for (wanted, expected) in [
        (vec!["c", "a"], vec!["b", "c", "a"]),
        (vec!["d", "b"], vec!["a", "d", "b", "c"]),
        (vec!["b", "d"], vec!["a", "b", "c", "d"]),
        (vec!["c", "b", "a"], vec!["c", "b", "a"]),
    ] {
        let object = applied(&live, &containers(&wanted), Force::No, &by("two", "t2"));
        assert_eq!(names(&object), expected, "{wanted:?}");
    }
}

#[test]
fn patches_that_do_not_match_the_schema_are_rejected() {
    let refuse = |wanted: Value| apply(None, &wanted, Force::No, &by("me", "t")).unwrap_err().to_string();
    assert_eq!(
        refuse(deployment(json!({"foo": 1}))),
        "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema"
    );
    assert_eq!(
        refuse(deployment(json!({"replicas": "x"}))),
        "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string"
    );
    assert_eq!(
        refuse(deployment(json!({"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}}))),
        "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name=\"a\"]"
    );
    assert_eq!(
        refuse(json!({"apiVersion": "v1", "kind": "Deployment"})),
        "Incorrect version specified in apply patch. Specified patch version: v1, expected: apps/v1"
    );
    let mut managed = deployment(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    assert_eq!(refuse(managed), "metadata.managedFields must be nil");
}

#[test]
fn custom_resources_are_merged_by_their_schema() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "items":
            {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "v": {"type": "string"}}}},
    }}}});
    let schema = Schema::of_definition(&schema, &Path::of("s")).unwrap();
    let by = |manager| Write {
        manager,
        api_version: "x.io/v1",
        subresource: "",
        now: "t",
        schema: &schema,
        scope: Scope::Whole,
    };
    let of =
        |spec: Value| json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "x"}, "spec": spec});
    let object = apply(
        None,
        &of(json!({"free": {"a": {"b": 1}}, "whole": {"k": "v"}, "list": [{"id": 1, "v": "x"}]})),
        Force::No,
        &by("one"),
    )
    .unwrap();
    assert_eq!(
        fields_of(&object, "one"),
        &json!({"f:spec": {"f:free": {"f:a": {".": {}, "f:b": {}}}, "f:whole": {}, "f:list": {"k:{\"id\":1}": {".": {}, "f:id": {}, "f:v": {}}}}})
    );
    let object = applied(&object, &of(json!({"free": {"c": 2}, "list": [{"id": 2}]})), Force::No, &by("two"));
    assert_eq!(
        object["spec"],
        json!({"free": {"a": {"b": 1}, "c": 2}, "whole": {"k": "v"}, "list": [{"id": 1, "v": "x"}, {"id": 2}]})
    );
    let mut created = of(json!({"whole": {"k": "v"}}));
    create(&mut created, &by("creator"));
    assert_eq!(fields_of(&created, "creator"), &json!({"f:spec": {".": {}, "f:whole": {}}}));
}

#[test]
fn old_update_managers_are_merged() {
    let mut object = deployment(json!({"replicas": 0}));
    object["metadata"]["annotations"] = json!({"k": "v"});
    create(&mut object, &by("m00", "2026-01-01T00:00:00Z"));
    for index in 1..15 {
        let mut new = object.clone();
        new["metadata"]["annotations"][format!("k{index}")] = json!("v");
        let (manager, now) = (format!("m{index:02}"), format!("2026-01-01T00:00:{index:02}Z"));
        update(&object, &mut new, &by(&manager, &now));
        object = new;
    }
    let names = managers(&object);
    assert_eq!(names.len(), 10);
    assert!(names.contains(&"ancient-changes Update".to_owned()) && names.contains(&"m14 Update".to_owned()));
}

#[test]
fn timestamp_only_change_is_reverted() {
    let mut live = deployment(json!({"replicas": 1}));
    create(&mut live, &by("a", "t1"));
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("t2");
    ignore_new_times(&live, &mut new);
    assert_eq!(new, live);
    new["spec"]["replicas"] = json!(2);
    new["metadata"]["managedFields"][0]["time"] = json!("t2");
    ignore_new_times(&live, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "t2");
}

#[test]
fn last_applied_fields_do_not_conflict_with_their_manager() {
    let mut live = deployment(json!({"replicas": 1, "paused": true}));
    let last = deployment(json!({"replicas": 1})).to_string();
    live["metadata"]["annotations"] = json!({LAST_APPLIED: last});
    create(&mut live, &by("kubectl-client-side-apply", "t1"));
    let wanted = deployment(json!({"replicas": 5}));
    let object = applied(&live, &wanted, Force::No, &by("kubectl", "t2"));
    assert_eq!(object["spec"]["replicas"], 5);
    let renewed = object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    assert!(renewed.contains("\"replicas\":5") && renewed.ends_with('\n'));
    let error = apply(Some(&live), &deployment(json!({"paused": false})), Force::No, &by("kubectl", "t2"))
        .unwrap_err();
    assert!(error.to_string().ends_with(": .spec.paused"), "{error}");
}

/// Without empty lists and maps: they have no owner, so their presence depends on sibling fields.
fn any_spec() -> impl Strategy<Value = Value> {
    let container = ("[a-c]", prop::option::of("[x-z]"), prop::collection::btree_map("[A-C]", "[0-9]", 1..3))
        .prop_map(|(name, image, env)| {
            let env: Vec<_> =
                env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            let mut container = json!({"name": name, "env": env});
            if let Some(image) = image {
                container["image"] = json!(image);
            }
            (name, container)
        });
    let containers = prop::collection::vec(container, 1..3).prop_map(|list| {
        let unique: BTreeMap<String, Value> = list.into_iter().collect();
        Value::Array(unique.into_values().collect())
    });
    (prop::option::of(0..3_i64), containers, prop::collection::btree_map("[a-c]", "[0-9]", 1..3)).prop_map(
        |(replicas, containers, labels)| {
            let mut spec =
                json!({"template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}});
            if let Some(replicas) = replicas {
                spec["replicas"] = json!(replicas);
            }
            spec
        },
    )
}

proptest! {
    #[test]
    fn forced_apply_always_sets_its_fields(first in any_spec(), second in any_spec(), third in any_spec()) {
        let mut object = apply(None, &deployment(first), Force::Yes, &by("one", "t1")).unwrap();
        object = apply(Some(&object), &deployment(second.clone()), Force::Yes, &by("two", "t2")).unwrap();
        object = apply(Some(&object), &deployment(third.clone()), Force::Yes, &by("one", "t3")).unwrap();
        let again = apply(Some(&object), &deployment(third.clone()), Force::No, &by("one", "t4")).unwrap();
        prop_assert_eq!(&again, &object, "what one wants is there, so asking again changes nothing");
        let wanted = typed::field_set(deployment_schema(), &deployment(third));
        let there = typed::field_set(deployment_schema(), &object);
        let mut missing = Vec::new();
        items::with_named_fields(deployment_schema(), &wanted)
            .difference(&items::with_named_fields(deployment_schema(), &there))
            .for_each(|path| missing.push(field_set::shown(path)));
        prop_assert!(missing.is_empty(), "{:?}", missing);
    }

    #[test]
    fn owned_fields_exist(specs in prop::collection::vec((any_spec(), any::<bool>()), 1..5)) {
        let mut object = apply(None, &deployment(json!({})), Force::Yes, &by("zero", "t0")).unwrap();
        for (index, (spec, is_apply)) in specs.into_iter().enumerate() {
            let manager = format!("m{index}");
            if is_apply {
                object = apply(Some(&object), &deployment(spec), Force::Yes, &by(&manager, "t")).unwrap();
            } else {
                let mut new = object.clone();
                new["spec"] = spec;
                update(&object, &mut new, &by(&manager, "t"));
                object = new;
            }
        }
        let there = compare::compare(deployment_schema(), &json!({}), &without_managed_fields(&object)).added;
        let owned = ManagedFields::of(&object).unwrap().all_fields();
        let mut gone = Vec::new();
        owned.difference(&there).for_each(|path| gone.push(field_set::shown(path)));
        prop_assert!(gone.is_empty(), "{:?} of {}", gone, object);
    }
}
