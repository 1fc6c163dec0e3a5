//! What users are told of pods and workloads, and how little it costs.

use crate::k;
use crate::{World, builder, count, deployment, gpu_pod, holds, job};
use kai_object as object;
use kai_runtime::api::Deletion;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

impl World {
    /// The events about objects of a kind: name, reason, message and count of each, in the order of their writing.
    async fn events(&self, kind: &str) -> Vec<(String, String, String, i64)> {
        // They are told in the background.
        self.sleep(2).await;
        let mut events = self.list(&k::EVENT).await;
        events.sort_by_key(|event| object::meta_str(event, "resourceVersion").parse::<u64>().unwrap());
        let text = |event: &Value, at: &str| object::str_at(event, at).to_owned();
        let about = events.iter().filter(|event| event["involvedObject"]["kind"] == kind);
        about
            .map(|event| {
                let name = text(event, "/involvedObject/name");
                (name, text(event, "/reason"), text(event, "/message"), event["count"].as_i64().unwrap())
            })
            .collect()
    }
}

fn reasons(events: &[(String, String, String, i64)]) -> Vec<&str> {
    events.iter().map(|(_, reason, _, _)| reason.as_str()).collect()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nodes_tell_what_they_do_with_a_pod() {
    let world = World::new().await;
    world.create(&k::POD, gpu_pod("a", 1, &json!({}))).await;
    world.until(&k::POD, "a", |pod| holds(pod, "Ready")).await;
    let events = world.events("Pod").await;
    assert_eq!(reasons(&events), ["Pulled", "Created", "Started"]);
    assert_eq!(events[2].2, "Started container main");
    let event = &world.list(&k::EVENT).await[0];
    assert_eq!(event["source"], json!({"component": "kubelet", "host": "node-1"}));
    world.delete(&k::POD, "a", Deletion::default()).await;
    world.gone(&k::POD, "a").await;
    assert_eq!(reasons(&world.events("Pod").await)[3], "Killing");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_happens_again_is_counted() {
    let world = World::new().await;
    let mut pod =
        gpu_pod("a", 1, &json!({"sim.kai.scheduler/run-for": "1s", "sim.kai.scheduler/exit-code": "1"}));
    pod["spec"]["restartPolicy"] = json!("Always");
    world.create(&k::POD, pod).await;
    world.sleep(60).await;
    let events = world.events("Pod").await;
    let backoff = events.iter().find(|(_, reason, _, _)| reason == "BackOff").unwrap();
    assert!(backoff.3 >= 3, "{events:?}");
    assert_eq!(events.len(), 4, "{events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn controllers_tell_what_they_make_and_when_it_is_done() {
    let world = World::new().await;
    world.create(&k::DEPLOYMENT, deployment("web", 3)).await;
    world.until(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 3).await;
    let events = world.events("Deployment").await;
    assert_eq!(reasons(&events), ["ScalingReplicaSet"]);
    assert!(events[0].2.starts_with("Scaled up replica set web-") && events[0].2.ends_with(" from 0 to 3"));
    assert_eq!(reasons(&world.events("ReplicaSet").await), ["SuccessfulCreate"; 3]);
    world
        .create(&k::JOB, job("a", &json!({"backoffLimit": 0}), &json!({"sim.kai.scheduler/run-for": "1s"})))
        .await;
    world.until(&k::JOB, "a", |job| holds(job, "Complete")).await;
    assert_eq!(reasons(&world.events("Job").await), ["SuccessfulCreate", "Completed"]);
    let bad = json!({"sim.kai.scheduler/run-for": "1s", "sim.kai.scheduler/exit-code": "1"});
    world.create(&k::JOB, job("b", &json!({"backoffLimit": 0}), &bad)).await;
    world.until(&k::JOB, "b", |job| holds(job, "Failed")).await;
    let events = world.events("Job").await;
    assert_eq!(reasons(&events[2..]), ["SuccessfulCreate", "BackoffLimitExceeded"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn many_similar_things_are_told_as_one() {
    let world = World::of(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    world.create(&k::JOB, job("a", &json!({"completions": 60, "parallelism": 60}), &json!({}))).await;
    world.until(&k::JOB, "a", |job| count(job, "active") == 60).await;
    let events = world.events("Job").await;
    assert_eq!(events.len(), 11, "{events:?}");
    let (_, _, message, times) = &events[10];
    assert!(message.starts_with("(combined from similar events): Created pod: a-"), "{message}");
    assert_eq!(*times, 50);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn events_go_after_an_hour() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.create(&k::POD, gpu_pod(name, 1, &json!({}))).await;
        world.until(&k::POD, name, |pod| holds(pod, "Ready")).await;
        let names: Vec<String> = world.events("Pod").await.into_iter().map(|(about, ..)| about).collect();
        assert_eq!(names, [name; 3], "only what is younger than an hour");
        world.sleep(3_600).await;
    }
}
