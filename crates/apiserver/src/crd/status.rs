//! What the server says of a definition: whether its names are accepted and it is served.

use crate::object;
use crate::server::Core;
use crate::store::Wanted;
use serde_json::{Value, json};

/// Writes the status of a definition, and tells whether its names are accepted.
pub(super) fn establish(core: &Core, definition: &mut Value) -> bool {
    let now = core.clock.time();
    let conflict = conflict(core, definition);
    let storage = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .map(|version| version["name"].clone());
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let status = object::map_mut(definition, "status");
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let (Some(stored), Some(storage)) = (stored.as_array_mut(), storage)
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    let accepted = match &conflict {
        None => {
            status.insert("acceptedNames".to_owned(), names);
            ("True", "NoConflicts", "no conflicts found".to_owned())
        }
        Some((reason, message)) => {
            status.entry("acceptedNames").or_insert_with(|| json!({"kind": "", "plural": ""}));
            ("False", *reason, message.clone())
        }
    };
    set(definition, "NamesAccepted", &accepted, &now);
    let was = condition(definition, "Established") == Some("True");
    if conflict.is_none() {
        let established = ("True", "InitialNamesAccepted", "the initial names have been accepted".to_owned());
        set(definition, "Established", &established, &now);
    } else if !was {
        set(
            definition,
            "Established",
            &("False", "NotAccepted", "not all names are accepted".to_owned()),
            &now,
        );
    }
    conflict.is_none() || was
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions?.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

fn set(definition: &mut Value, kind: &str, (status, reason, message): &(&str, &str, String), now: &str) {
    if condition(definition, kind) == Some(status) {
        return;
    }
    let entry = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    let conditions = object::map_mut(definition, "status").entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
        conditions.push(entry);
    }
}

/// The first name that another definition of the group has already.
fn conflict(core: &Core, definition: &Value) -> Option<(&'static str, String)> {
    let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let page = core.store.list(definitions.table, &Wanted::default(), |_| true).ok()?;
    let group = object::str_at(definition, "/spec/group");
    let others: Vec<Value> = page
        .records
        .iter()
        .filter(|record| record.name() != object::name(definition))
        .map(|record| record.value())
        .filter(|other| object::str_at(other, "/spec/group") == group)
        .collect();
    let accepted = |other: &Value, field: &str| other["status"]["acceptedNames"][field].clone();
    let names = |object: &Value, at: &str| -> Vec<String> {
        let names = object.pointer(at).unwrap_or(&Value::Null);
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let own = ["plural", "singular"].into_iter().filter_map(|field| names[field].as_str());
        own.chain(short).map(str::to_owned).collect()
    };
    let taken: Vec<String> = others.iter().flat_map(|other| names(other, "/status/acceptedNames")).collect();
    let checks = [("plural", "PluralConflict"), ("singular", "SingularConflict")];
    for (field, reason) in checks {
        let name = object::str_at(definition, &format!("/spec/names/{field}")).to_owned();
        if taken.contains(&name) {
            return Some((reason, format!("\"{name}\" is already in use")));
        }
    }
    let short = definition.pointer("/spec/names/shortNames").and_then(Value::as_array);
    for name in short.into_iter().flatten().filter_map(Value::as_str) {
        if taken.iter().any(|known| known == name) {
            return Some(("ShortNamesConflict", format!("\"{name}\" is already in use")));
        }
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let name = definition.pointer(&format!("/spec/names/{field}")).cloned().unwrap_or_default();
        let used =
            others.iter().any(|other| accepted(other, "kind") == name || accepted(other, "listKind") == name);
        if used {
            return Some((reason, format!("{name} is already in use")));
        }
    }
    None
}
