//! Schemas of custom resources: any schema is accepted or refused, and objects of its kind are pruned and validated.
//!
//! The input is a JSON list of a schema, an object and the object it replaces.
#![no_main]

use kai_apiserver::field::Path;
use kai_apiserver::schema::{self, Old, Schema};
use kai_apiserver::table::path::JsonPath;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok([definition, mut object, old]) = serde_json::from_slice::<[Value; 3]>(bytes) else { return };
    if let Some(path) = definition.as_str() {
        let _ = JsonPath::parse(path).map(|path| path.find(&object).len());
    }
    let Ok(schema) = Schema::of_definition(&definition, &Path::of("schema")) else { return };
    schema::prune(&schema, &mut object);
    schema::default(&schema, &mut object);
    let once = object.clone();
    schema::prune(&schema, &mut object);
    assert_eq!(object, once, "defaults survive pruning, and nothing is pruned twice");
    let _ = schema::validate(&schema, &object, Old::None);
    let _ = schema::validate(&schema, &object, Old::Value(&old));
});
