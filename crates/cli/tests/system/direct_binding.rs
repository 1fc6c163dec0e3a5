//! Pods that need nothing of the binder are bound by the scheduler; the binder takes over what it cannot bind.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::annotation::{LAST_START, POD_GROUP};
use kai_components::{COMPONENTS, ComponentOptions, name, rbac};
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_runtime::kind::{Key, NODE, POD};
use kai_scheduler::resources::BIND_REQUEST;
use kai_sim::{NodeGroup, Outage, Right, Rights};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plain_pod_is_bound_without_a_bind_request_and_a_fraction_with_one() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    cluster.create_pod(PodBuilder::new("whole", "a", 2)).await;
    cluster.wait_for_running("whole", 1).await;
    assert_eq!(cluster.list(&BIND_REQUEST).await, Vec::<Value>::new());
    let pod = cluster.get(&POD, "whole").await.unwrap();
    assert_eq!(object::str_at(&pod, "/metadata/annotations/received-resource-type"), "Regular");
    let events = cluster.event_messages("Scheduled", "whole").await;
    assert_eq!(events.len(), 1, "{events:?}");
    cluster.create_pod(PodBuilder::fraction("half", "a", "0.5")).await;
    cluster.wait_for_running("half", 1).await;
    assert!(cluster.get(&BIND_REQUEST, "half").await.is_some());
    // Its reservation may have to be renewed before a whole GPU of the node is given away.
    cluster.create_pod(PodBuilder::new("beside", "a", 1)).await;
    cluster.wait_for_running("beside", 1).await;
    assert!(cluster.get(&BIND_REQUEST, "beside").await.is_some());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn refused_binding_is_reported_by_the_binder_and_repeated() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    let faults = cluster.backend.faults();
    for component in [name::SCHEDULER, name::BINDER] {
        let refused = Outage { message: "denied by a policy".to_owned(), ..Outage::forbidden("/binding") };
        faults.set_outage(component, refused);
    }
    cluster.create_pod(PodBuilder::new("p", "a", 1)).await;
    let reported = async || !cluster.event_messages("BindingError", "p").await.is_empty();
    cluster.wait_until("the refused binding is reported", reported).await;
    let condition = async || {
        let pod = cluster.get(&POD, "p").await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let bound = conditions.into_iter().find(|condition| condition["type"] == "PodBound");
        bound.map(|condition| object::str_at(&condition, "/status").to_owned())
    };
    assert_eq!(condition().await.as_deref(), Some("False"));
    faults.heal(name::SCHEDULER);
    faults.heal(name::BINDER);
    cluster.wait_for_running("p", 1).await;
    let corrected = async || condition().await.as_deref() == Some("True");
    cluster.wait_until("the condition is corrected", corrected).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failing_binding_is_retried_with_backoff() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    let faults = cluster.backend.faults();
    faults.set_outage(name::SCHEDULER, Outage::storage_full("/binding"));
    cluster.create_pod(PodBuilder::new("p", "a", 1)).await;
    cluster.sleep(Duration::from_millis(700)).await;
    assert_eq!(cluster.bound_pods("p").await, []);
    faults.heal(name::SCHEDULER);
    cluster.wait_for_running("p", 1).await;
    assert_eq!(cluster.list(&BIND_REQUEST).await, Vec::<Value>::new(), "the binder was not needed");
}

