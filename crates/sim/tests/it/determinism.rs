//! Determinism: two runs of a simulated day with the same seed have the same journal digest.

use crate::k;
use crate::{TestCluster, builder, has_condition, job};
use kai_sim::journal::Digest;
use kai_sim::{FaultRates, NodeGroup, kubelet};
use serde_json::{Value, json};
use std::time::Duration;

/// Runs short jobs, a cron job, and a node failure at half time; returns the digest and the number of jobs.
async fn simulate(seed: u64, hours: u64, rates: Option<FaultRates>) -> (Digest, usize) {
    let options = kubelet::Options { heartbeat: Duration::from_mins(15), ..kubelet::Options::default() };
    let cluster =
        TestCluster::from_builder(builder().seed(seed).nodes([NodeGroup::gpu_nodes(6, 8)]).kubelet(options))
            .await;
    if let Some(rates) = rates {
        cluster.inner.faults().set_client_rates(kai_sim::controllers::CLIENT, rates);
        cluster.inner.faults().set_client_rates(kubelet::CLIENT, rates);
        cluster.inner.faults().set_client_rates("binder", rates);
    }
    let cron = json!({"metadata": {"name": "hourly"}, "spec": {
        "schedule": "0 * * * *",
        "jobTemplate": {"spec": job("", &json!({}), &json!({"sim.kai.scheduler/run-for": "10m"}))["spec"]},
    }});
    cluster.create(&k::CRON_JOB, cron).await;
    let mut created = 0;
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
            cluster.create(&k::JOB, object).await;
            created += 1;
            cluster.sleep(600).await;
        }
        if hour == hours / 2 {
            cluster.inner.fail_node("node-1", kai_sim::node::Failure::Unreachable).await.unwrap();
        }
        if hour == hours / 2 + 2 {
            cluster.inner.restore_node("node-1").await.unwrap();
        }
    }
    cluster.inner.restore_node("node-1").await.unwrap();
    cluster.inner.faults().heal_all();
    cluster.sleep(5 * 3_600 + 1_800).await;
    let jobs = cluster.list(&k::JOB).await;
    let unfinished: Vec<&Value> =
        jobs.iter().filter(|job| !has_condition(job, "Complete") && !has_condition(job, "Failed")).collect();
    assert!(unfinished.is_empty(), "{unfinished:#?}");
    assert!(jobs.len() < 10, "finished jobs are deleted after their TTL: {}", jobs.len());
    let digest = cluster.inner.journal().digest();
    cluster.inner.stop().await;
    (digest, created)
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn same_seed_gives_the_same_digest() {
    let (one, created) = simulate(3, 24, None).await;
    let (two, _) = simulate(3, 24, None).await;
    assert_eq!(created, 144);
    assert_eq!(one, two);
    assert!(one.entries > 5_000, "{one:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn different_seeds_give_different_digests() {
    assert_ne!(simulate(3, 1, None).await.0.hash, simulate(4, 1, None).await.0.hash);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn same_seed_with_faults_gives_the_same_digest_and_all_jobs_finish() {
    let rates = FaultRates::mixed();
    let (one, _) = simulate(5, 12, Some(rates)).await;
    let (two, _) = simulate(5, 12, Some(rates)).await;
    assert_eq!(one, two);
}
