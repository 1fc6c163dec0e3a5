//! A condition that is written late does not overwrite a newer state. `real_control_plane/late_conditions.rs` runs the same
//! functions on a real control plane.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::label::NODE_POOL;
use kai_components::{ComponentOptions, name};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::kind::{Key, POD};
use kai_scheduler::resources::POD_GROUP;
use kai_sim::{FaultRates, NodeGroup};
use serde_json::{Value, json};
use std::time::Duration;

/// Every request takes up to this long.
const SLOW: Duration = Duration::from_secs(20);

fn slow() -> FaultRates {
    FaultRates { slow: 1_000_000, delay_max: SLOW, ..FaultRates::default() }
}

fn conditions(object: &Value, list: &str) -> Vec<Value> {
    object["status"][list].as_array().cloned().unwrap_or_default()
}

/// The report that the pod is pending is on its way while the pod is bound.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn late_report_does_not_mark_a_bound_pod_as_unscheduled() {
    for seed in 0..12 {
        let cluster =
            TestCluster::with_options(seed, [NodeGroup::gpu_nodes(1, 8)], &ComponentOptions::simulated())
                .await;
        cluster.create_queue("a", 8).await;
        cluster.create_pod(PodBuilder::new("first", "a", 8)).await;
        cluster.wait_for_running("first", 1).await;
        cluster.create_pod(PodBuilder::new("second", "a", 8)).await;
        cluster.sleep(Duration::from_secs(1)).await;
        cluster.backend.faults().set_client_rates(name::SCHEDULER, slow());
        // The scheduler reports 1.5 s after the pod was created.
        cluster.sleep(Duration::from_millis(1_500)).await;
        cluster.delete_pod("first").await;
        cluster.wait_for_running("second", 1).await;
        cluster.sleep(SLOW * 3).await;
        let pod = cluster.get(&POD, "second").await.unwrap();
        let all = conditions(&pod, "conditions");
        let scheduled = all.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
        assert_eq!(scheduled["status"], "True", "seed {seed}: {scheduled}");
    }
}

fn shard(pool: &str) -> kai_scheduler::Options {
    let mut options = kai_scheduler::Options::default();
    pool.clone_into(&mut options.settings.node_pool_value);
    pool.clone_into(&mut options.params.node_pool);
    options
}

/// The report that a pod is pending is on its way while another client binds the pod. `slow_down` makes the requests of the
/// scheduler take up to `delay`.
pub(crate) async fn bound_by_another_client<B>(
    cluster: &TestCluster<B>,
    delay: Duration,
    slow_down: impl AsyncFn(),
) {
    let nothing = json!({"quota": 0, "limit": 0, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "blocked", &nothing, json!({})).await;
    slow_down().await;
    cluster.create_pod(PodBuilder::new("late", "blocked", 1)).await;
    // The scheduler reports after two seconds.
    cluster.sleep(Duration::from_secs(3)).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": cluster.node_name(1)},
    });
    let path = POD.path_of(&Key::new(cluster.namespace(), "late")) + "/binding";
    cluster.api().send("POST", &path, Some(("application/json", &binding))).await.unwrap();
    cluster.wait_for_running("late", 1).await;
    cluster.sleep(delay * 3).await;
    let pod = cluster.get(&POD, "late").await.unwrap();
    let all = conditions(&pod, "conditions");
    let scheduled = all.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
    assert_eq!(scheduled["status"], "True", "{scheduled}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn late_report_does_not_mark_a_pod_as_unscheduled_that_another_client_bound() {
    for seed in 0..6 {
        let nodes = [NodeGroup::gpu_nodes(1, 8)];
        let cluster = TestCluster::with_options(seed, nodes, &ComponentOptions::simulated()).await;
        let slow_down = async || cluster.backend.faults().set_client_rates(name::SCHEDULER, slow());
        bound_by_another_client(&cluster, SLOW, slow_down).await;
    }
}

/// A group moves to another node pool while the scheduler of the first one writes its condition. `slow_down` makes the
/// requests of the first scheduler take up to `delay`.
pub(crate) async fn moved_to_another_shard<B>(
    cluster: &TestCluster<B>,
    [from, to]: [&str; 2],
    delay: Duration,
    slow_down: impl AsyncFn(),
) {
    cluster.create_queue("a", 8).await;
    slow_down().await;
    let group = json!({
        "metadata": {"name": "huge", "labels": {NODE_POOL: from}}, "spec": {"minMember": 1, "queue": "a"},
    });
    cluster.create(&POD_GROUP, group).await;
    cluster.create_pod(PodBuilder::new("huge", "a", 9).pod_group("huge")).await;
    // The scheduler reports after two seconds.
    cluster.sleep(Duration::from_secs(3)).await;
    cluster.patch(&POD_GROUP, "huge", &json!({"metadata": {"labels": {NODE_POOL: to}}})).await;
    let pools = async || -> Vec<String> {
        let group = cluster.get(&POD_GROUP, "huge").await.unwrap();
        let all = conditions(&group, "schedulingConditions");
        all.iter().filter_map(|condition| condition["nodePool"].as_str()).map(str::to_owned).collect()
    };
    cluster.wait_until("the second pool reports", async || pools().await.contains(&to.to_owned())).await;
    cluster.sleep(delay * 3).await;
    let pools = pools().await;
    assert_eq!(pools.last().map(String::as_str), Some(to), "{pools:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn late_report_of_one_shard_keeps_the_condition_of_another() {
    for seed in 0..12 {
        let options = ComponentOptions { scheduler: shard("red"), ..ComponentOptions::simulated() };
        let mut cluster = TestCluster::with_options(seed, [NodeGroup::gpu_nodes(1, 8)], &options).await;
        let clock = cluster.backend.clock();
        cluster.backend.run("blue-scheduler", move |client| {
            let process = Process::start(Api::new(client, "blue-scheduler"), clock, "kai-scheduler");
            let (_, queries) = kai_scheduler::serve::queries();
            kai_scheduler::run(process, shard("blue"), PluginSet::builtin(), queries)
        });
        let slow_down = async || cluster.backend.faults().set_client_rates(name::SCHEDULER, slow());
        moved_to_another_shard(&cluster, ["red", "blue"], SLOW, slow_down).await;
    }
}
