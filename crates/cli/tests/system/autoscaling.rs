//! The node scale adjuster with an autoscaler: hidden requests cause nodes, and nothing causes a node in vain.

pub(crate) mod autoscaler;

use crate::fault_injection::in_virtual_time;
use crate::test_cluster::{PodBuilder, TestCluster};
use crate::{kai_roles, resource_claims};
use autoscaler::ScaleDown;
use kai_api::well_known::name::{RESOURCE_RESERVATION, SCALE_ADJUST as SCALING};
use kai_cli::embedded::{self, admission};
use kai_clock::Clock;
use kai_components::{Component, ComponentOptions, name, rbac};
use kai_controllers::node_scale;
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_runtime::kind::{Key, NODE, POD, SERVICE_ACCOUNT};
use kai_sim::{FaultRates, NodeGroup, Rights};
use serde_json::{Value, json};
use std::time::Duration;

/// One node with two GPUs, and an adjuster with these rights.
async fn cluster(seed: u64, nodes: NodeGroup, rights: Rights) -> TestCluster {
    let options = ComponentOptions {
        node_scale_adjuster: Some(node_scale::Options::default()),
        ..ComponentOptions::simulated()
    };
    TestCluster::with_components(seed, [nodes], |cluster| {
        cluster.faults().set_rights(name::NODE_SCALE_ADJUSTER, Some(rights));
        embedded::join(cluster, &options, &PluginSet::builtin())
    })
    .await
}

fn rights() -> Rights {
    Rights::of_roles(&rbac::objects(Component::NodeScaleAdjuster.spec()))
}

async fn standard(seed: u64) -> TestCluster {
    cluster(seed, NodeGroup::gpu_nodes(1, 2), rights()).await
}

/// New nodes have two GPUs.
fn template() -> NodeGroup {
    NodeGroup { name: "scaled".to_owned(), ..NodeGroup::gpu_nodes(1, 2) }
}

fn autoscale(cluster: &TestCluster, scale_down: ScaleDown) -> tokio::task::JoinSet<()> {
    autoscaler::start(cluster.api(), cluster.backend.clock(), template(), scale_down)
}

async fn scaling_pods(cluster: &TestCluster) -> Vec<Value> {
    cluster.api().list_dynamic(&POD, SCALING).await.unwrap().items
}

async fn nodes(cluster: &TestCluster) -> usize {
    cluster.list(&NODE).await.len()
}

async fn wait_for_scaling_pods(cluster: &TestCluster, count: usize) {
    let what = format!("there are {count} scaling pods");
    cluster.wait_until(&what, async || scaling_pods(cluster).await.len() == count).await;
}

