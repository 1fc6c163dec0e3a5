//! The status of a definition: `NamesAccepted`, `Established` and `Terminating`.

use crate::object;
use crate::server::Core;
use crate::store::ListRange;
use serde_json::{Value, json};

/// The initial status of a definition.
pub(super) fn init(definition: &mut Value) {
    let storage: Vec<Value> = storage_version(definition).into_iter().collect();
    definition["status"] =
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": storage});
}

fn storage_version(definition: &Value) -> Option<Value> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array)?;
    Some(versions.iter().find(|version| version["storage"] == true)?["name"].clone())
}

/// Sets the `Terminating` condition.
pub(super) fn set_terminating(definition: &mut Value, now: &str) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set(definition, "Terminating", &("True", "InstanceDeletionPending", message.to_owned()), now);
}

/// Computes the status of a definition; returns whether it is served.
pub(super) fn establish(core: &Core, definition: &mut Value) -> bool {
    let now = core.clock.time();
    let storage = storage_version(definition);
    let (accepted, conflict) = accept_names(core, definition);
    let status = object::map_mut(definition, "status");
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let (Some(stored), Some(storage)) = (stored.as_array_mut(), storage)
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    status.insert("acceptedNames".to_owned(), accepted);
    let condition_of_names = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", *reason, message.clone()),
    };
    set(definition, "NamesAccepted", &condition_of_names, &now);
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
    if conditions.is_null() {
        *conditions = json!([]);
    }
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
        conditions.push(entry);
    }
}

/// The names that no other definition of the group uses, and the last one that conflicts.
fn accept_names(core: &Core, definition: &Value) -> (Value, Option<(&'static str, String)>) {
    let group = object::str_at(definition, "/spec/group");
    let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let page = core.store.list(definitions.table, &ListRange::default(), |_| true);
    let others: Vec<Value> = page
        .into_iter()
        .flat_map(|page| page.records)
        .filter(|record| record.name() != object::name(definition))
        .map(|record| record.value())
        .filter(|other| object::str_at(other, "/spec/group") == group)
        .map(|other| other["status"]["acceptedNames"].clone())
        .collect();
    let texts = |names: &Value, fields: &[&str]| -> Vec<String> {
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let short: Vec<&str> = if fields.contains(&"shortNames") { short.collect() } else { Vec::new() };
        fields.iter().filter_map(|field| names[*field].as_str()).chain(short).map(str::to_owned).collect()
    };
    let resources: Vec<String> =
        others.iter().flat_map(|names| texts(names, &["plural", "singular", "shortNames"])).collect();
    let kinds: Vec<String> = others.iter().flat_map(|names| texts(names, &["kind", "listKind"])).collect();
    let wanted = &definition["spec"]["names"];
    let mut accepted = json!({"kind": "", "plural": ""});
    let mut conflict = None;
    let checks = [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ];
    for (field, reason, taken) in checks {
        let names =
            if field == "shortNames" { texts(wanted, &["shortNames"]) } else { texts(wanted, &[field]) };
        match names.iter().find(|name| taken.contains(name)) {
            Some(name) => conflict = Some((reason, format!("\"{name}\" is already in use"))),
            None if names.is_empty() => {}
            None => accepted[field] = wanted[field].clone(),
        }
    }
    if let Some(categories) = wanted.get("categories") {
        accepted["categories"] = categories.clone();
    }
    (accepted, conflict)
}
