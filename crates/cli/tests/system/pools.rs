//! Node pools, each with a scheduler of its own: none meddles with what belongs to another.

use crate::world::{Pod, World};
use kai_api::well_known::label::NODE_POOL;
use kai_cli::stack;
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

/// A scheduler's settings for a pool.
fn serving(pool: &str) -> kai_scheduler::Options {
    let mut options = kai_scheduler::Options::default();
    pool.clone_into(&mut options.settings.node_pool_value);
    pool.clone_into(&mut options.params.node_pool);
    options
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_a_group_is_told_stays_until_its_own_scheduler_clears_it() {
    let groups = POOLS.map(|pool| NodeGroup {
        name: pool.to_owned(),
        labels: BTreeMap::from([(NODE_POOL.to_owned(), pool.to_owned())]),
        ..NodeGroup::gpu_nodes(1, 8)
    });
    let options = stack::Options { scheduler: serving(POOLS[0]), ..stack::Options::simulated() };
    let mut world = World::of(1, groups, &options).await;
    let clock = world.cluster.clock();
    world.cluster.run("blue-scheduler", move |client| {
        let process = Process::start(Api::new(client, "blue-scheduler"), clock, "kai-scheduler");
        kai_scheduler::run(
            process,
            serving(POOLS[1]),
            PluginSet::builtin(),
            kai_scheduler::serve::queries().1,
        )
    });
    for pool in POOLS {
        let labels = json!({NODE_POOL: pool});
        let free = json!({"quota": 8, "limit": -1, "overQuotaWeight": 1});
        let spec = json!({"resources": {"gpu": free, "cpu": free, "memory": free}});
        world.create(&QUEUE, json!({"metadata": {"name": pool, "labels": labels}, "spec": spec})).await;
        for (name, gpus) in [("fits", 2), ("huge", 9)] {
            let name = format!("{pool}-{name}");
            let group = json!({
                "metadata": {"name": name, "labels": labels}, "spec": {"minMember": 1, "queue": pool},
            });
            world.create(&POD_GROUP, group).await;
            world.pod(Pod::new(&name, pool, gpus).in_group(&name)).await;
        }
    }
    for pool in POOLS {
        world.runs(&format!("{pool}-fits"), 1).await;
        assert_eq!(world.placed(&format!("{pool}-fits")).await[0].1, format!("{pool}-1"));
        let pod = world.get(&POD, &format!("{pool}-fits")).await.unwrap();
        assert_eq!(pod["metadata"]["labels"][NODE_POOL], pool, "it has learned where it belongs");
        world.says(&format!("{pool}-huge"), "topped at 8").await;
    }
    world.pass(Duration::from_mins(1)).await;
    for pool in POOLS {
        let said = world.condition(&format!("{pool}-huge")).await;
        assert!(said.contains("topped at 8"), "nobody else takes it back: {said}");
    }
}
