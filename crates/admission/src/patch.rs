//! The difference of two JSON values as a JSON patch (RFC 6902).

use serde_json::{Value, json};

/// The operations that turn `old` into `new`. Lists of different lengths are replaced as a whole.
pub(crate) fn difference(old: &Value, new: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    collect(old, new, &mut String::new(), &mut operations);
    operations
}

fn collect(old: &Value, new: &Value, path: &mut String, operations: &mut Vec<Value>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                below(path, key, |path| operations.push(json!({"op": "remove", "path": path.as_str()})));
            }
            for (key, value) in new {
                below(path, key, |path| match old.get(key) {
                    Some(old) => collect(old, value, path, operations),
                    None => operations.push(json!({"op": "add", "path": path.as_str(), "value": value})),
                });
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                below(path, &index.to_string(), |path| collect(old, new, path, operations));
            }
        }
        _ => operations.push(json!({"op": "replace", "path": path.as_str(), "value": new})),
    }
}

/// Runs `step` with a path one token longer.
fn below(path: &mut String, token: &str, step: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&token.replace('~', "~0").replace('/', "~1"));
    step(path);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_names_the_changed_parts_only() {
        let old = json!({"a": {"x/y": 1, "gone": 2}, "list": [{"n": 1}, {"n": 2}], "kept": true});
        let new =
            json!({"a": {"x/y": 3}, "list": [{"n": 1}, {"n": 2, "env": []}], "kept": true, "more": [1]});
        assert_eq!(
            Value::Array(difference(&old, &new)),
            json!([
                {"op": "remove", "path": "/a/gone"},
                {"op": "replace", "path": "/a/x~1y", "value": 3},
                {"op": "add", "path": "/list/1/env", "value": []},
                {"op": "add", "path": "/more", "value": [1]},
            ])
        );
        assert!(difference(&new, &new).is_empty());
        assert_eq!(
            Value::Array(difference(&json!({"l": [1]}), &json!({"l": [1, 2]}))),
            json!([{"op": "replace", "path": "/l", "value": [1, 2]}])
        );
    }
}