/// Occupies both GPUs of the first node.
async fn fill(cluster: &TestCluster) {
    cluster.create_queue("a", 100).await;
    cluster.create_pod(PodBuilder::new("filler", "a", 2).on_node("node-1")).await;
    cluster.wait_for_running("filler", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fractions_and_gangs_that_are_pending_together_get_nodes() {
    let cluster = standard(1).await;
    admission::install(&cluster.backend, admission::pod_options()).await.unwrap();
    hidden_requests_get_nodes(&cluster, cluster.backend.clock(), template()).await;
}

/// On one node with two GPUs. The webhooks prepare the pods.
pub(crate) async fn hidden_requests_get_nodes<B>(
    cluster: &TestCluster<B>,
    clock: Clock,
    template: NodeGroup,
) {
    cluster.create_queue("a", 100).await;
    cluster.create_pod(PodBuilder::new("filler", "a", 2)).await;
    cluster.wait_for_running("filler", 1).await;
    let _autoscaler = autoscaler::start(cluster.api(), clock, template, ScaleDown::Disabled);
    // One GPU for both halves; no two pods of the gang share one.
    let pod = |name: &str, fraction: &str| PodBuilder::unprepared_fraction(name, "a", fraction);
    cluster.create_pod(pod("half-0", "0.5")).await;
    cluster.create_pod(pod("half-1", "0.5")).await;
    cluster.create_group("gang", "a", 3, json!({}), |name| pod(name, "0.6")).await;
    cluster.wait_for_running("half-", 2).await;
    cluster.wait_for_running("gang-", 3).await;
    cluster
        .wait_until("no scaling pod is left", async || {
            cluster.api().list_dynamic(&POD, SCALING).await.unwrap().items.is_empty()
        })
        .await;
    assert_eq!(cluster.list(&NODE).await.len(), 3, "two nodes for four GPUs");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pending_fractions_and_gangs_cause_exactly_the_nodes_that_they_need() {
    let cluster = standard(1).await;
    fill(&cluster).await;
    let _autoscaler = autoscale(&cluster, ScaleDown::Disabled);
    for name in ["half-0", "half-1"] {
        cluster.create_pod(PodBuilder::fraction(name, "a", "0.5")).await;
    }
    wait_for_scaling_pods(&cluster, 1).await;
    let made = scaling_pods(&cluster).await.remove(0);
    assert_eq!(object::name(&made), "default-half-0");
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2", "for both pods: {made}");
    cluster.wait_for_running("half-", 2).await;
    wait_for_scaling_pods(&cluster, 0).await;
    assert_eq!(nodes(&cluster).await, 2);
    assert_eq!(cluster.event_messages("NodeRequested", "half-0").await.len(), 1);

    // One GPU is free, and no two of the gang share one: two of three are missing, on one node.
    cluster.create_group("gang", "a", 3, json!({}), |pod| PodBuilder::fraction(pod, "a", "0.6")).await;
    cluster.wait_for_running("gang-", 3).await;
    wait_for_scaling_pods(&cluster, 0).await;
    assert_eq!(nodes(&cluster).await, 3);

    cluster.sleep(Duration::from_mins(30)).await;
    assert_eq!((nodes(&cluster).await, scaling_pods(&cluster).await.len()), (3, 0), "nothing follows");
    assert_eq!(cluster.backend.faults().denied(name::NODE_SCALE_ADJUSTER), std::collections::BTreeSet::new());
}

/// While pods are bound, their reservation pods and scaling pods request the same GPUs. An autoscaler that looks at the
/// cluster after any single change, instead of every few seconds, adds no node for both.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gpus_are_not_counted_twice_at_any_moment_while_pods_are_bound() {
    for seed in 0..8 {
        let cluster = standard(seed).await;
        admission::install(&cluster.backend, admission::pod_options()).await.unwrap();
        let recording = autoscaler::record(cluster.api());
        hidden_requests_get_nodes(&cluster, cluster.backend.clock(), template()).await;
        // Free GPUs are taken without a node.
        cluster.delete_pod("filler").await;
        let pod = |name: &str| PodBuilder::unprepared_fraction(name, "a", "0.6");
        cluster.create_group("late", "a", 2, json!({}), pod).await;
        cluster.wait_for_running("late-", 2).await;
        cluster.sleep(Duration::from_mins(5)).await;
        let (most, state) = recording.most_nodes(&template());
        assert_eq!(most, 3, "seed {seed}: {state}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nothing_causes_a_node_in_vain() {
    let cluster = standard(1).await;
    fill(&cluster).await;
    let _autoscaler = autoscale(&cluster, ScaleDown::Disabled);
    // The queue may have no GPU.
    let limited = json!({"quota": 0, "limit": 0, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "limited", &limited, json!({})).await;
    cluster.create_pod(PodBuilder::fraction("over-limit", "limited", "0.5")).await;
    cluster.create_pod(PodBuilder::fraction("no-queue", "missing", "0.5")).await;
    // A gang of which one pod does not exist.
    cluster
        .create_group("gang", "a", 1, json!({"minMember": 2}), |pod| PodBuilder::fraction(pod, "a", "0.5"))
        .await;
    cluster.create_pod(PodBuilder::fraction("invalid", "a", "half")).await;
    let gated = PodBuilder::fraction("gated", "a", "0.5");
    cluster.create_pod(gated.spec_field("schedulingGates", json!([{"name": "example.com/g"}]))).await;
    cluster.sleep(Duration::from_mins(30)).await;
    assert_eq!(
        (nodes(&cluster).await, scaling_pods(&cluster).await.len()),
        (1, 0),
        "{}",
        cluster.dump().await
    );
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn device_claims_cause_a_node() {
    let nodes = NodeGroup { gpus: 1, ..resource_claims::nodes() };
    let cluster = cluster(1, nodes, rights()).await;
    cluster.create_queue("a", 100).await;
    resource_claims::create_template(&cluster).await;
    for name in ["user-0", "user-1"] {
        cluster.create_pod(resource_claims::templated_user(name)).await;
    }
    cluster.wait_for_running("user-0", 1).await;
    wait_for_scaling_pods(&cluster, 1).await;
    let made = scaling_pods(&cluster).await.remove(0);
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"], "1", "{made}");
    cluster.delete_pod("user-0").await;
    cluster.wait_for_running("user-1", 1).await;
    wait_for_scaling_pods(&cluster, 0).await;
}

/// The new nodes publish their devices in slices, and no extended resource.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn each_claim_that_no_device_satisfies_gets_one_node() {
    let nodes = NodeGroup { gpus: 1, ..resource_claims::nodes() };
    let new = NodeGroup { name: "scaled".to_owned(), ..nodes.clone() };
    let cluster = cluster(1, nodes, rights()).await;
    let recording = autoscaler::record(cluster.api());
    let _autoscaler =
        autoscaler::start(cluster.api(), cluster.backend.clock(), new.clone(), ScaleDown::Disabled);
    cluster.create_queue("a", 100).await;
    resource_claims::create_template(&cluster).await;
    for count in 1..=3 {
        let name = format!("user-{count}");
        cluster.create_pod(resource_claims::templated_user(&name)).await;
        cluster.wait_for_running(&name, 1).await;
        wait_for_scaling_pods(&cluster, 0).await;
        cluster.sleep(Duration::from_mins(3)).await;
        assert_eq!(self::nodes(&cluster).await, count, "one device on each");
    }
    let (most, state) = recording.most_nodes(&new);
    assert_eq!(most, 3, "{state}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scaling_pods_go_with_their_pods_and_with_the_installation() {
    let cluster = standard(1).await;
    fill(&cluster).await;
    let long = "x".repeat(100);
    for name in ["half", long.as_str()] {
        cluster.create_pod(PodBuilder::fraction(name, "a", "0.9")).await;
    }
    wait_for_scaling_pods(&cluster, 2).await;
    cluster.delete_pod(&long).await;
    wait_for_scaling_pods(&cluster, 1).await;
    // The adjuster is gone; the operator deletes the service account.
    cluster.backend.faults().partition(name::NODE_SCALE_ADJUSTER);
    let account = Key::new(SCALING, SCALING);
    cluster.api().delete_dynamic(&SERVICE_ACCOUNT, &account, &DeleteOptions::default()).await.unwrap();
    wait_for_scaling_pods(&cluster, 0).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn no_scaling_pod_is_created_in_the_cool_down_after_a_deletion() {
    let cluster = standard(1).await;
    fill(&cluster).await;
    cluster.create_pod(PodBuilder::fraction("first", "a", "0.9")).await;
    wait_for_scaling_pods(&cluster, 1).await;
    cluster.create_pod(PodBuilder::fraction("second", "a", "0.9")).await;
    wait_for_scaling_pods(&cluster, 2).await;
    cluster.delete_pod("first").await;
    wait_for_scaling_pods(&cluster, 1).await;
    cluster.create_pod(PodBuilder::fraction("third", "a", "0.9")).await;
    cluster.sleep(Duration::from_secs(50)).await;
    assert_eq!(scaling_pods(&cluster).await.len(), 1);
    wait_for_scaling_pods(&cluster, 2).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scale_down_leaves_nodes_with_shared_gpus_alone() {
    let cluster = standard(1).await;
    fill(&cluster).await;
    let _autoscaler = autoscale(&cluster, ScaleDown::Enabled);
    // A node with a reservation pod, of which Karpenter reads the annotation.
    cluster.create_pod(PodBuilder::fraction("half", "a", "0.5")).await;
    cluster.wait_for_running("half", 1).await;
    let reservations = cluster.api().list_dynamic(&POD, RESOURCE_RESERVATION).await.unwrap().items;
    assert_eq!(reservations.len(), 1);
    assert!(reservations.iter().all(autoscaler::must_not_be_disrupted), "{reservations:?}");
    cluster.sleep(Duration::from_mins(30)).await;
    assert_eq!((cluster.running("half").await, nodes(&cluster).await), (1, 2));
    cluster.delete_pod("half").await;
    cluster.wait_until("the node is removed", async || nodes(&cluster).await == 1).await;
}

/// A gang of whole GPUs on nodes of which less than half is in use: the annotation of the page keeps the nodes.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scale_down_leaves_marked_gangs_alone_and_disrupts_unmarked_ones() {
    for is_marked in [true, false] {
        let cluster = standard(1).await;
        fill(&cluster).await;
        let large = NodeGroup { name: "scaled".to_owned(), ..NodeGroup::gpu_nodes(1, 8) };
        let _autoscaler =
            autoscaler::start(cluster.api(), cluster.backend.clock(), large, ScaleDown::Enabled);
        let pod = |name: &str| {
            let pod = PodBuilder::new(name, "a", 1);
            if is_marked { pod.annotation("karpenter.sh/do-not-disrupt", "true") } else { pod }
        };
        cluster.create_group("gang", "a", 2, json!({}), pod).await;
        cluster.wait_for_running("gang-", 2).await;
        cluster.sleep(Duration::from_mins(30)).await;
        let left = if is_marked { 2 } else { 0 };
        assert_eq!(cluster.running("gang-").await, left, "marked: {is_marked}\n{}", cluster.dump().await);
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn adjuster_works_with_the_rights_of_kais_role() {
    let rights = kai_roles::rights(Component::NodeScaleAdjuster.spec());
    let cluster = cluster(1, NodeGroup::gpu_nodes(1, 2), rights).await;
    fill(&cluster).await;
    let _autoscaler = autoscale(&cluster, ScaleDown::Disabled);
    cluster.create_pod(PodBuilder::fraction("half", "a", "0.5")).await;
    cluster.wait_for_running("half", 1).await;
    wait_for_scaling_pods(&cluster, 0).await;
}

/// Crashes, lost requests and partitions of the adjuster; afterwards every pod runs, and no scaling pod is left.
async fn run_seed(seed: u64) {
    let cluster = standard(seed).await;
    fill(&cluster).await;
    let _autoscaler = autoscale(&cluster, ScaleDown::Disabled);
    let faults = cluster.backend.faults();
    faults.set_client_rates(name::NODE_SCALE_ADJUSTER, FaultRates { crash: 10_000, ..FaultRates::mixed() });
    for round in 0..4_u64 {
        let pod =
            |name: &str| PodBuilder::fraction(name, "a", if seed.is_multiple_of(2) { "0.5" } else { "0.7" });
        cluster.create_pod(pod(&format!("one-{round}"))).await;
        cluster.create_group(&format!("gang-{round}"), "a", 2, json!({}), pod).await;
        cluster.sleep(Duration::from_secs(20 + seed % 60)).await;
        if (seed + round).is_multiple_of(2) {
            cluster.delete_pod(&format!("one-{round}")).await;
        }
    }
    faults.set_client_rates(name::NODE_SCALE_ADJUSTER, FaultRates::default());
    cluster.wait_for_running("gang-", 8).await;
    cluster.wait_for_running("one-", 2).await;
    wait_for_scaling_pods(&cluster, 0).await;
}

#[test]
fn seeds_of_faults_leave_no_scaling_pod_behind() {
    for seed in 0..12 {
        let result = std::panic::catch_unwind(|| in_virtual_time(run_seed(seed)));
        if let Err(panic) = result {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
}
