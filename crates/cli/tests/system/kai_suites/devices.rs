//! Devices of Dynamic Resource Allocation: claims, templates, and extended resources that devices provide.

use super::embedded;
use super::steps::{bounds, cpu_pod};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::{annotation, label, resource};
use kai_object as object;
use kai_runtime::kind::{DEVICE_CLASS, POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use kai_sim::{NodeGroup, node};
use serde_json::{Value, json};
use std::time::Duration;

/// Devices of the node.
const DEVICES: usize = 4;

pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { dra: true, ..NodeGroup::gpu_nodes(1, 4) }
}

fn spec(class: &str, count: usize) -> Value {
    let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
    json!({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
}

fn user(name: &str, queue: &str, field: &str, claim: &str) -> PodBuilder {
    let mut pod =
        cpu_pod(name, queue, "100m").spec_field("resourceClaims", json!([{"name": "gpu", field: claim}]));
    pod.object["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
    pod
}

async fn create_claim<B>(cluster: &TestCluster<B>, name: &str, queue: &str, class: &str, count: usize) {
    let metadata = json!({"name": name, "labels": {label::QUEUE: queue}});
    cluster.create(&RESOURCE_CLAIM, json!({"metadata": metadata, "spec": spec(class, count)})).await;
}

async fn create_template<B>(cluster: &TestCluster<B>, name: &str, queue: &str, count: usize) {
    let class = object::name(&node::device_class()).to_owned();
    let inner = json!({"metadata": {"labels": {label::QUEUE: queue}}, "spec": spec(&class, count)});
    cluster.create(&RESOURCE_CLAIM_TEMPLATE, json!({"metadata": {"name": name}, "spec": inner})).await;
}

/// Deletes the workloads, and the claims that are not owned by a pod.
async fn clear<B>(cluster: &TestCluster<B>) {
    cluster.clear().await;
    for claim in cluster.list(&RESOURCE_CLAIM).await {
        // One that the garbage collector deletes at the same time.
        let _ = cluster.try_delete(&RESOURCE_CLAIM, object::name(&claim)).await;
    }
    cluster.wait_until("the claims are gone", async || cluster.list(&RESOURCE_CLAIM).await.is_empty()).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claims_are_scheduled_preempted_and_reclaimed() {
    claims(&embedded("suite-claims", nodes()).await).await;
}

/// A claim keeps its device until the controllers of the cluster have released it, some time after its pod is gone.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn preemptor_waits_for_the_device_of_its_victim_and_takes_no_second_one() {
    let cluster = embedded("suite-claims", nodes()).await;
    cluster.create_queue("a", -1).await;
    create_template(&cluster, "one-gpu", "a", 1).await;
    let (low, high) = (cluster.class(50).await, cluster.class(51).await);
    for number in 0..DEVICES {
        let pod = templated(&format!("full-{number}"), &low);
        let pod = pod.spec_field("terminationGracePeriodSeconds", json!(30));
        cluster.create_pod(pod.annotation(kai_sim::well_known::STOP_DELAY, "20s")).await;
    }
    cluster.wait_for_running("full-", DEVICES).await;
    cluster.create_pod(templated("winner", &high)).await;
    cluster
        .wait_until("a victim is evicted", async || cluster.list(&POD).await.iter().any(object::is_deleting))
        .await;
    // The controllers that release and delete claims.
    let controllers =
        ["resourceclaim", "garbagecollector"].map(|name| format!("{}/{name}", kai_sim::controllers::CLIENT));
    let faults = cluster.backend.faults();
    for name in &controllers {
        faults.partition(name);
    }
    cluster.wait_until("the victim is gone", async || cluster.list(&POD).await.len() == DEVICES).await;
    cluster.sleep(Duration::from_secs(30)).await;
    let left = cluster.list(&POD).await;
    let is_kept = |pod: &&Value| object::name(pod).starts_with("full-") && !object::is_deleting(pod);
    assert_eq!(left.iter().filter(is_kept).count(), DEVICES - 1, "{}", cluster.dump().await);
    assert_eq!(cluster.bound_pods("winner").await, [], "the device is still allocated");
    for name in &controllers {
        faults.heal(name);
    }
    cluster.wait_for_running("winner", 1).await;
    cluster.settles("full-", DEVICES - 1, 0).await;
}

/// resource-08 … 10, reclaim-12 and preempt-08, on one node with four devices.
pub(crate) async fn claims<B>(cluster: &TestCluster<B>) {
    let class = object::name(&node::device_class()).to_owned();
    cluster.create_queue("a", -1).await;
    let named = |name: &str| user(name, "a", "resourceClaimName", name);
    create_claim(cluster, "one", "a", &class, 1).await;
    cluster.runs(named("one")).await;
    cluster.wait_for_running("one", 1).await;
    create_claim(cluster, "classless", "a", "no-such-class", 1).await;
    cluster.waits(named("classless")).await;
    clear(cluster).await;

    create_template(cluster, "one-gpu", "a", 1).await;
    let class = cluster.class(50).await;
    for number in 0..DEVICES {
        cluster.create_pod(templated(&format!("full-{number}"), &class)).await;
    }
    cluster.wait_for_running("full-", DEVICES).await;
    cluster.waits(templated("one-more", &class)).await;
    clear(cluster).await;
    preempt_claim(cluster).await;
    clear(cluster).await;
    reclaim(cluster).await;
}

fn templated(name: &str, class: &str) -> PodBuilder {
    user(name, "a", "resourceClaimTemplateName", "one-gpu").priority_class(class)
}

/// preempt-08: one victim, however long its claim keeps the device.
async fn preempt_claim<B>(cluster: &TestCluster<B>) {
    let (low, high) = (cluster.class(50).await, cluster.class(51).await);
    for number in 0..DEVICES {
        cluster.create_pod(templated(&format!("full-{number}"), &low)).await;
    }
    cluster.wait_for_running("full-", DEVICES).await;
    cluster.runs(templated("winner", &high)).await;
    cluster.wait_for_running("winner", 1).await;
    cluster.settles("full-", DEVICES - 1, 0).await;
}

/// reclaim-12: the queue below its quota gets one device, and no second one.
async fn reclaim<B>(cluster: &TestCluster<B>) {
    cluster.create_queue_under(None, "four", &bounds(4, 4, 2), json!({})).await;
    for leaf in ["reclaimee", "reclaimer"] {
        cluster.create_queue_under(Some("four"), leaf, &bounds(1, -1, 2), json!({})).await;
    }
    for (template, queue, count) in [
        ("two-a", "reclaimee", 2),
        ("one-a", "reclaimee", 1),
        ("one-b", "reclaimer", 1),
        ("two-b", "reclaimer", 2),
    ] {
        create_template(cluster, template, queue, count).await;
    }
    let pod =
        |name: &str, queue: &str, template: &str| user(name, queue, "resourceClaimTemplateName", template);
    for (name, template) in [("holder-0", "two-a"), ("holder-1", "one-a"), ("holder-2", "one-a")] {
        cluster.runs(pod(name, "reclaimee", template)).await;
    }
    cluster.runs(pod("gets", "reclaimer", "one-b")).await;
    cluster.waits(pod("waits", "reclaimer", "two-b")).await;
    clear(cluster).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn devices_provide_extended_resources() {
    extended(&embedded("suite-extended", nodes()).await).await;
}

/// Waits for the claim that the binder makes for the extended resources of a pod.
async fn has_claim<B>(cluster: &TestCluster<B>, pod: &str) {
    let what = format!("pod `{pod}` owns a claim for its extended resources");
    cluster
        .wait_until(&what, async || {
            let claims = cluster.list(&RESOURCE_CLAIM).await;
            let found = claims.iter().any(|claim| {
                let owner = &claim["metadata"]["ownerReferences"][0];
                claim["metadata"]["annotations"][annotation::EXTENDED_RESOURCE_CLAIM] == "true"
                    && (object::str_at(owner, "/name"), &owner["controller"]) == (pod, &json!(true))
            });
            let pod = cluster.get(&POD, pod).await.unwrap_or_default();
            found && !pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].is_null()
        })
        .await;
}

/// resource-11 … 13 and preempt-09, on one node with four devices; one is added.
pub(crate) async fn extended<B>(cluster: &TestCluster<B>) {
    let mut class = node::device_class();
    class["metadata"]["name"] = json!("suite-extended");
    class["spec"]["extendedResourceName"] = json!(resource::NVIDIA_GPU);
    cluster.create(&DEVICE_CLASS, class).await;
    cluster.create_queue("a", -1).await;
    let class = cluster.class(50).await;
    for number in 0..DEVICES {
        let name = format!("full-{number}");
        cluster.runs(extended_pod(cluster, &name, &class)).await;
        has_claim(cluster, &name).await;
    }
    cluster.wait_for_running("full-", DEVICES).await;
    cluster.waits(extended_pod(cluster, "one-more", &class)).await;
    clear(cluster).await;
    preempt_extended(cluster).await;
    clear(cluster).await;

    cluster.add_nodes(NodeGroup { name: "more".to_owned(), ..nodes() }).await;
    let wide = |number: usize| PodBuilder::new(&format!("gang-{number}"), "a", 4);
    cluster.own_group("gang", "a", json!({"minMember": 2}), vec![wide(0), wide(1)]).await;
    cluster.settles("gang-", 2, 0).await;
    assert_eq!(cluster.nodes_of("gang-").await.len(), 2);
    clear(cluster).await;
}

fn extended_pod<B>(cluster: &TestCluster<B>, name: &str, class: &str) -> PodBuilder {
    PodBuilder::new(name, "a", 1).priority_class(class).on_node(&cluster.node_name(1))
}

/// preempt-09: as [`preempt_claim`], with the claim that the binder makes.
async fn preempt_extended<B>(cluster: &TestCluster<B>) {
    let (low, high) = (cluster.class(50).await, cluster.class(99).await);
    for number in 0..DEVICES {
        cluster.runs(extended_pod(cluster, &format!("full-{number}"), &low)).await;
    }
    cluster.runs(extended_pod(cluster, "winner", &high)).await;
    cluster.wait_for_running("winner", 1).await;
    has_claim(cluster, "winner").await;
    cluster.settles("full-", DEVICES - 1, 0).await;
}
