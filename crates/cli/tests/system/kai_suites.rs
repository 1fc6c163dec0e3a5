//! What the end-to-end suites of KAI show, suite by suite; `docs/scenarios.md` maps their ids to these scenarios.
//!
//! A scenario runs the ids of a suite one after another in one world, and is stricter than KAI where KAI only says "at
//! least": the counts are exact, and must hold for some cycles.

pub(crate) mod conditions;
pub(crate) mod consolidation;
pub(crate) mod devices;
pub(crate) mod elastic;
pub(crate) mod node_order;
pub(crate) mod numa;
pub(crate) mod predicates;
pub(crate) mod preempt;
pub(crate) mod quota;
pub(crate) mod reclaim;
pub(crate) mod resources;
mod shard;
mod steps;
pub(crate) mod subgroups;
pub(crate) mod topology;

pub(crate) use shard::{Shard, of as shard_of};

use crate::test_cluster::TestCluster;
use kai_cli::embedded::admission::{self, pod_options};
use kai_components::ComponentOptions;
use kai_sim::NodeGroup;

/// An embedded cluster with the webhooks and the scheduler of an installation, for the scenario of this name.
async fn embedded(scenario: &str, nodes: NodeGroup) -> TestCluster {
    let mut options = ComponentOptions::default();
    if let Some(shard) = shard_of(scenario) {
        shard.configure(&mut options.scheduler);
    }
    let cluster = TestCluster::with_options(1, [nodes], &options).await;
    admission::install(&cluster.backend, pod_options()).await.unwrap();
    cluster
}
