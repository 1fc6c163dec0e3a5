//! Controllers that are stopped between any two requests, cut off or lied to, and come to the right end anyway.

use crate::{Component, World, builder, counts, group_name, job, k, pod, queue, queue_counts};
use kai_object as object;
use kai_sim::FaultRates;
use serde_json::{Value, json};

/// A job of three pods and a pod on its own, in a tree of queues.
async fn submit(world: &World) {
    world.create(&k::QUEUE, queue("root", "")).await;
    world.create(&k::QUEUE, queue("team", "root")).await;
    let labels = json!({"kai.scheduler/queue": "team"});
    world.create(&k::JOB, job("train", 3, &labels, &json!({}))).await;
    world.create(&k::POD, pod("single", &labels, &json!({}))).await;
}

async fn bind_all(world: &World) {
    for pod in world.list(&k::POD).await {
        if object::str_at(&pod, "/spec/nodeName").is_empty() {
            world.bind(object::name(&pod), "node-1").await;
        }
    }
}

/// What must hold once everybody had time: two groups, every pod in one of them, all numbers right.
async fn check(world: &World, why: &str) {
    world.until(&k::QUEUE, "root", |queue| queue_counts(queue, "nvidia.com/gpu") == ["4", "4"]).await;
    world.until(&k::QUEUE, "team", |queue| queue_counts(queue, "nvidia.com/gpu") == ["4", "4"]).await;
    let groups = world.list(&k::POD_GROUP).await;
    let mut sizes: Vec<[&str; 3]> = groups.iter().map(|group| counts(group, "nvidia.com/gpu")).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [["1", "1", ""], ["3", "3", ""]], "{why}");
    let pods = world.list(&k::POD).await;
    assert_eq!(pods.len(), 4, "{why}");
    let exists = |name: &str| groups.iter().any(|group| object::name(group) == name);
    assert!(pods.iter().all(|pod| exists(group_name(pod))), "{why}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn numbers_are_right_wherever_a_controller_crashes() {
    for component in Component::ALL {
        for requests in 0.. {
            let world = World::new(&Component::ALL).await;
            world.cluster.faults().crash_after(component.client(), requests);
            submit(&world).await;
            world.sleep(20.0).await;
            bind_all(&world).await;
            check(&world, &format!("{} after {requests} requests", component.client())).await;
            world.sleep(60.0).await;
            if world.cluster.faults().counts(component.client()).crashes == 0 {
                assert!(requests > 2, "{} makes more than {requests} requests", component.client());
                break;
            }
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn numbers_are_right_after_a_partition() {
    let world = World::new(&Component::ALL).await;
    for component in Component::ALL {
        world.cluster.faults().partition(component.client());
    }
    submit(&world).await;
    world.sleep(120.0).await;
    assert!(world.list(&k::POD_GROUP).await.is_empty());
    bind_all(&world).await;
    world.cluster.faults().heal_all();
    check(&world, "after a partition").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn numbers_are_right_once_the_faults_end() {
    for seed in 0..6 {
        let world = World::of(builder().seed(seed), &Component::ALL).await;
        for component in Component::ALL {
            world.cluster.faults().set_client_rates(component.client(), FaultRates::mixed());
        }
        submit(&world).await;
        world.sleep(30.0).await;
        bind_all(&world).await;
        // Labels that come and go keep everybody busy while things go wrong.
        for round in 0..15 {
            let pods = world.list(&k::POD).await;
            for pod in &pods {
                let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
                world.patch(&k::POD, object::name(pod), labels).await;
            }
            let group = world.list(&k::POD_GROUP).await.first().map(|group| object::name(group).to_owned());
            if let Some(group) = group.filter(|_| round % 5 == 3) {
                world.delete(&k::POD_GROUP, &group).await;
            }
            world.sleep(10.0).await;
        }
        world.cluster.faults().heal_all();
        check(&world, &format!("seed {seed}")).await;
        let hurt = world.cluster.faults().counts(Component::PodGroup.client());
        assert!(hurt.faulty_requests + hurt.faulty_events > 0, "seed {seed}: {hurt:?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    let mut digests = Vec::new();
    for _ in 0..2 {
        let world = World::of(builder().seed(5), &Component::ALL).await;
        for component in Component::ALL {
            world.cluster.faults().set_client_rates(component.client(), FaultRates::mixed());
        }
        submit(&world).await;
        world.sleep(60.0).await;
        bind_all(&world).await;
        world.sleep(120.0).await;
        digests.push(world.cluster.journal().digest());
    }
    assert_eq!(digests[0], digests[1]);
}

/// Status of a queue that names itself must not keep anybody busy.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queues_in_a_circle_keep_nobody_busy() {
    let world = World::new(&[Component::Queue]).await;
    for (name, parent) in [("a", "b"), ("b", "a"), ("self", "self")] {
        world.create(&k::QUEUE, queue(name, parent)).await;
    }
    world.sleep(10.0).await;
    let before = world.writes(Component::Queue).len();
    world.sleep(600.0).await;
    assert_eq!(world.writes(Component::Queue).len(), before);
    let own = |queue: Option<Value>| queue.map(|queue| queue["status"]["childQueues"].clone());
    assert_eq!(own(world.find(&k::QUEUE, "self").await), Some(json!(["self"])));
}
