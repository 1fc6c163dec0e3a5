//! Events of kubelets and controllers: content, counts, aggregation, expiry.

use crate::k;
use crate::{TestCluster, builder, count, deployment, gpu_pod, has_condition, job};
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

impl TestCluster {
    /// The events of a kind in order of creation: name, reason, message, count.
    async fn events(&self, kind: &str) -> Vec<(String, String, String, i64)> {
        // Events are written in the background.
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
async fn kubelet_records_events_of_a_pod() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::POD, gpu_pod("a", 1, &json!({}))).await;
    cluster.wait_for(&k::POD, "a", |pod| has_condition(pod, "Ready")).await;
    let events = cluster.events("Pod").await;
    assert_eq!(reasons(&events), ["Pulled", "Created", "Started"]);
    assert_eq!(events[2].2, "Started container main");
    let event = &cluster.list(&k::EVENT).await[0];
    assert_eq!(event["source"], json!({"component": "kubelet", "host": "node-1"}));
    cluster.delete(&k::POD, "a", DeleteOptions::default()).await;
    cluster.wait_for_deletion(&k::POD, "a").await;
    assert_eq!(reasons(&cluster.events("Pod").await)[3], "Killing");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn repeated_events_increment_the_count() {
    let cluster = TestCluster::new().await;
    let mut pod =
        gpu_pod("a", 1, &json!({"sim.kai.scheduler/run-for": "1s", "sim.kai.scheduler/exit-code": "1"}));
    pod["spec"]["restartPolicy"] = json!("Always");
    cluster.create(&k::POD, pod).await;
    cluster.sleep(60).await;
    let events = cluster.events("Pod").await;
    let backoff = events.iter().find(|(_, reason, _, _)| reason == "BackOff").unwrap();
    assert!(backoff.3 >= 3, "{events:?}");
    assert_eq!(events.len(), 4, "{events:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn controllers_record_creation_and_completion() {
    let cluster = TestCluster::new().await;
    cluster.create(&k::DEPLOYMENT, deployment("web", 3)).await;
    cluster.wait_for(&k::DEPLOYMENT, "web", |deployment| count(deployment, "availableReplicas") == 3).await;
    let events = cluster.events("Deployment").await;
    assert_eq!(reasons(&events), ["ScalingReplicaSet"]);
    assert!(events[0].2.starts_with("Scaled up replica set web-") && events[0].2.ends_with(" from 0 to 3"));
    assert_eq!(reasons(&cluster.events("ReplicaSet").await), ["SuccessfulCreate"; 3]);
    cluster
        .create(&k::JOB, job("a", &json!({"backoffLimit": 0}), &json!({"sim.kai.scheduler/run-for": "1s"})))
        .await;
    cluster.wait_for(&k::JOB, "a", |job| has_condition(job, "Complete")).await;
    assert_eq!(reasons(&cluster.events("Job").await), ["SuccessfulCreate", "Completed"]);
    let bad = json!({"sim.kai.scheduler/run-for": "1s", "sim.kai.scheduler/exit-code": "1"});
    cluster.create(&k::JOB, job("b", &json!({"backoffLimit": 0}), &bad)).await;
    cluster.wait_for(&k::JOB, "b", |job| has_condition(job, "Failed")).await;
    let events = cluster.events("Job").await;
    assert_eq!(reasons(&events[2..]), ["SuccessfulCreate", "BackoffLimitExceeded"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn similar_events_are_aggregated() {
    let cluster = TestCluster::from_builder(builder().nodes([NodeGroup::gpu_nodes(1, 8)])).await;
    cluster.create(&k::JOB, job("a", &json!({"completions": 60, "parallelism": 60}), &json!({}))).await;
    cluster.wait_for(&k::JOB, "a", |job| count(job, "active") == 60).await;
    let events = cluster.events("Job").await;
    assert_eq!(events.len(), 11, "{events:?}");
    let (_, _, message, times) = &events[10];
    assert!(message.starts_with("(combined from similar events): Created pod: a-"), "{message}");
    assert_eq!(*times, 50);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn events_expire_after_an_hour() {
    let cluster = TestCluster::new().await;
    for name in ["a", "b"] {
        cluster.create(&k::POD, gpu_pod(name, 1, &json!({}))).await;
        cluster.wait_for(&k::POD, name, |pod| has_condition(pod, "Ready")).await;
        let names: Vec<String> = cluster.events("Pod").await.into_iter().map(|(about, ..)| about).collect();
        assert_eq!(names, [name; 3], "older events have expired");
        cluster.sleep(3_600).await;
    }
}
