//! Crashes between any two requests, partitions and injected faults: the controllers converge to the same state.

use crate::{Component, TestCluster, builder, counts, group_name, job, k, pod, queue, queue_counts};
use kai_object as object;
use kai_sim::FaultRates;
use serde_json::{Value, json};

/// A job of three pods and a pod without owner, in a tree of queues.
async fn submit(test: &TestCluster) {
    test.create(&k::QUEUE, queue("root", "")).await;
    test.create(&k::QUEUE, queue("team", "root")).await;
    let labels = json!({"kai.scheduler/queue": "team"});
    test.create(&k::JOB, job("train", 3, &labels, &json!({}))).await;
    test.create(&k::POD, pod("single", &labels, &json!({}))).await;
}

async fn bind_all(test: &TestCluster) {
    for pod in test.list(&k::POD).await {
        if object::str_at(&pod, "/spec/nodeName").is_empty() {
            test.bind(object::name(&pod), "node-1").await;
        }
    }
}

/// The converged state: two groups, every pod assigned to one of them, all totals correct.
async fn check(test: &TestCluster, why: &str) {
    test.until(&k::QUEUE, "root", |queue| queue_counts(queue, "nvidia.com/gpu") == ["4", "4"]).await;
    test.until(&k::QUEUE, "team", |queue| queue_counts(queue, "nvidia.com/gpu") == ["4", "4"]).await;
    let groups = test.list(&k::POD_GROUP).await;
    let mut sizes: Vec<[&str; 3]> = groups.iter().map(|group| counts(group, "nvidia.com/gpu")).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [["1", "1", ""], ["3", "3", ""]], "{why}");
    let pods = test.list(&k::POD).await;
    assert_eq!(pods.len(), 4, "{why}");
    let exists = |name: &str| groups.iter().any(|group| object::name(group) == name);
    assert!(pods.iter().all(|pod| exists(group_name(pod))), "{why}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn totals_converge_after_a_crash_between_any_two_requests() {
    for component in Component::ALL {
        for requests in 0.. {
            let test = TestCluster::new(&Component::ALL).await;
            test.cluster.faults().crash_after(component.client(), requests);
            submit(&test).await;
            test.sleep(20.0).await;
            bind_all(&test).await;
            check(&test, &format!("{} after {requests} requests", component.client())).await;
            test.sleep(60.0).await;
            if test.cluster.faults().counts(component.client()).crashes == 0 {
                assert!(requests > 2, "{} makes more than {requests} requests", component.client());
                break;
            }
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn totals_converge_after_a_partition() {
    let test = TestCluster::new(&Component::ALL).await;
    for component in Component::ALL {
        test.cluster.faults().partition(component.client());
    }
    submit(&test).await;
    test.sleep(120.0).await;
    assert!(test.list(&k::POD_GROUP).await.is_empty());
    bind_all(&test).await;
    test.cluster.faults().heal_all();
    check(&test, "after a partition").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn totals_converge_once_fault_injection_ends() {
    for seed in 0..6 {
        let test = TestCluster::of(builder().seed(seed), &Component::ALL).await;
        for component in Component::ALL {
            test.cluster.faults().set_client_rates(component.client(), FaultRates::mixed());
        }
        submit(&test).await;
        test.sleep(30.0).await;
        bind_all(&test).await;
        // Label changes trigger reconciliations while faults are injected.
        for round in 0..15 {
            let pods = test.list(&k::POD).await;
            for pod in &pods {
                let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
                test.patch(&k::POD, object::name(pod), labels).await;
            }
            let group = test.list(&k::POD_GROUP).await.first().map(|group| object::name(group).to_owned());
            if let Some(group) = group.filter(|_| round % 5 == 3) {
                test.delete(&k::POD_GROUP, &group).await;
            }
            test.sleep(10.0).await;
        }
        test.cluster.faults().heal_all();
        check(&test, &format!("seed {seed}")).await;
        let hurt = test.cluster.faults().counts(Component::PodGroup.client());
        assert!(hurt.faulty_requests + hurt.faulty_events > 0, "seed {seed}: {hurt:?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn same_seed_gives_the_same_journal() {
    let mut digests = Vec::new();
    for _ in 0..2 {
        let test = TestCluster::of(builder().seed(5), &Component::ALL).await;
        for component in Component::ALL {
            test.cluster.faults().set_client_rates(component.client(), FaultRates::mixed());
        }
        submit(&test).await;
        test.sleep(60.0).await;
        bind_all(&test).await;
        test.sleep(120.0).await;
        digests.push(test.cluster.journal().digest());
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn cycle_of_queues_causes_no_repeated_writes() {
    let test = TestCluster::new(&[Component::Queue]).await;
    for (name, parent) in [("a", "b"), ("b", "a"), ("self", "self")] {
        test.create(&k::QUEUE, queue(name, parent)).await;
    }
    test.sleep(10.0).await;
    let before = test.writes(Component::Queue).len();
    test.sleep(600.0).await;
    assert_eq!(test.writes(Component::Queue).len(), before);
    let own = |queue: Option<Value>| queue.map(|queue| queue["status"]["childQueues"].clone());
    assert_eq!(own(test.find(&k::QUEUE, "self").await), Some(json!(["self"])));
}
