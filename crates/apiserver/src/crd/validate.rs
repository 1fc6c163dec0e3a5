//! Defaulting and validation of `CustomResourceDefinition`s.

use crate::field::{Error, Path};
use crate::schema::Schema;
use crate::{names, object};
use serde_json::{Value, json};

/// The annotation that permits groups of Kubernetes itself (API review of kubernetes/enhancements pull 1111).
const APPROVED: &str = "api-approved.kubernetes.io";

/// Defaults the names and settings of a definition.
pub fn default(definition: &mut Value) {
    let kind = object::str_at(definition, "/spec/names/kind").to_owned();
    let spec = object::map_mut(definition, "spec");
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let names = spec.entry("names").or_insert_with(|| json!({}));
    if let Some(names) = names.as_object_mut() {
        let empty = |value: Option<&Value>| value.is_none_or(|value| value == "");
        if empty(names.get("singular")) {
            names.insert("singular".to_owned(), Value::from(kind.to_lowercase()));
        }
        if empty(names.get("listKind")) {
            names.insert("listKind".to_owned(), Value::from(format!("{kind}List")));
        }
    }
}

/// All validation errors of a definition.
pub fn validate(definition: &Value) -> Vec<Error> {
    let spec = Path::of("spec");
    let mut errors = validate_names(definition);
    let scope = object::str_at(definition, "/spec/scope");
    match scope {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(Error::required(&spec.field("scope"), "")),
        other => errors.push(Error::not_supported(&spec.field("scope"), other, &["Cluster", "Namespaced"])),
    }
    if definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(Error::invalid(&spec.field("preserveUnknownFields"), true, detail));
    }
    errors.extend(validate_versions(definition));
    if definition.pointer("/spec/versions").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let status = Path::of("status");
        let detail = "must have at least one stored version";
        errors.push(Error::invalid(&status.field("storedVersions"), Value::Null, detail));
    }
    errors.extend(validate_stored(definition));
    let group = object::str_at(definition, "/spec/group");
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group == *domain || group.strip_suffix(domain).is_some_and(|prefix| prefix.ends_with('.'))
    });
    let approval = object::meta(definition, "annotations").and_then(|annotations| annotations.get(APPROVED));
    if protected && approval.is_none() {
        let metadata = Path::of("metadata");
        let annotations = metadata.field("annotations");
        let detail = format!(
            "protected groups must have approval annotation \"{APPROVED}\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(Error::required(&annotations.key(APPROVED), detail));
    }
    errors
}

/// With several storage versions, kube-apiserver records the first one and looks for the last one.
fn validate_stored(definition: &Value) -> Option<Error> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array)?;
    let storage: Vec<&Value> = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| &version["name"])
        .collect();
    let [_, .., last] = storage.as_slice() else { return None };
    let stored = definition.pointer("/status/storedVersions").filter(|stored| stored.is_array())?;
    let missing = !stored.as_array().is_some_and(|stored| stored.contains(last));
    let status = Path::of("status");
    let detail = format!("must have the storage version {}", last.as_str().unwrap_or_default());
    missing.then(|| Error::invalid(&status.field("storedVersions"), stored.clone(), detail))
}

