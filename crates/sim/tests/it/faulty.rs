//! Controllers and nodes whose clients are cut off, crash or are lied to, and who come to the right end anyway.

use crate::k;
use crate::{World, builder, count, deployment, holds, job, phase};
use kai_object as object;
use kai_sim::{NodeGroup, Rates, controllers, kubelet};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_job_counts_right_wherever_its_controller_crashes() {
    for requests in 0.. {
        let world = World::of(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
        world.sleep(2).await;
        let spec = json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"});
        world.cluster.faults().crash_after(controllers::CLIENT, requests);
        world.create(&k::JOB, job("a", &spec, &json!({"sim.kai.scheduler/run-for": "3s"}))).await;
        let done = world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
        assert_eq!((count(&done, "succeeded"), count(&done, "failed")), (3, 0), "after {requests} requests");
        let pods = world.list(&k::POD).await;
        assert!(pods.iter().all(|pod| object::finalizers(pod).is_empty()), "after {requests} requests");
        if world.cluster.faults().counts(controllers::CLIENT).crashes == 0 {
            assert!(requests > 10, "a job takes more than {requests} requests");
            return;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nodes_that_are_cut_off_count_as_silent_and_come_back() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 2)).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 2).await;
    world.cluster.faults().partition(kubelet::CLIENT);
    world.until_all(&k::NODE, |nodes| nodes.iter().all(|node| !holds(node, "Ready"))).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 0).await;
    world.cluster.faults().heal(kubelet::CLIENT);
    world.until_all(&k::NODE, |nodes| nodes.iter().all(|node| holds(node, "Ready"))).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 2).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn everything_settles_once_the_faults_end() {
    for seed in 0..6 {
        let world = World::of(builder().seed(seed).nodes([NodeGroup::gpu_nodes(4, 8)])).await;
        world.cluster.faults().set_rates_of(controllers::CLIENT, Rates::bad_day());
        world.cluster.faults().set_rates_of(kubelet::CLIENT, Rates::bad_day());
        world.cluster.faults().set_rates_of("binder", Rates::bad_day());
        world.create(&k::DEPLOYMENT, deployment("web", 6)).await;
        let spec = json!({"completions": 6, "parallelism": 3});
        world.create(&k::JOB, job("a", &spec, &json!({"sim.kai.scheduler/run-for": "30s"}))).await;
        world.sleep(1_200).await;
        world.cluster.faults().heal_all();
        assert!(world.cluster.settle(Duration::from_mins(2), Duration::from_hours(2)).await, "seed {seed}");
        let web = world.get(&k::DEPLOYMENT, "web").await;
        assert_eq!(count(&web, "availableReplicas"), 6, "seed {seed}");
        assert!(holds(&world.get(&k::JOB, "a").await, "Complete"), "seed {seed}");
        let running = world.list(&k::POD).await.iter().filter(|pod| phase(pod) == "Running").count();
        assert_eq!(running, 6, "seed {seed}");
        let hurt = world.cluster.faults().counts(controllers::CLIENT);
        assert!(hurt.requests_hurt + hurt.events_hurt > 0, "seed {seed}: {hurt:?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn one_node_is_cut_off_and_its_neighbours_work_on() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 8)).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 8).await;
    world.cluster.faults().partition("kubelet/node-2");
    world.until(&k::NODE, "node-2", |node| !holds(node, "Ready")).await;
    let ready = world.list(&k::NODE).await.iter().filter(|node| holds(node, "Ready")).count();
    assert_eq!(ready, 3);
    // The others start and stop pods as fast as ever.
    let begin = tokio::time::Instant::now();
    world
        .create(&k::JOB, job("a", &json!({"completions": 3}), &json!({"sim.kai.scheduler/run-for": "5s"})))
        .await;
    world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 8).await;
    let pods = world.list(&k::POD).await;
    let moved = pods.iter().filter(|pod| pod["spec"]["nodeName"] != "node-2" && phase(pod) == "Running");
    assert_eq!(moved.count(), 8);
    world.cluster.faults().heal("kubelet/node-2");
    world.until(&k::NODE, "node-2", |node| holds(node, "Ready")).await;
    world.until_all(&k::POD, |pods| pods.iter().all(|pod| !object::is_deleting(pod))).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_kubelet_that_crashes_alone_comes_back_to_its_pods() {
    let world = World::of(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    for requests in 0..6 {
        let name = format!("a{requests}");
        let spec = json!({"completions": 2, "parallelism": 2});
        world.cluster.faults().crash_after("kubelet/node-1", requests);
        world.create(&k::JOB, job(&name, &spec, &json!({"sim.kai.scheduler/run-for": "3s"}))).await;
        let done = world.until(&k::JOB, &name, |job| holds(job, "Complete")).await;
        assert_eq!((count(&done, "succeeded"), count(&done, "failed")), (2, 0), "after {requests} requests");
    }
    assert_eq!(world.cluster.faults().counts("kubelet/node-1").crashes, 6);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn one_controller_is_cut_off_and_the_others_work_on() {
    let world = World::new().await;
    world.cluster.faults().partition("kube-controller-manager/job");
    world.create(&k::JOB, job("a", &json!({}), &json!({"sim.kai.scheduler/run-for": "3s"}))).await;
    world.create(&k::DEPLOYMENT, deployment("web", 3)).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 3).await;
    assert!(world.list(&k::POD).await.iter().all(|pod| object::name(pod).starts_with("web-")));
    world.cluster.faults().crash("kube-controller-manager/job");
    world.cluster.faults().heal("kube-controller-manager/job");
    world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
}
