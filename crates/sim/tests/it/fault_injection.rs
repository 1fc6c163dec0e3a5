//! Controllers and kubelets converge after partitions, crashes and random faults.

use crate::k;
use crate::{TestCluster, builder, count, deployment, has_condition, job, phase};
use kai_object as object;
use kai_sim::{FaultRates, NodeGroup, controllers, kubelet};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn job_counts_are_exact_wherever_the_controller_crashes() {
    for requests in 0.. {
        let cluster = TestCluster::from_builder(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
        cluster.sleep(2).await;
        let spec = json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"});
        cluster.inner.faults().crash_after(controllers::CLIENT, requests);
        cluster.create(&k::JOB, job("a", &spec, &json!({"sim.kai.scheduler/run-for": "3s"}))).await;
        let done = cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
        assert_eq!((count(&done, "succeeded"), count(&done, "failed")), (3, 0), "after {requests} requests");
        let pods = cluster.list(&k::POD).await;
        assert!(pods.iter().all(|pod| object::finalizers(pod).is_empty()), "after {requests} requests");
        if cluster.inner.faults().counts(controllers::CLIENT).crashes == 0 {
            assert!(requests > 10, "a job takes more than {requests} requests");
            return;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn partitioned_kubelets_become_unknown_and_recover() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 2).await;
    cluster.inner.faults().partition(kubelet::CLIENT);
    cluster.wait_for_all(&k::NODE, |nodes| nodes.iter().all(|node| !has_condition(node, "Ready"))).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 0).await;
    cluster.inner.faults().heal(kubelet::CLIENT);
    cluster.wait_for_all(&k::NODE, |nodes| nodes.iter().all(|node| has_condition(node, "Ready"))).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 2).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn workloads_converge_after_random_faults_end() {
    for seed in 0..6 {
        let cluster =
            TestCluster::from_builder(builder().seed(seed).nodes([NodeGroup::gpu_nodes(4, 8)])).await;
        cluster.inner.faults().set_client_rates(controllers::CLIENT, FaultRates::mixed());
        cluster.inner.faults().set_client_rates(kubelet::CLIENT, FaultRates::mixed());
        cluster.inner.faults().set_client_rates("binder", FaultRates::mixed());
        cluster.create(&k::DEPLOYMENT, deployment("web", 6)).await;
        let spec = json!({"completions": 6, "parallelism": 3});
        cluster.create(&k::JOB, job("a", &spec, &json!({"sim.kai.scheduler/run-for": "30s"}))).await;
        cluster.sleep(1_200).await;
        cluster.inner.faults().heal_all();
        assert!(cluster.inner.settle(Duration::from_mins(2), Duration::from_hours(2)).await, "seed {seed}");
        let web = cluster.get(&k::DEPLOYMENT, "web").await;
        assert_eq!(count(&web, "availableReplicas"), 6, "seed {seed}");
        assert!(has_condition(&cluster.get(&k::JOB, "a").await, "Complete"), "seed {seed}");
        let running = cluster.list(&k::POD).await.iter().filter(|pod| phase(pod) == "Running").count();
        assert_eq!(running, 6, "seed {seed}");
        let counts = cluster.inner.faults().counts(controllers::CLIENT);
        assert!(counts.faulty_requests + counts.faulty_events > 0, "seed {seed}: {counts:?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn partitioned_kubelet_does_not_affect_other_nodes() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 8)).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 8).await;
    cluster.inner.faults().partition("kubelet/node-2");
    cluster.wait_for(&k::NODE, "node-2", |node| !has_condition(node, "Ready")).await;
    let ready = cluster.list(&k::NODE).await.iter().filter(|node| has_condition(node, "Ready")).count();
    assert_eq!(ready, 3);
    // The other kubelets start and stop pods without delay.
    let begin = tokio::time::Instant::now();
    cluster
        .create(&k::JOB, job("a", &json!({"completions": 3}), &json!({"sim.kai.scheduler/run-for": "5s"})))
        .await;
    cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 8).await;
    let pods = cluster.list(&k::POD).await;
    let moved = pods.iter().filter(|pod| pod["spec"]["nodeName"] != "node-2" && phase(pod) == "Running");
    assert_eq!(moved.count(), 8);
    cluster.inner.faults().heal("kubelet/node-2");
    cluster.wait_for(&k::NODE, "node-2", |node| has_condition(node, "Ready")).await;
    cluster.wait_for_all(&k::POD, |pods| pods.iter().all(|pod| !object::is_deleting(pod))).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn crashed_kubelet_resumes_its_pods() {
    let cluster = TestCluster::from_builder(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    for requests in 0..6 {
        let name = format!("a{requests}");
        let spec = json!({"completions": 2, "parallelism": 2});
        cluster.inner.faults().crash_after("kubelet/node-1", requests);
        cluster.create(&k::JOB, job(&name, &spec, &json!({"sim.kai.scheduler/run-for": "3s"}))).await;
        let done = cluster.wait_for(&k::JOB, &name, |job| has_condition(job, "Complete")).await;
        assert_eq!((count(&done, "succeeded"), count(&done, "failed")), (2, 0), "after {requests} requests");
    }
    assert_eq!(cluster.inner.faults().counts("kubelet/node-1").crashes, 6);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn partitioned_controller_does_not_affect_other_controllers() {
    let cluster = TestCluster::new().await;
    cluster.inner.faults().partition("kube-controller-manager/job");
    cluster.create(&k::JOB, job("a", &json!({}), &json!({"sim.kai.scheduler/run-for": "3s"}))).await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 3)).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 3).await;
    assert!(cluster.list(&k::POD).await.iter().all(|pod| object::name(pod).starts_with("web-")));
    cluster.inner.faults().crash("kube-controller-manager/job");
    cluster.inner.faults().heal("kube-controller-manager/job");
    cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
}
