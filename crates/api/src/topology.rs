//! `Topology` (`kai.scheduler/v1alpha1`): levels of node labels that group nodes into blocks, racks and so on.

use crate::{
    schema::{QUALIFIED_NAME, custom_resource_schema},
    value::null_is_empty,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Levels of a topology.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1alpha1",
    kind = "Topology",
    plural = "topologies",
    doc = "A topology: node labels that group the nodes, from large domains to small ones.",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    // Accepts an object without a spec; kube takes serde attributes in no other form.
    attr = "cfg_attr(all(), serde(default))"
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// The levels, outermost first. Their node labels cannot be changed later, their aliases can.
    #[serde(deserialize_with = "null_is_empty")]
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "atomic"),
        extend("x-kubernetes-validations" = [
            {
                // Comparing the lists of labels is shorter, but kube-apiserver 1.28 estimates its cost above the budget.
                "rule": "size(self) == size(oldSelf) && [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].all(i, \
                         i >= size(self) || self[i].nodeLabel == oldSelf[i].nodeLabel)",
                "message": "the node labels of the levels and their order cannot be changed; aliases can",
            },
            {
                "rule": "size(self.filter(i, size(self.filter(j, j.nodeLabel == i.nodeLabel)) > 1)) == 0",
                "message": "each node label may be used by one level only",
            },
            {
                "rule": "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || \
                         self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
                "message": "kubernetes.io/hostname can only be the last level",
            },
        ])
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The node label whose values are the domains of this level.
    #[schemars(
        length(min = 1, max = 316),
        regex(pattern = QUALIFIED_NAME)
    )]
    pub node_label: String,
    /// A shorter name for the level, accepted wherever its node label is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        length(min = 1, max = 316),
        regex(pattern = QUALIFIED_NAME)
    )]
    pub alias: String,
}

custom_resource_schema!(
    Topology,
    "A topology: node labels that group the nodes, from large domains to small ones.",
    { spec: required TopologySpec }
);