fn validate_names(definition: &Value) -> Vec<Error> {
    let (metadata, spec) = (Path::of("metadata"), Path::of("spec"));
    let path = spec.field("names");
    let text = |pointer: &str| object::str_at(definition, pointer);
    let (group, plural, kind) = (text("/spec/group"), text("/spec/names/plural"), text("/spec/names/kind"));
    let mut errors = Vec::new();
    let name = object::name(definition);
    if name != format!("{plural}.{group}") {
        errors.push(Error::invalid(
            &metadata.field("name"),
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        errors.push(Error::required(&spec.field("group"), ""));
    } else {
        errors.extend(
            names::subdomain(group)
                .into_iter()
                .map(|fault| Error::invalid(&spec.field("group"), group, fault)),
        );
        if !group.contains('.') {
            errors.push(Error::invalid(
                &spec.field("group"),
                group,
                "should be a domain with at least one dot",
            ));
        }
    }
    for (field, value) in [("plural", plural), ("singular", text("/spec/names/singular"))] {
        if value.is_empty() {
            errors.push(Error::required(&path.field(field), ""));
        } else {
            let faults = names::dns_1035_label(value).into_iter();
            errors.extend(faults.map(|fault| Error::invalid(&path.field(field), value, fault)));
        }
    }
    for (field, value) in [("kind", kind), ("listKind", text("/spec/names/listKind"))] {
        if value.is_empty() {
            errors.push(Error::required(&path.field(field), ""));
        } else {
            let faults = names::dns_1035_label(&value.to_lowercase()).into_iter();
            let message =
                faults.map(|fault| format!("may have mixed case, but should otherwise match: {fault}"));
            errors.extend(message.map(|fault| Error::invalid(&path.field(field), value, fault)));
        }
    }
    if !kind.is_empty() && kind == text("/spec/names/listKind") {
        errors.push(Error::invalid(&path.field("listKind"), kind, "kind and listKind may not be the same"));
    }
    errors
}

/// Whether all versions have the same schema.
fn shared_schema(versions: &[Value]) -> bool {
    shared(versions, "schema")
}

fn shared(versions: &[Value], field: &str) -> bool {
    versions.windows(2).all(|pair| pair[0][field] == pair[1][field])
}

/// Versions as kube-apiserver prints them: with Go field names, and without what all versions share.
fn shown_versions(versions: &[Value]) -> String {
    let shown = versions.iter().map(|version| {
        let flag = |field: &str| version[field].as_bool().unwrap_or_default();
        let own = |field: &str| if shared(versions, field) { &Value::Null } else { &version[field] };
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
            version["name"],
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            version["deprecationWarning"],
            own("schema"),
            own("subresources"),
            own("additionalPrinterColumns"),
            version["selectableFields"],
        )
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

/// Validates an update of a definition.
pub fn validate_update(old: &Value, new: &Value) -> Vec<Error> {
    let mut errors = Vec::new();
    let spec = Path::of("spec");
    for field in ["group", "scope"] {
        if old["spec"][field] != new["spec"][field] {
            errors.push(Error::invalid(&spec.field(field), new["spec"][field].clone(), "field is immutable"));
        }
    }
    errors
}

fn validate_versions(definition: &Value) -> Vec<Error> {
    let spec = Path::of("spec");
    let path = spec.field("versions");
    let versions =
        definition.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    let storage = versions.iter().filter(|version| version["storage"] == true).count();
    if storage != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(Error::invalid_unshown(&path, format!("{}: {detail}", shown_versions(versions))));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        let name = version["name"].as_str().unwrap_or_default();
        let faults = names::dns_1035_label(name).into_iter();
        errors.extend(faults.map(|fault| Error::invalid(&path.field("name"), name, fault)));
        if seen.contains(&name) {
            let spec = Path::of("spec");
            let list = spec.field("versions");
            let detail = format!("{}: must contain unique version names", shown_versions(versions));
            errors.push(Error::invalid_unshown(&list, detail));
        }
        seen.push(name);
        let schema = path.field("schema");
        match version.pointer("/schema/openAPIV3Schema").filter(|schema| schema.is_object()) {
            None => errors.push(Error::required(&schema.field("openAPIV3Schema"), "")),
            Some(value) => {
                // kube-apiserver stores a schema that all versions share outside of the versions.
                let (spec, shared) = (Path::of("spec"), shared_schema(versions));
                let validation = spec.field("validation");
                let place = if shared {
                    validation.field("openAPIV3Schema")
                } else {
                    schema.field("openAPIV3Schema")
                };
                if let Err(faults) = Schema::of_definition(value, &place)
                    && (index == 0 || !shared)
                {
                    errors.extend(faults);
                }
            }
        }
    }
    errors
}
