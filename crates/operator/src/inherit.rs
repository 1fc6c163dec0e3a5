//! What a desired object takes over from the cluster before it is applied.
//!
//! A label selector is applied as a whole. Clouds add expressions to the namespace selectors of webhooks, so that a
//! broken webhook cannot block their own namespaces; those stay.

use serde_json::Value;
use std::borrow::Cow;

const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The desired object with the expressions that others added to the namespace selectors of its webhooks.
pub(crate) fn inherit<'a>(desired: &'a Value, current: &Value) -> Cow<'a, Value> {
    if !KINDS.contains(&kai_object::kind(desired)) {
        return Cow::Borrowed(desired);
    }
    let mut desired = desired.clone();
    for webhook in desired.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = webhook.get("name").cloned();
        let existing = current.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        let Some(existing) = existing.into_iter().find(|other| other.get("name") == name.as_ref()) else {
            continue;
        };
        let added = existing.pointer("/namespaceSelector/matchExpressions").and_then(Value::as_array);
        let expressions = webhook.pointer_mut("/namespaceSelector/matchExpressions");
        let (Some(added), Some(Value::Array(expressions))) = (added, expressions) else { continue };
        for expression in added {
            let key = expression.get("key");
            if !expressions.iter().any(|own| own.get("key") == key) {
                expressions.push(expression.clone());
            }
        }
    }
    Cow::Owned(desired)
}
