//! All components in one process (`kai all`): the same behaviour with fewer watches.
//!
//! `KAI_TEST_TOPOLOGY=combined cargo test -p kai-cli --test system` runs every scenario so, but for those that inject faults
//! into the client of one component.

use crate::test_cluster::{PodBuilder, TestCluster};
use crate::{eviction, gang_scheduling, node_failure, queue_limits, quick_start};
use kai_cli::embedded;
use kai_components::{ComponentOptions, MEMBERS, SchedulerHandle, name};
use kai_engine::plugin::PluginSet;
use kai_sim::{Cluster, NodeGroup};
use std::collections::BTreeMap;
use std::time::Duration;

type Join = fn(&mut Cluster, &ComponentOptions, &PluginSet) -> SchedulerHandle;

async fn combined(nodes: usize) -> TestCluster {
    let options = ComponentOptions::simulated();
    let join = |cluster: &mut Cluster| embedded::join_combined(cluster, &options, &PluginSet::builtin());
    TestCluster::with_components(1, [NodeGroup::gpu_nodes(nodes, 8)], join).await
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_job_runs() {
    quick_start::one_job(&combined(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_gang_is_not_bound_until_all_members_fit() {
    gang_scheduling::all_or_nothing(&combined(2).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_elastic_group_is_reduced_by_reclaim() {
    gang_scheduling::elastic(&combined(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_group_with_higher_priority_preempts() {
    eviction::preemption(&combined(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_queue_limits_are_enforced() {
    queue_limits::limits_are_enforced(&combined(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_pods_of_a_deleted_node_are_replaced() {
    node_failure::deleted(&combined(2).await).await;
}

/// What the API server sends to the members of `kai all`.
#[derive(Debug, Default)]
struct Load {
    /// Watches, by resource.
    watches: BTreeMap<String, usize>,
    /// Watch events without bookmarks.
    events: usize,
    bytes: usize,
}

/// Fills a cluster with single pods.
async fn load(join: Join) -> Load {
    const PODS: usize = 32;
    let options = ComponentOptions::simulated();
    let builder = Cluster::builder().seed(1).nodes([NodeGroup::gpu_nodes(PODS / 8, 8)]).keep_lines();
    let cluster = TestCluster::built(builder, |cluster| join(cluster, &options, &PluginSet::builtin())).await;
    cluster.create_queue("a", 32).await;
    for number in 0..PODS {
        cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("p", PODS).await;
    cluster.sleep(Duration::from_secs(30)).await;
    let mut load = Load::default();
    for line in cluster.backend.journal().lines() {
        let mut words = line.splitn(4, ' ').skip(1);
        let (Some(client), Some(what), Some(content)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let is_ours = client == name::COMBINED || MEMBERS.iter().any(|member| member.name() == client);
        if is_ours && what == "event" && !content.contains("BOOKMARK") {
            load.events += 1;
            load.bytes += content.len();
        } else if is_ours && what == "request" && content.contains("watch=true") {
            let path = content.split(['?', ' ']).nth(1).unwrap_or_default();
            *load.watches.entry(path.to_owned()).or_default() += 1;
        }
    }
    load
}

/// A scheduler alone watches twenty resources, so the number of watches falls less than their load: the resources that change
/// are those that most components watch.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn combined_process_watches_each_resource_once_and_receives_a_third() {
    let (separate, combined) = (load(embedded::join).await, load(embedded::join_combined).await);
    assert!(combined.watches.values().all(|count| *count == 1), "{combined:?}");
    assert!(combined.watches.keys().eq(separate.watches.keys()), "{separate:?} {combined:?}");
    let count = |load: &Load| load.watches.values().sum::<usize>();
    for (topology, load) in [("separate", &separate), ("combined", &combined)] {
        println!("{topology}: {} watches, {} events, {} bytes", count(load), load.events, load.bytes);
    }
    assert!(count(&combined) * 100 <= count(&separate) * 65, "{separate:?} {combined:?}");
    assert!(combined.events * 3 <= separate.events, "{separate:?} {combined:?}");
    assert!(combined.bytes * 3 <= separate.bytes, "{separate:?} {combined:?}");
}
