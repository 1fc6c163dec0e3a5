//! Patches: any patch of any object succeeds or is refused, and a merge patch is idempotent.
//!
//! The input is a JSON list of an object and a patch.
#![no_main]

use kai_apiserver::patch;
use kai_apiserver::schema::{self, builtin, strict};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok([object, change]) = serde_json::from_slice::<[Value; 2]>(bytes) else { return };
    let _ = strict::duplicate_fields(bytes);
    let _ = patch::json(&object, &change);
    if let Ok(merged) = patch::merge(&object, &change) {
        assert_eq!(patch::merge(&merged, &change), Ok(merged), "a merge patch is done once");
    }
    for (api_version, kind) in [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service")] {
        let schema = builtin::schema(api_version, kind).expect("the kind is built in");
        if let Ok(mut merged) = patch::strategic(&object, &change, schema) {
            let _ = schema::decode(schema, &merged);
            let _ = strict::unknown_fields(schema, &merged);
            schema::normalize(schema, &mut merged);
            let again = merged.clone();
            schema::normalize(schema, &mut merged);
            assert_eq!(merged, again, "a normal form is normal");
        }
    }
});
