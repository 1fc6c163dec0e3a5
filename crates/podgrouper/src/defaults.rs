//! Default priority class and preemptibility by kind, from the ConfigMap of KAI's `default-priorities-configmap` flags.

use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

/// The key of the ConfigMap's data.
const KEY: &str = "types";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults(Vec<OfKind>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OfKind {
    type_name: String,
    group: String,
    pub priority_name: Option<String>,
    pub preemptibility: Option<String>,
}

impl Defaults {
    /// A missing or malformed ConfigMap has no defaults.
    pub fn read(map: Option<&ConfigMap>) -> Self {
        map.and_then(|map| Self::parse(map).ok()).unwrap_or_default()
    }

    /// The defaults of a ConfigMap, or what is wrong with it.
    pub fn parse(map: &ConfigMap) -> Result<Self, String> {
        let Some(data) = map.data.as_ref().filter(|data| !data.is_empty()) else {
            return Ok(Self::default());
        };
        let text = data.get(KEY).ok_or_else(|| format!("key `{KEY}` is missing"))?;
        let all = serde_json::from_str(text).map_err(|error| format!("key `{KEY}`: {error}"))?;
        Ok(Self(all))
    }

    /// Whether some kind has this priority class by default.
    pub fn names_class(&self, class: &str) -> bool {
        self.0.iter().any(|of| of.priority_name.as_deref() == Some(class))
    }

    /// The defaults of a kind: those for its group, else those for its bare name.
    pub fn of(&self, (group, _, kind): (&str, &str, &str)) -> Option<&OfKind> {
        let named = |group: &str| self.0.iter().rfind(|of| of.type_name == kind && of.group == group);
        named(group).or_else(|| named(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(types: String) -> ConfigMap {
        ConfigMap { data: Some([(KEY.to_owned(), types)].into()), ..ConfigMap::default() }
    }

    #[test]
    fn entry_with_a_group_precedes_one_with_the_kind_alone() {
        let types = json!([
            {"typeName": "Job", "priorityName": "low"},
            {"typeName": "Job", "group": "batch", "priorityName": "high"},
        ]);
        let defaults = Defaults::read(Some(&map(types.to_string())));
        let class =
            |group: &str| defaults.of((group, "v1", "Job")).and_then(|of| of.priority_name.as_deref());
        assert_eq!((class("batch"), class("other")), (Some("high"), Some("low")));
        assert_eq!(defaults.of(("", "v1", "Pod")), None);
    }

    #[test]
    fn malformed_config_map_has_no_defaults() {
        assert_eq!(Defaults::read(Some(&map("{".to_owned()))), Defaults::default());
        assert_eq!(Defaults::read(None), Defaults::default());
        let problem = |map: &ConfigMap| Defaults::parse(map).unwrap_err();
        assert!(problem(&map("{".to_owned())).starts_with("key `types`: "));
        let misspelt =
            ConfigMap { data: Some([("type".to_owned(), "[]".to_owned())].into()), ..ConfigMap::default() };
        assert_eq!(problem(&misspelt), "key `types` is missing");
        assert_eq!(Defaults::parse(&ConfigMap::default()), Ok(Defaults::default()));
    }
}