/// The Binding waits for its retry while the node goes: it must not be posted then.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn binding_to_a_node_that_was_deleted_is_withdrawn() {
    let cluster = TestCluster::new(2).await;
    cluster.create_queue("a", 16).await;
    let faults = cluster.backend.faults();
    faults.set_outage(name::SCHEDULER, Outage::storage_full("/binding"));
    cluster.create_pod(PodBuilder::new("p", "a", 8)).await;
    cluster.sleep(Duration::from_millis(300)).await;
    let gone = cluster.node_name(1);
    cluster
        .api()
        .delete_dynamic(&NODE, &Key::new("", gone.as_str()), &DeleteOptions::default())
        .await
        .unwrap();
    faults.heal(name::SCHEDULER);
    cluster.wait_for_running("p", 1).await;
    let pod = cluster.get(&POD, "p").await.unwrap();
    assert_eq!(object::str_at(&pod, "/spec/nodeName"), cluster.node_name(2));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_get_bind_requests_until_the_right_to_bind_is_granted() {
    let scheduler = COMPONENTS.iter().find(|spec| spec.name == name::SCHEDULER).unwrap();
    let rights = Rights::of_roles(&rbac::objects(scheduler));
    let cluster =
        TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 8)], &ComponentOptions::simulated()).await;
    cluster.create_queue("a", 8).await;
    let faults = cluster.backend.faults();
    faults.set_rights(name::SCHEDULER, Some(rights.without(&[Right::new("create", "pods/binding", "")])));
    cluster.create_pod(PodBuilder::new("first", "a", 1)).await;
    cluster.wait_for_running("first", 1).await;
    assert!(cluster.get(&BIND_REQUEST, "first").await.is_some(), "the binder has bound it");
    faults.set_rights(name::SCHEDULER, None);
    cluster.sleep(Duration::from_mins(2)).await;
    cluster.create_pod(PodBuilder::new("second", "a", 1)).await;
    cluster.wait_for_running("second", 1).await;
    assert!(cluster.get(&BIND_REQUEST, "second").await.is_none(), "the right was granted");
}

/// Nothing but the pod remembers a binding.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn binding_that_a_crash_interrupts_is_made_once() {
    for seed in 0..10 {
        let cluster =
            TestCluster::with_options(seed, [NodeGroup::gpu_nodes(1, 8)], &ComponentOptions::simulated())
                .await;
        cluster.create_queue("a", 8).await;
        let crash = kai_sim::FaultRates { crash: 200_000, ..kai_sim::FaultRates::default() };
        cluster.backend.faults().set_client_rates(name::SCHEDULER, crash);
        cluster.create_gang("g", "a", 8, 1, json!({})).await;
        cluster.sleep(Duration::from_mins(2)).await;
        cluster.backend.faults().set_client_rates(name::SCHEDULER, kai_sim::FaultRates::default());
        cluster.wait_for_running("g", 8).await;
        assert_eq!(cluster.list(&BIND_REQUEST).await, Vec::<Value>::new(), "seed {seed}");
    }
}

/// The annotation of a pod, if it has it.
async fn annotation_of(cluster: &TestCluster, pod: &str, name: &str) -> Option<String> {
    let pod = cluster.get(&POD, pod).await?;
    pod["metadata"]["annotations"][name].as_str().map(str::to_owned)
}

