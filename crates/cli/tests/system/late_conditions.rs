//! A condition that is written late does not overwrite a newer state.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::label::NODE_POOL;
use kai_components::{ComponentOptions, name};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::kind::POD;
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

/// A group moves to another node pool while the scheduler of the first one writes its condition.
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
        cluster.create_queue("a", 8).await;
        let group = json!({
            "metadata": {"name": "huge", "labels": {NODE_POOL: "red"}}, "spec": {"minMember": 1, "queue": "a"},
        });
        cluster.create(&POD_GROUP, group).await;
        cluster.create_pod(PodBuilder::new("huge", "a", 9).pod_group("huge")).await;
        cluster.sleep(Duration::from_secs(1)).await;
        cluster.backend.faults().set_client_rates(name::SCHEDULER, slow());
        cluster.sleep(Duration::from_millis(1_500)).await;
        cluster.patch(&POD_GROUP, "huge", &json!({"metadata": {"labels": {NODE_POOL: "blue"}}})).await;
        let pools = async || -> Vec<String> {
            let group = cluster.get(&POD_GROUP, "huge").await.unwrap();
            let all = conditions(&group, "schedulingConditions");
            all.iter().filter_map(|condition| condition["nodePool"].as_str()).map(str::to_owned).collect()
        };
        cluster
            .wait_until("the second pool reports", async || pools().await.contains(&"blue".to_owned()))
            .await;
        cluster.sleep(SLOW * 3).await;
        let pools = pools().await;
        assert_eq!(pools.last().map(String::as_str), Some("blue"), "seed {seed}: {pools:?}");
    }
}
