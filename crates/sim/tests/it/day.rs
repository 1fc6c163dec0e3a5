//! A day of cluster life, twice: the same seed gives the same history, hash for hash.

use crate::k;
use crate::{World, builder, holds, job};
use kai_sim::journal::Digest;
use kai_sim::{NodeGroup, Rates, kubelet};
use serde_json::{Value, json};
use std::time::Duration;

/// Jobs that come every few minutes and go after a while, a cron job, and a node that fails at noon.
async fn day(seed: u64, hours: u64, rates: Option<Rates>) -> (Digest, usize) {
    let options = kubelet::Options { heartbeat: Duration::from_mins(15), ..kubelet::Options::default() };
    let world = World::of(builder().seed(seed).nodes([NodeGroup::gpu_nodes(6, 8)]).kubelet(options)).await;
    if let Some(rates) = rates {
        world.cluster.faults().set_rates_of(kai_sim::controllers::CLIENT, rates);
        world.cluster.faults().set_rates_of(kubelet::CLIENT, rates);
        world.cluster.faults().set_rates_of("binder", rates);
    }
    let cron = json!({"metadata": {"name": "hourly"}, "spec": {
        "schedule": "0 * * * *",
        "jobTemplate": {"spec": job("", &json!({}), &json!({"sim.kai.scheduler/run-for": "10m"}))["spec"]},
    }});
    world.create(&k::CRON_JOB, cron).await;
    let mut made = 0;
    for hour in 0..hours {
        for number in 0..6_u64 {
            let minutes = 5 + (seed + hour * 7 + number * 13) % 50;
            let annotations = json!({
                "sim.kai.scheduler/run-for": format!("{minutes}m"),
                "sim.kai.scheduler/exit-code": if (hour + number) % 5 == 0 { "1" } else { "0" },
            });
            let spec = json!({"completions": 3, "parallelism": 2, "backoffLimit": 1, "ttlSecondsAfterFinished": 1_800});
            let mut object = job(&format!("job-{hour}-{number}"), &spec, &annotations);
            object["spec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}});
            world.create(&k::JOB, object).await;
            made += 1;
            world.sleep(600).await;
        }
        if hour == hours / 2 {
            world.cluster.fail_node("node-1", kai_sim::node::Failure::Unreachable).await.unwrap();
        }
        if hour == hours / 2 + 2 {
            world.cluster.restore_node("node-1").await.unwrap();
        }
    }
    world.cluster.restore_node("node-1").await.unwrap();
    world.cluster.faults().heal_all();
    world.sleep(5 * 3_600 + 1_800).await;
    let jobs = world.list(&k::JOB).await;
    let left: Vec<&Value> =
        jobs.iter().filter(|job| !holds(job, "Complete") && !holds(job, "Failed")).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert!(jobs.len() < 10, "the others have gone: {}", jobs.len());
    let digest = world.cluster.journal().digest();
    world.cluster.stop().await;
    (digest, made)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_day_happens_the_same_way_twice() {
    let (one, made) = day(3, 24, None).await;
    let (two, _) = day(3, 24, None).await;
    assert_eq!(made, 144);
    assert_eq!(one, two);
    assert!(one.entries > 5_000, "{one:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn another_seed_is_another_history() {
    assert_ne!(day(3, 1, None).await.0.hash, day(4, 1, None).await.0.hash);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_bad_half_day_happens_the_same_way_twice_and_still_ends_well() {
    let rates = Rates::bad_day();
    let (one, _) = day(5, 12, Some(rates)).await;
    let (two, _) = day(5, 12, Some(rates)).await;
    assert_eq!(one, two);
}
