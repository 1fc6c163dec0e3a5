//! Defaults of priority class and preemptibility by kind, from the map that an administrator keeps.

use serde::Deserialize;
use serde_json::Value;

/// The key of the map that holds them.
const KEY: &str = "types";

/// All defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Defaults(Vec<OfKind>);

/// Defaults of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OfKind {
    type_name: String,
    group: String,
    /// The priority class.
    pub(super) priority_name: Option<String>,
    /// Whether workloads may be evicted.
    pub(super) preemptibility: Option<String>,
}

impl Defaults {
    /// Reads a config map; a missing or unreadable one has no defaults.
    pub(super) fn read(map: Option<&Value>) -> Self {
        let Some(text) = map.and_then(|map| map.get("data")?.get(KEY)?.as_str()) else {
            return Self::default();
        };
        match serde_json::from_str(text) {
            Ok(all) => Self(all),
            Err(error) => {
                tracing::error!(%error, "the default priorities cannot be read");
                Self::default()
            }
        }
    }

    /// The defaults of a kind: those for its group, else those for its bare name.
    pub(super) fn of(&self, (group, _, kind): (&str, &str, &str)) -> Option<&OfKind> {
        let named = |group: &str| self.0.iter().rfind(|of| of.type_name == kind && of.group == group);
        named(group).or_else(|| named(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_group_counts_before_the_bare_kind() {
        let types = json!([
            {"typeName": "Job", "priorityName": "low"},
            {"typeName": "Job", "group": "batch", "priorityName": "high"},
        ]);
        let defaults = Defaults::read(Some(&json!({"data": {"types": types.to_string()}})));
        let class =
            |group: &str| defaults.of((group, "v1", "Job")).and_then(|of| of.priority_name.as_deref());
        assert_eq!((class("batch"), class("other")), (Some("high"), Some("low")));
        assert_eq!(defaults.of(("", "v1", "Pod")), None);
    }

    #[test]
    fn what_cannot_be_read_has_no_defaults() {
        assert_eq!(Defaults::read(Some(&json!({"data": {"types": "{"}}))), Defaults::default());
        assert_eq!(Defaults::read(None), Defaults::default());
    }
}
