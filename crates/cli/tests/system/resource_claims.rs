//! Dynamic Resource Allocation: devices that pods request by `ResourceClaim`.

use crate::older_resource_api;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::ComponentOptions;
use kai_object as object;
use kai_runtime::kind::{POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use kai_sim::{Cluster, NodeGroup, node};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claims_from_a_template_get_distinct_devices_and_release_them() {
    claim_per_pod(&TestCluster::with_options(1, [nodes()], &ComponentOptions::simulated()).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_share_the_device_of_one_claim() {
    shared_claim(&TestCluster::with_options(1, [nodes()], &ComponentOptions::simulated()).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claims_are_allocated_where_only_an_older_version_of_the_api_is_served() {
    for version in ["v1beta2", "v1beta1"] {
        let join = |cluster: &mut Cluster| older_resource_api::join(cluster, version);
        claim_per_pod(&TestCluster::with_components(1, [nodes()], join).await).await;
    }
}

/// One node that publishes two GPUs in a `ResourceSlice`.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { dra: true, ..NodeGroup::gpu_nodes(1, 2) }
}

/// Spec of a claim on one GPU.
fn one_gpu() -> Value {
    let class = node::device_class();
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": object::name(&class)}});
    json!({"devices": {"requests": [request]}})
}

/// A pod with a claim. `field` is `resourceClaimName` or `resourceClaimTemplateName`.
fn user(name: &str, field: &str, claim: &str) -> PodBuilder {
    let mut pod =
        PodBuilder::new(name, "a", 0).spec_field("resourceClaims", json!([{"name": "gpu", field: claim}]));
    pod.object["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
    pod
}

/// A pod whose claim is created from the template of [`create_template`].
pub(crate) fn templated_user(name: &str) -> PodBuilder {
    user(name, "resourceClaimTemplateName", "one-gpu")
}

/// Creates the template of a claim on one GPU.
pub(crate) async fn create_template<B>(cluster: &TestCluster<B>) {
    let template = json!({"metadata": {"labels": {"kai.scheduler/queue": "a"}}, "spec": one_gpu()});
    cluster
        .create(&RESOURCE_CLAIM_TEMPLATE, json!({"metadata": {"name": "one-gpu"}, "spec": template}))
        .await;
}

/// The allocated device of a claim, and the pods in `reservedFor`.
fn allocation(claim: &Value) -> (String, Vec<String>) {
    let device = object::str_at(claim, "/status/allocation/devices/results/0/device").to_owned();
    let users = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    (device, users.iter().map(|user| object::str_at(user, "/name").to_owned()).collect())
}

/// On [`nodes`].
pub(crate) async fn claim_per_pod<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 2).await;
    create_template(cluster).await;
    for number in 0..2 {
        let name = format!("user-{number}");
        cluster.create_pod(templated_user(&name)).await;
    }
    cluster.wait_for_running("user-", 2).await;
    let claims = cluster.list(&RESOURCE_CLAIM).await;
    let allocations: BTreeSet<_> = claims.iter().map(allocation).collect();
    let devices: BTreeSet<&str> = allocations.iter().map(|(device, _)| device.as_str()).collect();
    assert_eq!(devices, BTreeSet::from(["gpu-0", "gpu-1"]), "{claims:?}");
    let users: BTreeSet<&str> = allocations.iter().flat_map(|(_, users)| users).map(String::as_str).collect();
    assert_eq!(users, BTreeSet::from(["user-0", "user-1"]), "{claims:?}");

    cluster.create_pod(templated_user("user-2")).await;
    let reason = "didn't have enough resources: GPUs";
    cluster
        .wait_until("the third pod is unschedulable", async || {
            cluster.pod_condition("user-2").await.1.contains(reason)
        })
        .await;
    cluster.delete_pod("user-0").await;
    cluster.wait_until("the third pod runs", async || cluster.running("user-2").await == 1).await;
    let claims = cluster.list(&RESOURCE_CLAIM).await;
    let left = claims.iter().filter(|claim| !object::is_deleting(claim)).map(allocation);
    let users: BTreeSet<_> = left.flat_map(|(_, users)| users).collect();
    assert_eq!(users, BTreeSet::from(["user-1".to_owned(), "user-2".to_owned()]), "{claims:?}");
}

/// On [`nodes`].
pub(crate) async fn shared_claim<B>(cluster: &TestCluster<B>) {
    cluster.create_queue("a", 2).await;
    let metadata = json!({"name": "both", "labels": {"kai.scheduler/queue": "a"}});
    cluster.create(&RESOURCE_CLAIM, json!({"metadata": metadata, "spec": one_gpu()})).await;
    for name in ["left", "right"] {
        cluster.create_pod(user(name, "resourceClaimName", "both")).await;
        cluster.wait_for_running(name, 1).await;
    }
    let claim = cluster.get(&RESOURCE_CLAIM, "both").await.unwrap();
    let (device, users) = allocation(&claim);
    assert!(!device.is_empty(), "{claim}");
    assert_eq!(BTreeSet::from_iter(users), BTreeSet::from(["left".to_owned(), "right".to_owned()]));

    cluster.delete_pod("left").await;
    cluster.wait_until("one pod remains", async || cluster.list(&POD).await.len() == 1).await;
    let users = async || allocation(&cluster.get(&RESOURCE_CLAIM, "both").await.unwrap());
    cluster
        .wait_until("the claim is reserved for the other pod only", async || {
            users().await == (device.clone(), vec!["right".to_owned()])
        })
        .await;
    cluster.delete_pod("right").await;
    cluster.wait_until("the claim is deallocated", async || users().await == (String::new(), vec![])).await;
}
