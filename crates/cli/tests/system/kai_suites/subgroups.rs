//! Trees of subgroups: how many pods of which subgroup start.

use super::embedded;
use super::steps::{bounds, cpu_pod};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::label;
use kai_scheduler::resources::QUEUE;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

/// Pods of 100m in a subgroup; their names begin with `GROUP-SUBGROUP-`.
fn members(group: &str, queue: &str, subgroup: &str, count: usize) -> Vec<PodBuilder> {
    let pod = |number: usize| cpu_pod(&format!("{group}-{subgroup}-{number}"), queue, "100m");
    (0..count).map(|number| pod(number).label(label::SUBGROUP, subgroup)).collect()
}

/// A leaf subgroup, with its number of pods.
type Leaf<'a> = (&'a str, usize, u32);

fn leaf((name, _, min): Leaf<'_>, parent: Option<&str>) -> Value {
    let mut leaf = json!({"name": name, "minMember": min});
    if let Some(parent) = parent {
        leaf["parent"] = json!(parent);
    }
    leaf
}

/// Creates a group over leaves at its top.
pub(super) async fn flat<B>(
    cluster: &TestCluster<B>,
    name: &str,
    queue: &str,
    mut spec: Value,
    leaves: &[Leaf<'_>],
) {
    spec["subGroups"] = leaves.iter().map(|of| leaf(*of, None)).collect();
    let pods = leaves.iter().flat_map(|(leaf, count, _)| members(name, queue, leaf, *count)).collect();
    cluster.own_group(name, queue, spec, pods).await;
}

/// Creates a tree of two levels: inner subgroups with their own minimum over leaves.
async fn nested<B>(
    cluster: &TestCluster<B>,
    name: &str,
    queue: &str,
    min: u32,
    inner: &[(&str, u32, &[Leaf<'_>])],
) {
    let mut groups = Vec::new();
    let mut pods = Vec::new();
    for (inner, min, leaves) in inner {
        groups.push(json!({"name": inner, "minSubGroup": min}));
        for of in *leaves {
            groups.push(leaf(*of, Some(inner)));
            pods.extend(members(name, queue, of.0, of.1));
        }
    }
    cluster.own_group(name, queue, json!({"minSubGroup": min, "subGroups": groups}), pods).await;
}

const FOUR: [Leaf<'_>; 4] = [("a", 2, 2), ("b", 2, 2), ("c", 2, 2), ("d", 2, 2)];

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn trees_start_with_as_many_subgroups_as_they_need() {
    trees(&embedded("suite-subtree", NodeGroup::gpu_nodes(1, 8)).await).await;
}

/// subtree-01 … 08, on one node.
pub(crate) async fn trees<B>(cluster: &TestCluster<B>) {
    for milli in [400, 600, 800, 1000] {
        cluster.cpu_queue(&format!("cpu-{milli}"), milli).await;
    }
    flat(cluster, "fits", "cpu-800", json!({"minSubGroup": 3}), &FOUR).await;
    cluster.settles("fits-", 8, 0).await;
    cluster.clear().await;

    cluster.runs(cpu_pod("early", "cpu-800", "200m")).await;
    flat(cluster, "three", "cpu-800", json!({"minSubGroup": 3}), &FOUR).await;
    cluster.settles("three-", 6, 2).await;
    for (leaf, ..) in FOUR {
        let (scheduled, _) = cluster.states(&format!("three-{leaf}-")).await;
        assert!(scheduled == 0 || scheduled == 2, "{scheduled} pods of subgroup {leaf} of a gang of two");
    }
    cluster.clear().await;

    cluster.runs(cpu_pod("early", "cpu-800", "500m")).await;
    flat(cluster, "four", "cpu-800", json!({"minSubGroup": 4}), &FOUR).await;
    cluster.settles("four-", 0, 8).await;
    cluster.clear().await;

    let disaggregated: [(&str, u32, &[Leaf<'_>]); 2] = [
        ("decode", 2, &[("decode-leaders", 1, 1), ("decode-workers", 4, 4)]),
        ("prefill", 2, &[("prefill-leaders", 1, 1), ("prefill-workers", 4, 4)]),
    ];
    nested(cluster, "serve", "cpu-1000", 2, &disaggregated).await;
    cluster.settles("serve-", 10, 0).await;
    cluster.clear().await;
    cluster.runs(cpu_pod("early", "cpu-1000", "700m")).await;
    nested(cluster, "serve", "cpu-1000", 2, &disaggregated).await;
    cluster.settles("serve-", 0, 10).await;
    cluster.clear().await;

    flat(cluster, "members", "cpu-600", json!({"minMember": 4}), &[("sub-1", 3, 2), ("sub-2", 3, 2)]).await;
    cluster.settles("members-", 6, 0).await;
    cluster.clear().await;

    let pods = (0..3).map(|number| cpu_pod(&format!("plain-{number}"), "cpu-600", "100m")).collect();
    cluster.own_group("plain", "cpu-600", json!({"minMember": 2}), pods).await;
    cluster.settles("plain-", 3, 0).await;
    cluster.clear().await;

    let optional: [(&str, u32, &[Leaf<'_>]); 2] =
        [("required", 2, &[("r-1", 1, 1), ("r-2", 1, 1)]), ("optional", 0, &[("o-1", 1, 1), ("o-2", 1, 1)])];
    nested(cluster, "mixed", "cpu-400", 2, &optional).await;
    cluster.settles("mixed-", 4, 0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn minimum_of_every_subgroup_is_scheduled_first() {
    minimums(&embedded("suite-subgroups", NodeGroup::gpu_nodes(1, 8)).await).await;
}

/// subgroup-01 … 03, on one node.
pub(crate) async fn minimums<B>(cluster: &TestCluster<B>) {
    cluster.cpu_queue("six", 600).await;
    flat(cluster, "even", "six", json!({"minMember": 6}), &[("sub-1", 5, 3), ("sub-2", 5, 3)]).await;
    cluster.settles("even-sub-1-", 3, 2).await;
    cluster.settles("even-sub-2-", 3, 2).await;
    cluster.clear().await;

    let cpu = |milli: i64| json!({"spec": {"resources": {"cpu": bounds(milli, milli, 1)}}});
    cluster.patch(&QUEUE, "six", &cpu(0)).await;
    for group in ["first", "second"] {
        flat(cluster, group, "six", json!({"minMember": 2}), &[("sub-1", 3, 1), ("sub-2", 3, 1)]).await;
        cluster.settles(&format!("{group}-"), 0, 6).await;
    }
    cluster.patch(&QUEUE, "six", &cpu(600)).await;
    for group in ["first", "second"] {
        cluster.settles(&format!("{group}-"), 3, 3).await;
        for subgroup in ["sub-1", "sub-2"] {
            let (scheduled, _) = cluster.states(&format!("{group}-{subgroup}-")).await;
            assert!(scheduled >= 1, "{group}/{subgroup}");
        }
    }
    cluster.clear().await;

    let leaves = [("sub-1", 3, 2), ("sub-2", 3, 2)];
    flat(cluster, "early", "six", json!({"minMember": 4}), &leaves).await;
    cluster.scheduled("early-sub-1-0").await;
    flat(cluster, "late", "six", json!({"minMember": 4}), &leaves).await;
    cluster.settles("late-", 0, 6).await;
    cluster.settles("early-", 6, 0).await;
}
