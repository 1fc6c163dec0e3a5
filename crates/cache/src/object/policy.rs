//! Priority classes, config maps, namespaces and disruption budgets.

use kai_api::meta::Meta;
use kai_api::selector::LabelSelector;
use kai_api::value::null_is_empty;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub value: i32,
    /// Applies to groups without a known class.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub global_default: bool,
}

/// A config map; its data is sensitive and not needed, so it is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudget {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PodDisruptionBudgetSpec,
    #[serde(deserialize_with = "null_is_empty")]
    pub status: PodDisruptionBudgetStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// Which pods; absent selects none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    #[serde(deserialize_with = "null_is_empty")]
    pub disruptions_allowed: i32,
}
