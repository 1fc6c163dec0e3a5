//! Computes the smallest JSON merge patch (RFC 7396) from one object to another.

use serde_json::{Map, Value};

/// The merge patch from `old` to `new`; none when they are equal.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for field in before.keys().filter(|field| !after.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, value) in after {
        let change = match before.get(field) {
            Some(known) => merge_patch(known, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(field.clone(), change);
        }
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patch_contains_only_differences() {
        let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "gone": true});
        let new = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "more": "x"});
        let patch = merge_patch(&old, &new);
        assert_eq!(patch, Some(json!({"b": {"c": [1, 2]}, "gone": null, "more": "x"})));
        assert_eq!(merge_patch(&old, &old), None);
    }
}
