//! `Priority` admission: resolves a pod's `PriorityClass` to its value and preemption policy.

use super::{Attributes, Operation, forbidden};
use crate::object;
use crate::server::Core;
use crate::status_error::StatusError;
use crate::store::{ListRange, Record};
use crate::verbs::Call;
use serde_json::{Value, json};

/// The stored form of a default class.
const DEFAULT_MARK: &[u8] = br#""globalDefault":true"#;
const DEFAULT_POLICY: &str = "PreemptLowerPriority";

/// Sets priority and preemption policy of the pod's class, and rejects other values.
pub(super) fn resolve(
    core: &Core,
    call: &Call,
    pod: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    if let Some(old) = old {
        for field in ["priority", "preemptionPolicy"] {
            let was = old.pointer("/spec").and_then(|spec| spec.get(field)).cloned();
            if let (Some(spec), Some(was)) = (pod.get_mut("spec").and_then(Value::as_object_mut), was) {
                spec.entry(field).or_insert(was);
            }
        }
        return Ok(());
    }
    let name = object::str_at(pod, "/spec/priorityClassName");
    let class = if name.is_empty() {
        default_class(core)
    } else {
        let classes = core.builtin("scheduling.k8s.io", "priorityclasses");
        let Some(class) = core.store.get(classes.table, name) else {
            let why = format!("no PriorityClass with name {name} was found");
            return Err(forbidden(call, pod, &why));
        };
        Some(class.value())
    };
    let (priority, policy) = class.as_ref().map_or((0, DEFAULT_POLICY), |class| {
        let policy = class.get("preemptionPolicy").and_then(Value::as_str).unwrap_or(DEFAULT_POLICY);
        (class.get("value").and_then(Value::as_i64).unwrap_or(0), policy)
    });
    check_own(call, pod, priority, policy)?;
    let spec = object::map_mut(pod, "spec");
    if let Some(class) = &class {
        spec.insert("priorityClassName".to_owned(), json!(object::name(class)));
    }
    spec.insert("priority".to_owned(), json!(priority));
    spec.insert("preemptionPolicy".to_owned(), json!(policy));
    Ok(())
}

/// Rejects a priority or preemption policy that differs from the class.
fn check_own(call: &Call, pod: &Value, priority: i64, policy: &str) -> Result<(), StatusError> {
    let computed = "must not be provided in pod spec; priority admission controller computed";
    let from = "from the given PriorityClass name";
    if let Some(own) = pod.pointer("/spec/priority").and_then(Value::as_i64)
        && own != priority
    {
        let why = format!("the integer value of priority ({own}) {computed} {priority} {from}");
        return Err(forbidden(call, pod, &why));
    }
    let own = object::str_at(pod, "/spec/preemptionPolicy");
    if !own.is_empty() && own != policy {
        let why = format!("the string value of PreemptionPolicy ({own}) {computed} {policy} {from}");
        return Err(forbidden(call, pod, &why));
    }
    Ok(())
}

/// The global default class; of several, the one with the lowest value.
fn default_class(core: &Core) -> Option<Value> {
    let classes = core.builtin("scheduling.k8s.io", "priorityclasses");
    // This runs on every pod create, so only classes that can be the default are decoded.
    let mentions =
        |record: &Record| record.json().windows(DEFAULT_MARK.len()).any(|part| part == DEFAULT_MARK);
    let page = core.store.list(classes.table, &ListRange::default(), mentions).ok()?;
    let all = page.records.into_iter().map(|record| record.value());
    all.filter(is_default).min_by_key(|class| class.get("value").and_then(Value::as_i64))
}

fn is_default(class: &Value) -> bool {
    class.get("globalDefault") == Some(&Value::Bool(true))
}

/// Rejects a second global default class.
pub(super) fn check_default(
    core: &Core,
    attributes: &Attributes<'_>,
    class: &Value,
) -> Result<(), StatusError> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    let call = attributes.call;
    if !writes || !call.resource.is("scheduling.k8s.io", "priorityclasses") || !is_default(class) {
        return Ok(());
    }
    match default_class(core) {
        Some(other) if object::name(&other) != object::name(class) => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                object::name(&other)
            );
            Err(forbidden(call, class, &why))
        }
        Some(_) | None => Ok(()),
    }
}
