//! Pods that need nothing of the binder are bound by the scheduler; the binder takes over what it cannot bind.

use crate::test_cluster::{PodBuilder, TestCluster};
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
