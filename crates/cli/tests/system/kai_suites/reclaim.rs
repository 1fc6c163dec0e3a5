//! Reclaim between queues.

use super::embedded;
use super::steps::bounds;
use super::steps::{cpu_pod, job};
use super::subgroups;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_object as object;
use kai_runtime::kind::{JOB, POD};
use kai_sim::NodeGroup;
use serde_json::{Value, json};

/// Creates a parent with this GPU quota and limit, and two leaves with these quotas.
async fn queues<B>(cluster: &TestCluster<B>, name: &str, [parent, a, b]: [i64; 3], more: [Value; 2]) {
    let root = format!("{name}-root");
    cluster.create_queue_under(None, &root, &bounds(parent, parent, 2), json!({})).await;
    for (leaf, quota, more) in [("a", a, &more[0]), ("b", b, &more[1])] {
        let mut gpu = bounds(quota, -1, 2);
        let mut more = more.clone();
        if let Some(weight) = more.as_object_mut().and_then(|more| more.remove("weight")) {
            gpu["overQuotaWeight"] = weight;
        }
        cluster.create_queue_under(Some(&root), &format!("{name}-{leaf}"), &gpu, more).await;
    }
}

/// A pod with so many GPUs, or a fraction of one.
fn pod(name: &str, queue: &str, gpus: &str) -> PodBuilder {
    match gpus.parse::<u32>() {
        Ok(count) => PodBuilder::new(name, queue, count),
        Err(_) => PodBuilder::unprepared_fraction(name, queue, gpus),
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn single_pods_reclaim_what_their_queue_deserves() {
    single_pods(&embedded("suite-reclaim", NodeGroup::gpu_nodes(1, 8)).await).await;
}

type Case<'a> = (&'a str, [i64; 3], &'a Value, &'a [&'a str], &'a [&'a str], &'a str, bool);

/// reclaim-01 … 06, on one node with eight GPUs; the parents' limits are what is short.
pub(crate) async fn single_pods<B>(cluster: &TestCluster<B>) {
    let none = json!({});
    let important = json!({"priority": 101});
    let cases: [Case<'_>; 5] = [
        ("one", [4, 1, 1], &none, &["2", "2"], &[], "2", true),
        ("two", [4, 2, 2], &none, &["1", "2"], &["1"], "0.5", true),
        ("three", [4, 1, 1], &none, &["2", "1", "0.5"], &["0.5"], "2", false),
        ("four", [4, 2, 2], &none, &["2", "0.9", "0.3", "0.3"], &[], "1", true),
        ("five", [4, 1, 0], &important, &["1", "3"], &[], "1", true),
    ];
    for (name, quotas, of_b, in_a, in_b, pending, reclaims) in cases {
        queues(cluster, name, quotas, [none.clone(), of_b.clone()]).await;
        for (leaf, gpus) in in_a.iter().map(|gpus| ("a", gpus)).chain(in_b.iter().map(|gpus| ("b", gpus))) {
            let number = cluster.list(&POD).await.len();
            cluster.runs(pod(&format!("{leaf}-{number}"), &format!("{name}-{leaf}"), gpus)).await;
        }
        let pending = pod("pending", &format!("{name}-b"), pending);
        if reclaims {
            cluster.runs(pending).await;
            cluster.settles("b-", in_b.len(), 0).await;
        } else {
            cluster.waits(pending).await;
            cluster.settles("a-", in_a.len(), 0).await;
        }
        cluster.clear().await;
    }
    three_queues(cluster).await;
}

/// reclaim-06: two queues with weights share eight GPUs, and one with a higher priority takes three of them.
async fn three_queues<B>(cluster: &TestCluster<B>) {
    queues(cluster, "six", [8, 1, 1], [json!({"weight": 1}), json!({"weight": 2})]).await;
    cluster.create_queue_under(Some("six-root"), "six-c", &bounds(0, -1, 1), json!({"priority": 101})).await;
    for number in 0..10 {
        for leaf in ["a", "b"] {
            let name = format!("{leaf}-{number}");
            cluster.create(&JOB, job(&name, PodBuilder::new(&name, &format!("six-{leaf}"), 1))).await;
        }
    }
    cluster.settles("a-", 3, 7).await;
    cluster.settles("b-", 5, 5).await;
    cluster.runs(PodBuilder::new("c", "six-c", 3)).await;
    cluster.settles("a-", 2, 8).await;
    cluster.settles("b-", 3, 7).await;
    cluster.clear().await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn groups_are_reclaimed_down_to_their_minimum_or_entirely() {
    groups(&embedded("suite-reclaim-groups", nodes()).await).await;
}

/// Two nodes with four GPUs.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup::gpu_nodes(2, 4)
}

fn members(group: &str, queue: &str, count: usize, gpus: u32) -> Vec<PodBuilder> {
    (0..count).map(|number| PodBuilder::new(&format!("{group}-{number}"), queue, gpus)).collect()
}

/// reclaim-07 … 11, on [`nodes`].
pub(crate) async fn groups<B>(cluster: &TestCluster<B>) {
    let elastic = json!({"minMember": 1, "priorityClassName": "train"});
    queues(cluster, "seven", [4, 2, 2], [json!({}), json!({})]).await;
    for group in ["left", "right"] {
        cluster.own_group(group, "seven-a", elastic.clone(), members(group, "seven-a", 2, 1)).await;
        cluster.settles(&format!("{group}-"), 2, 0).await;
    }
    cluster.runs(PodBuilder::new("two", "seven-b", 2)).await;
    for group in ["left", "right"] {
        cluster.settles(&format!("{group}-"), 1, 0).await;
    }
    cluster.clear().await;

    queues(cluster, "eight", [2, 0, 2], [json!({"weight": 0}), json!({})]).await;
    let gang = json!({"minMember": 2, "priorityClassName": "train"});
    cluster.own_group("whole", "eight-a", elastic.clone(), members("whole", "eight-a", 2, 1)).await;
    cluster.settles("whole-", 2, 0).await;
    cluster.own_group("gang", "eight-b", gang.clone(), members("gang", "eight-b", 2, 1)).await;
    cluster.settles("gang-", 2, 0).await;
    cluster.settles("whole-", 0, 0).await;
    cluster.clear().await;

    minimum_runtime(cluster, &gang, elastic).await;

    queues(cluster, "ten", [100, 0, 8], [json!({"weight": 0}), json!({})]).await;
    cluster.fill("filler", 8, |name| PodBuilder::new(name, "ten-a", 1)).await;
    cluster.own_group("gang", "ten-b", gang, members("gang", "ten-b", 2, 4)).await;
    cluster.settles("gang-", 2, 0).await;
    cluster.clear().await;

    // The parent is short of CPU: its limit is 400.
    cluster.cpu_queue_under("teams", "eleven", 400, 400).await;
    for leaf in ["eleven-a", "eleven-b"] {
        cluster.cpu_queue_under("eleven", leaf, 200, 600).await;
    }
    let leaves = [("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("d", 1, 1)];
    let spec = json!({"minSubGroup": 2, "priorityClassName": "train"});
    subgroups::flat(cluster, "tree", "eleven-a", spec, &leaves).await;
    cluster.settles("tree-", 4, 0).await;
    cluster.runs(cpu_pod("winner", "eleven-b", "200m")).await;
    cluster.settles("tree-", 2, 0).await;
    cluster.clear().await;
}

/// reclaim-09: what exceeds the minimum is reclaimed at once, the rest after the minimum runtime.
async fn minimum_runtime<B>(cluster: &TestCluster<B>, gang: &Value, elastic: Value) {
    queues(cluster, "nine", [3, 0, 3], [json!({"weight": 0, "reclaimMinRuntime": "45s"}), json!({})]).await;
    cluster.own_group("protected", "nine-a", elastic, members("protected", "nine-a", 3, 1)).await;
    cluster.settles("protected-", 3, 0).await;
    cluster.own_group("gang", "nine-b", gang.clone(), members("gang", "nine-b", 2, 1)).await;
    cluster.settles("gang-", 2, 0).await;
    cluster.settles("protected-", 1, 0).await;
    cluster.waits(PodBuilder::new("third", "nine-b", 1)).await;
    cluster.scheduled("third").await;
    cluster.settles("protected-", 0, 0).await;
    cluster.clear().await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn hierarchy_keeps_a_branch_without_quota_from_reclaiming() {
    hierarchy(&embedded("suite-reclaim-hierarchy", NodeGroup::gpu_nodes(1, 2)).await, true).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn leaf_queues_reclaim_where_the_hierarchy_does_not_count() {
    hierarchy(&embedded("suite-reclaim-flat", NodeGroup::gpu_nodes(1, 2)).await, false).await;
}

/// reclaim-13, on one node with two GPUs: with and without the shard's `full-hierarchy-fairness`.
pub(crate) async fn hierarchy<B>(cluster: &TestCluster<B>, counts: bool) {
    for (parent, leaf, gpu) in [("open", "a", bounds(-1, -1, 1)), ("closed", "b", bounds(0, 0, 1))] {
        cluster.create_queue_under(None, parent, &gpu, json!({})).await;
        cluster.create_queue_under(Some(parent), leaf, &bounds(0, -1, 1), json!({})).await;
    }
    cluster.fill("filler", 2, |name| PodBuilder::new(name, "a", 1)).await;
    let pod = PodBuilder::new("other", "b", 1);
    if counts {
        cluster.waits(pod).await;
        assert_eq!(cluster.states("filler-").await.0, 2);
    } else {
        cluster.runs(pod).await;
        let evicted = cluster.event_messages("Evict", "").await;
        assert_eq!(evicted.len(), 1, "{evicted:?}");
        assert!(!object::name(&cluster.get(&POD, "other").await.unwrap()).is_empty());
    }
}
