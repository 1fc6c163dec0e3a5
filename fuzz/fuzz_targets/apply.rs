//! Server-side apply: any sequence of applies and updates succeeds or is refused, and a forced apply takes effect.
//!
//! The input is a JSON list of objects. They are written one after the other, by turns as an update and as an apply.
#![no_main]

use kai_apiserver::apply::{self, Error, FieldSet, Force, Scope, Write};
use kai_apiserver::schema::builtin;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|bytes: &[u8]| {
    let Ok(objects) = serde_json::from_slice::<Vec<Value>>(bytes) else { return };
    let schema = builtin::schema("apps/v1", "Deployment").expect("the kind is built in");
    let mut live: Option<Value> = None;
    for (index, mut object) in objects.into_iter().take(8).enumerate() {
        if !object.is_object() {
            continue;
        }
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!("Deployment");
        if !object["metadata"].is_object() {
            object["metadata"] = json!({"name": "d"});
        }
        let manager = ["one", "two", "kubectl"][index % 3];
        let write = Write { manager, api_version: "apps/v1", subresource: "", now: "t", schema, scope: Scope::Except(&["status"]) };
        if index % 2 == 1 {
            match &live {
                Some(live) => apply::update(live, &mut object, &write),
                None => apply::create(&mut object, &write),
            }
            live = Some(object);
        } else {
            let gentle = apply::apply(live.as_ref(), &object, Force::No, &write);
            let forced = apply::apply(live.as_ref(), &object, Force::Yes, &write);
            assert!(!matches!(forced, Err(Error::Conflicts(_))), "force has no conflicts");
            assert!(forced.is_ok() || gentle.is_err(), "what is done gently can be forced");
            live = forced.ok().or(live);
        }
        for entry in live.iter().flat_map(|live| live["metadata"]["managedFields"].as_array()).flatten() {
            let set = FieldSet::decode(&entry["fieldsV1"]).expect("what we write can be read");
            assert_eq!(set.encode(), entry["fieldsV1"], "fields read back as written");
        }
    }
});
