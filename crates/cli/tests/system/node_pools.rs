//! Node pools with one scheduler shard each: a shard does not change objects of another.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::label::NODE_POOL;
use kai_components::ComponentOptions;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::kind::POD;
use kai_scheduler::resources::{POD_GROUP, QUEUE};
use kai_sim::NodeGroup;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const POOLS: [&str; 2] = ["red", "blue"];

fn shard_options(pool: &str) -> kai_scheduler::Options {
    let mut options = kai_scheduler::Options::default();
    pool.clone_into(&mut options.settings.node_pool_value);
    pool.clone_into(&mut options.params.node_pool);
    options
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scheduling_conditions_are_not_cleared_by_another_shard() {
    let groups = POOLS.map(|pool| NodeGroup {
        name: pool.to_owned(),
        labels: BTreeMap::from([(NODE_POOL.to_owned(), pool.to_owned())]),
        ..NodeGroup::gpu_nodes(1, 8)
    });
    let options = ComponentOptions { scheduler: shard_options(POOLS[0]), ..ComponentOptions::simulated() };
    let mut cluster = TestCluster::with_options(1, groups, &options).await;
    let clock = cluster.backend.clock();
    cluster.backend.run("blue-scheduler", move |client| {
        let process = Process::start(Api::new(client, "blue-scheduler"), clock, "kai-scheduler");
        kai_scheduler::run(
            process,
            shard_options(POOLS[1]),
            PluginSet::builtin(),
            kai_scheduler::serve::queries().1,
        )
    });
    for pool in POOLS {
        let labels = json!({NODE_POOL: pool});
        let free = json!({"quota": 8, "limit": -1, "overQuotaWeight": 1});
        let spec = json!({"resources": {"gpu": free, "cpu": free, "memory": free}});
        cluster.create(&QUEUE, json!({"metadata": {"name": pool, "labels": labels}, "spec": spec})).await;
        for (name, gpus) in [("fits", 2), ("huge", 9)] {
            let name = format!("{pool}-{name}");
            let group = json!({
                "metadata": {"name": name, "labels": labels}, "spec": {"minMember": 1, "queue": pool},
            });
            cluster.create(&POD_GROUP, group).await;
            cluster.create_pod(PodBuilder::new(&name, pool, gpus).pod_group(&name)).await;
        }
    }
    for pool in POOLS {
        cluster.wait_for_running(&format!("{pool}-fits"), 1).await;
        assert_eq!(cluster.bound_pods(&format!("{pool}-fits")).await[0].1, format!("{pool}-1"));
        let pod = cluster.get(&POD, &format!("{pool}-fits")).await.unwrap();
        assert_eq!(pod["metadata"]["labels"][NODE_POOL], pool, "the pod gets the label of its pool");
        cluster.wait_for_condition(&format!("{pool}-huge"), "topped at 8").await;
    }
    cluster.sleep(Duration::from_mins(1)).await;
    for pool in POOLS {
        let condition = cluster.condition(&format!("{pool}-huge")).await;
        assert!(condition.contains("topped at 8"), "no other shard clears it: {condition}");
    }
}
