//! Selectors over labels and nodes, in Kubernetes' JSON form.

use crate::value::{Labels, List, Text};
use serde::{Deserialize, Serialize};

/// A selector over labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
    /// Further tests.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_expressions: List<Expression>,
}

/// A test on one label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Expression {
    /// Label or field name.
    pub key: Text,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`.
    pub operator: Text,
    /// What to compare with.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub values: List<Text>,
}

/// A selector over nodes: any of the terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: List<NodeSelectorTerm>,
}

/// All tests of a term must hold; a term without tests selects nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Tests on labels.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_expressions: List<Expression>,
    /// Tests on fields; only `metadata.name` is known.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_fields: List<Expression>,
}

/// A toleration of a node or device taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key; empty with `Exists` means every key.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub key: Text,
    /// `Equal` (the default), `Exists`, `Gt` or `Lt`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub operator: Text,
    /// Value.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub value: Text,
    /// Effect; empty means every effect.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub effect: Text,
}

/// A taint of a node or a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key.
    pub key: Text,
    /// Value.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub value: Text,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Text,
}
