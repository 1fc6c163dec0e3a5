//! Merge extensions of a server's `OpenAPI` document: patch merge keys and strategies, list and map types.
//!
//! Those of a real server are recorded in `tests/api-suite/recorded/merge-facts.json`; the table of the embedded server is
//! compared with that file.

use super::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a field is merged by patches and by server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeFacts {
    /// `x-kubernetes-patch-merge-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_key: Option<String>,
    /// `x-kubernetes-patch-strategy`, such as `merge,retainKeys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// `x-kubernetes-list-type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_type: Option<String>,
    /// `x-kubernetes-list-map-keys`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map_keys: Vec<String>,
    /// `x-kubernetes-map-type`, of the field or of the object that it refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_type: Option<String>,
}

/// By schema (`io.k8s.api.core.v1.PodSpec`) and field; those of the schema itself have the field `""`.
pub type Facts = BTreeMap<String, BTreeMap<String, MergeFacts>>;

/// Adds the facts of one document of `/openapi/v3`.
pub fn collect(document: &Value, facts: &mut Facts) {
    let Some(schemas) = document.pointer("/components/schemas").and_then(Value::as_object) else { return };
    for (name, schema) in schemas {
        let mut fields = BTreeMap::new();
        fields.insert(String::new(), of(schema));
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            fields.insert(field.clone(), of(schema));
        }
        fields.retain(|_, one| *one != MergeFacts::default());
        if !fields.is_empty() {
            facts.insert(name.clone(), fields);
        }
    }
}

fn of(schema: &Value) -> MergeFacts {
    let text = |key: &str| schema[key].as_str().map(str::to_owned);
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    MergeFacts {
        merge_key: text("x-kubernetes-patch-merge-key"),
        strategy: text("x-kubernetes-patch-strategy"),
        list_type: text("x-kubernetes-list-type"),
        map_keys: keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
        map_type: text("x-kubernetes-map-type"),
    }
}

/// Reads the recorded facts.
pub fn recorded(folder: &Path) -> Result<Facts, Error> {
    let path = file(folder);
    let text = std::fs::read_to_string(&path).map_err(|source| Error::File { path: path.clone(), source })?;
    serde_json::from_str(&text).map_err(|error| Error::Malformed { path, problem: error.to_string() })
}

/// Writes facts for [`recorded`], one line per schema.
pub fn record(folder: &Path, facts: &Facts) -> Result<(), Error> {
    let path = file(folder);
    let mut lines = Vec::new();
    for (name, fields) in facts {
        let fields = serde_json::to_string(fields)
            .map_err(|error| Error::Malformed { path: path.clone(), problem: error.to_string() })?;
        lines.push(format!("\"{name}\": {fields}"));
    }
    std::fs::write(&path, format!("{{\n{}\n}}\n", lines.join(",\n")))
        .map_err(|source| Error::File { path, source })
}

fn file(folder: &Path) -> PathBuf {
    folder.join("recorded").join("merge-facts.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_collected_by_schema_and_field() {
        let document = json!({"components": {"schemas": {"PodSpec": {"properties": {
            "containers": {"x-kubernetes-patch-merge-key": "name", "x-kubernetes-list-map-keys": ["name"]},
            "hostname": {"type": "string"},
        }}, "Plain": {}}}});
        let mut facts = Facts::new();
        collect(&document, &mut facts);
        assert_eq!(facts.len(), 1);
        assert_eq!(facts["PodSpec"].len(), 1);
        assert_eq!(facts["PodSpec"]["containers"].merge_key.as_deref(), Some("name"));
    }
}
