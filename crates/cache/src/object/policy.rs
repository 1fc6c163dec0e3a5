//! Small kinds that only name or rank things.

use kai_api::meta::Meta;
use kai_api::selector::LabelSelector;
use kai_api::value::null_is_empty;
use serde::{Deserialize, Serialize};

/// A priority class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// Its value.
    #[serde(deserialize_with = "null_is_empty")]
    pub value: i32,
    /// It serves whatever names no class.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_is_empty")]
    pub global_default: bool,
}

/// A config map; its data is sensitive and not needed, so it is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
}

/// A disruption budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudget {
    /// Metadata.
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Meta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: PodDisruptionBudgetSpec,
    /// What is reported.
    #[serde(deserialize_with = "null_is_empty")]
    pub status: PodDisruptionBudgetStatus,
}

/// Pods a budget covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// Which pods; absent selects none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// What is left of a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// Evictions it still allows.
    #[serde(deserialize_with = "null_is_empty")]
    pub disruptions_allowed: i32,
}
