//! Label selectors, node selectors, taints and tolerations (`core/v1`, `meta/v1`).

use crate::value::{Labels, List, Text};
use serde::{Deserialize, Serialize};

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels with their required values.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
    /// Further requirements.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_expressions: List<Expression>,
}

/// A requirement on one label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Expression {
    /// Label or field name.
    pub key: Text,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`.
    pub operator: Text,
    /// Operands of the operator.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub values: List<Text>,
}

/// A node selector; the terms are ORed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Alternative terms.
    pub node_selector_terms: List<NodeSelectorTerm>,
}

/// A term of ANDed requirements; an empty term selects no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_expressions: List<Expression>,
    /// Requirements on fields; only `metadata.name` is supported.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub match_fields: List<Expression>,
}

/// A toleration of a node or device taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key of the taint; empty with `Exists` means every key.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub key: Text,
    /// `Equal` (the default), `Exists`, `Gt` or `Lt`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub operator: Text,
    /// Value of the taint.
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
    /// Key of the taint.
    pub key: Text,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub value: Text,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Text,
}
