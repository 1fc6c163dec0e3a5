//! Pods and jobs become pod groups.

use crate::{Component, World, group_name, job, k, pod};
use kai_object as object;
use kai_runtime::kind::EVENT;
use serde_json::{Value, json};

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_costs_one_group_and_one_patch() {
    let world = World::new(&[Component::Grouper]).await;
    world.create(&k::POD, pod("a", &json!({"kai.scheduler/queue": "team"}), &json!({}))).await;
    let name = world.group_of("a").await;
    let made = world.find(&k::POD_GROUP, &name).await.unwrap();
    assert_eq!(made["spec"], json!({"minMember": 1, "queue": "team", "priorityClassName": "train"}));
    world.bind("a", "node-1").await;
    world.until(&k::POD, "a", |pod| object::str_at(pod, "/status/phase") == "Running").await;
    world.sleep(60.0).await;
    let expected = [
        "POST /apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups",
        "PATCH /api/v1/namespaces/default/pods/a",
    ];
    assert_eq!(world.writes(Component::Grouper), expected);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_pods_of_a_job_are_one_gang() {
    let world = World::new(&[Component::Grouper]).await;
    let minimum = json!({"kai.scheduler/batch-min-member": "3"});
    world.create(&k::JOB, job("train", 3, &json!({"kai.scheduler/queue": "team"}), &minimum)).await;
    world.sleep(5.0).await;
    let pods = world.list(&k::POD).await;
    let groups = world.list(&k::POD_GROUP).await;
    assert_eq!((pods.len(), groups.len()), (3, 1));
    let group = object::name(&groups[0]);
    assert!(pods.iter().all(|pod| group_name(pod) == group), "{pods:#?}");
    assert!(group.starts_with("pg-train-"));
    assert_eq!((&groups[0]["spec"]["minMember"], &groups[0]["spec"]["queue"]), (&json!(3), &json!("team")));
    assert_eq!(groups[0]["metadata"]["ownerReferences"][0]["kind"], "Job");
    let writes = world.writes(Component::Grouper);
    let made = writes.iter().filter(|write| write.starts_with("POST")).count();
    assert!(made <= 3, "at most each pod once before the first answer: {writes:?}");
    assert_eq!(writes.iter().filter(|write| write.starts_with("PATCH /api/v1")).count(), 3, "{writes:?}");
    assert!(!writes.iter().any(|write| write.contains("podgroups/")), "{writes:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_group_that_is_changed_or_deleted_is_put_right() {
    let world = World::new(&[Component::Grouper]).await;
    world.create(&k::JOB, job("train", 1, &json!({}), &json!({}))).await;
    world.sleep(5.0).await;
    let name = object::name(&world.list(&k::POD_GROUP).await[0]).to_owned();
    world.patch(&k::POD_GROUP, &name, json!({"spec": {"minMember": 7, "queue": "chosen"}})).await;
    let right = world.until(&k::POD_GROUP, &name, |group| group["spec"]["minMember"] == 1).await;
    assert_eq!(right["spec"]["queue"], "chosen", "the queue is the user's");
    world.delete(&k::POD_GROUP, &name).await;
    let again = world.until(&k::POD_GROUP, &name, |group| object::uid(group) != object::uid(&right)).await;
    assert_eq!(again["spec"]["queue"], "default-queue");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_pod_on_its_own_gets_its_group_back() {
    let world = World::new(&[Component::Grouper]).await;
    world.create(&k::POD, pod("a", &json!({}), &json!({}))).await;
    let name = world.group_of("a").await;
    world.delete(&k::POD_GROUP, &name).await;
    world.until(&k::POD_GROUP, &name, |_| true).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn whoever_asks_is_left_alone() {
    let world = World::new(&[Component::Grouper]).await;
    let skip = json!({"kai.scheduler/skip-podgrouper": "true"});
    world.create(&k::POD, pod("skips", &json!({}), &skip)).await;
    world.create(&k::POD, pod("by-hand", &json!({}), &json!({"pod-group-name": "mine"}))).await;
    world.create(&k::JOB, job("skips", 1, &json!({}), &skip)).await;
    world.cluster.faults().partition(Component::Grouper.client());
    world.create(&k::POD, pod("over", &json!({}), &json!({"sim.kai.scheduler/run-for": "1s"}))).await;
    world.bind("over", "node-1").await;
    world.until(&k::POD, "over", |pod| object::str_at(pod, "/status/phase") == "Succeeded").await;
    world.cluster.faults().heal(Component::Grouper.client());
    let mut foreign = pod("foreign", &json!({}), &json!({}));
    foreign["spec"]["schedulerName"] = json!("default-scheduler");
    world.create(&k::POD, foreign).await;
    world
        .create(&k::POD, pod("almost", &json!({}), &json!({"kai.scheduler/skip-podgrouper": "false"})))
        .await;
    world.group_of("almost").await;
    world.sleep(60.0).await;
    assert_eq!(world.list(&k::POD_GROUP).await.len(), 1);
    assert_eq!(world.writes(Component::Grouper).len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_workload_that_makes_no_sense_is_told_so_and_healed_by_its_author() {
    let world = World::new(&[Component::Grouper]).await;
    world
        .create(&k::JOB, job("odd", 1, &json!({}), &json!({"kai.scheduler/batch-min-member": "four"})))
        .await;
    world.sleep(200.0).await;
    let events = world.list(&EVENT).await;
    let told: Vec<&Value> = events.iter().filter(|event| event["reason"] == "PodGrouperWarning").collect();
    assert_eq!(told.len(), 1, "{events:#?}");
    assert!(object::str_at(told[0], "/message").contains("`four`, which is not a whole number"), "{told:#?}");
    assert_eq!(told[0]["type"], "Warning");
    world
        .patch(&k::JOB, "odd", json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": "1"}}}))
        .await;
    world.sleep(60.0).await;
    assert_eq!(world.list(&k::POD_GROUP).await.len(), 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn owners_are_followed_to_the_top() {
    let world = World::new(&[Component::Grouper]).await;
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox"}],
    }});
    let set = json!({"metadata": {"name": "web", "labels": {"kai.scheduler/queue": "serving"}}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template, "serviceName": "web",
    }});
    world.create(&kai_runtime::kind::STATEFUL_SET, set).await;
    world.sleep(10.0).await;
    let groups = world.list(&k::POD_GROUP).await;
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0]["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    assert_eq!(groups[0]["spec"]["queue"], "serving");
}
