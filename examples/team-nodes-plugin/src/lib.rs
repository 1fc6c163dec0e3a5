//! Example plugin: dedicates nodes to teams, with the public plugin API only.
//!
//! A node with the label `team` is feasible only for pods of the queue of that name, and scores higher for them. The
//! label key is an argument: `{name: teamnodes, arguments: {label: team}}`.

use kai_engine::Cluster;
use kai_engine::ids::{NodeIdx, PodIdx};
use kai_engine::plugin::{Args, Depends, Filter, Plugin, Registry, Score};
use std::sync::Arc;

/// Between bin-packing (at most 9) and `nodeavailability` (1000): dedicated nodes come first, but a pod is not pipelined
/// to one while another node has idle resources.
const OWN_NODE: f64 = 100.0;

/// Filters and scores nodes by team label.
pub struct TeamNodes;

impl Plugin for TeamNodes {
    fn name(&self) -> &'static str {
        "teamnodes"
    }

    fn register(&self, args: &mut Args<'_>, to: &mut Registry) {
        let rule = Arc::new(Rule { label: args.text("label").unwrap_or("team").to_owned() });
        // The rule reads the pod's queue, which is not part of its specification: results differ between pods with
        // equal specifications.
        to.filters.push((Depends::Global, Arc::<Rule>::clone(&rule)));
        to.scores.push((Depends::Global, rule));
    }
}

struct Rule {
    label: String,
}

impl Rule {
    /// The team that owns a node.
    fn owner<'c>(&self, cluster: &'c Cluster, node: NodeIdx) -> Option<&'c str> {
        let key = cluster.names.find(&self.label)?;
        cluster.nodes[node].label(key).map(|team| cluster.text(team))
    }

    /// The queue that a pod belongs to.
    fn queue(cluster: &Cluster, pod: PodIdx) -> Option<&str> {
        let group = cluster.pods[pod].group?;
        Some(cluster.text(cluster.groups[group].queue_name))
    }
}

impl Filter for Rule {
    fn fits(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> Result<(), String> {
        match self.owner(cluster, node) {
            Some(team) if Self::queue(cluster, pod) != Some(team) => {
                Err(format!("the node belongs to team `{team}`"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Score for Rule {
    fn score(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> Option<f64> {
        let own = self.owner(cluster, node).is_some_and(|team| Self::queue(cluster, pod) == Some(team));
        Some(if own { OWN_NODE } else { 0.0 })
    }
}