/// A start that no rule reads is kept on the pods, through restarts, and becomes an annotation of the group with the first
/// minimum run time.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn start_of_a_group_is_written_once_a_run_time_counts_from_it() {
    let cluster =
        TestCluster::with_options(1, [NodeGroup::gpu_nodes(1, 8)], &ComponentOptions::simulated()).await;
    cluster.create_queue("a", 8).await;
    cluster.create_gang("g", "a", 2, 1, json!({})).await;
    cluster.wait_for_running("g", 2).await;
    let pods = cluster.list(&POD).await;
    let name = object::name(pods.iter().find(|pod| object::name(pod).starts_with('g')).unwrap());
    let start = annotation_of(&cluster, name, LAST_START).await.expect("the Binding carries it");
    cluster.sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.annotation_time("g", LAST_START).await, None, "no rule reads it");
    cluster.create_gang("forged", "a", 1, 1, json!({})).await;
    cluster.wait_for_running("forged", 1).await;
    let pods = cluster.list(&POD).await;
    let forged = object::name(pods.iter().find(|pod| object::name(pod).starts_with("forged")).unwrap());
    let future = json!({"metadata": {"annotations": {LAST_START: "2099-01-01T00:00:00Z"}}});
    cluster.patch(&POD, forged, &future).await;

    let crash = kai_sim::FaultRates { crash: 1_000_000, ..kai_sim::FaultRates::default() };
    cluster.backend.faults().set_client_rates(name::SCHEDULER, crash);
    cluster.create_pod(PodBuilder::new("other", "a", 1)).await;
    cluster.sleep(Duration::from_mins(1)).await;
    cluster.backend.faults().set_client_rates(name::SCHEDULER, kai_sim::FaultRates::default());
    cluster.wait_for_running("other", 1).await;

    let gpus = json!({"quota": 8, "limit": -1, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "b", &gpus, json!({"preemptMinRuntime": "1h"})).await;
    let written = async || cluster.annotation_time("g", LAST_START).await.is_some();
    cluster.wait_until("the start is written", written).await;
    assert_eq!(cluster.annotation_time("g", LAST_START).await, start.parse().ok(), "it is the same start");
    assert_eq!(cluster.annotation_time("forged", LAST_START).await, None, "it is in the future");
    cluster.create_pod(PodBuilder::new("late", "b", 1)).await;
    cluster.wait_for_running("late", 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn binding_assigns_a_pod_whose_group_is_implied() {
    let cluster = TestCluster::new(1).await;
    cluster.create_queue("a", 8).await;
    cluster.create_pod(PodBuilder::new("p", "a", 8)).await;
    cluster.wait_for_running("p", 1).await;
    let uid = object::uid(&cluster.get(&POD, "p").await.unwrap()).to_owned();
    assert_eq!(annotation_of(&cluster, "p", POD_GROUP).await, Some(format!("pg-p-{uid}")));

    // Without a binding the grouper assigns it.
    cluster.create_pod(PodBuilder::new("waits", "a", 8)).await;
    let reported = async || cluster.pod_condition("waits").await.0 == "Unschedulable";
    cluster.wait_until("the condition of the pod is reported", reported).await;
    assert_eq!(annotation_of(&cluster, "waits", POD_GROUP).await, None, "it is scheduled before");
    let assigned = async || annotation_of(&cluster, "waits", POD_GROUP).await.is_some();
    cluster.wait_until("the grouper has assigned the pod", assigned).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn grouper_assigns_at_once_where_the_binder_binds() {
    let cluster = TestCluster::with_bind_requests(1).await;
    cluster.create_queue("a", 8).await;
    cluster.create_pod(PodBuilder::new("waits", "a", 9)).await;
    cluster.sleep(Duration::from_millis(500)).await;
    let uid = object::uid(&cluster.get(&POD, "waits").await.unwrap()).to_owned();
    assert_eq!(annotation_of(&cluster, "waits", POD_GROUP).await, Some(format!("pg-waits-{uid}")));
}

/// With a clock that only timers advance, so that a delay is one of ours.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn single_pod_on_an_idle_cluster_waits_for_no_timer() {
    let cluster =
        TestCluster::with_options(1, [NodeGroup::gpu_nodes(4, 8)], &ComponentOptions::simulated()).await;
    cluster.create_queue("a", 32).await;
    cluster.sleep(Duration::from_secs(10)).await;
    let mut waits = Vec::new();
    for number in 0..30 {
        let name = format!("single-{number}");
        let start = tokio::time::Instant::now();
        cluster.create_pod(PodBuilder::new(&name, "a", 1)).await;
        while cluster.bound_pods(&name).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waits.push(start.elapsed());
        // The reports on the pods before fall into different moments.
        cluster.sleep(Duration::from_millis(50 + 37 * number)).await;
    }
    assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(8)), "{waits:?}");
    let at_once = waits.iter().filter(|wait| **wait <= Duration::from_millis(2)).count();
    assert!(at_once >= 25, "only a cycle just before delays a pod: {waits:?}");
}
