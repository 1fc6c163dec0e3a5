//! Selectors: any text is parsed or refused, and a parsed selector prints as itself and can be matched.
#![no_main]

use kai_apiserver::selector::{FieldSelector, FieldTarget, LabelSelector};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector.clone()), "a selector reads back as printed");
        let _ = selector.matches_object(&json!({"metadata": {"labels": {"a": "1", "app": "web"}}}));
    }
    let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
    if let Ok(selector) = FieldSelector::parse(text, FieldTarget::BuiltIn { api_version: "v1", kind: "Pod" }) {
        let _ = selector.matches(&pod);
    }
    let selectable = [".spec.nodeName".to_owned()];
    let _ = FieldSelector::parse(text, FieldTarget::Custom { namespaced: true, selectable: &selectable });
});
