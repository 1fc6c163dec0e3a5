//! Devices that pods claim instead of asking for a resource.

use crate::world::{Pod, World};
use kai_cli::stack;
use kai_object as object;
use kai_runtime::kind::{POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use kai_sim::{NodeGroup, node};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn each_pod_gets_a_device_of_its_own_and_gives_it_back() {
    of_their_own(&World::of(1, [nodes()], &stack::Options::simulated()).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_share_the_device_of_a_claim_that_both_name() {
    shared(&World::of(1, [nodes()], &stack::Options::simulated()).await).await;
}

/// A node that publishes two GPUs as devices.
pub(crate) fn nodes() -> NodeGroup {
    NodeGroup { dra: true, ..NodeGroup::gpu_nodes(1, 2) }
}

/// The specification of a claim on one GPU.
fn one_gpu() -> Value {
    let class = node::device_class();
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": object::name(&class)}});
    json!({"devices": {"requests": [request]}})
}

/// A pod with a claim: `kind` says by which field it names it.
fn user(name: &str, kind: &str, claim: &str) -> Pod {
    let mut pod = Pod::new(name, "a", 0).with("resourceClaims", json!([{"name": "gpu", kind: claim}]));
    pod.object["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
    pod
}

/// Which device a claim has, and which pods use it.
fn allocation(claim: &Value) -> (String, Vec<String>) {
    let device = object::str_at(claim, "/status/allocation/devices/results/0/device").to_owned();
    let users = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    (device, users.iter().map(|user| object::str_at(user, "/name").to_owned()).collect())
}

/// On [`nodes`].
pub(crate) async fn of_their_own<B>(world: &World<B>) {
    world.queue("a", 2).await;
    let template = json!({"metadata": {"labels": {"kai.scheduler/queue": "a"}}, "spec": one_gpu()});
    world.create(&RESOURCE_CLAIM_TEMPLATE, json!({"metadata": {"name": "one-gpu"}, "spec": template})).await;
    for number in 0..2 {
        let name = format!("user-{number}");
        world.pod(user(&name, "resourceClaimTemplateName", "one-gpu")).await;
    }
    world.runs("user-", 2).await;
    let claims = world.list(&RESOURCE_CLAIM).await;
    let given: BTreeSet<_> = claims.iter().map(allocation).collect();
    let devices: BTreeSet<&str> = given.iter().map(|(device, _)| device.as_str()).collect();
    assert_eq!(devices, BTreeSet::from(["gpu-0", "gpu-1"]), "{claims:?}");
    let users: BTreeSet<&str> = given.iter().flat_map(|(_, users)| users).map(String::as_str).collect();
    assert_eq!(users, BTreeSet::from(["user-0", "user-1"]), "{claims:?}");

    world.pod(user("user-2", "resourceClaimTemplateName", "one-gpu")).await;
    let told = "didn't have enough resources: GPUs";
    world.comes("the third is told", async || world.pod_condition("user-2").await.1.contains(told)).await;
    world.delete_pod("user-0").await;
    world.comes("the third runs", async || world.running("user-2").await == 1).await;
    let claims = world.list(&RESOURCE_CLAIM).await;
    let left = claims.iter().filter(|claim| !object::is_deleting(claim)).map(allocation);
    let users: BTreeSet<_> = left.flat_map(|(_, users)| users).collect();
    assert_eq!(users, BTreeSet::from(["user-1".to_owned(), "user-2".to_owned()]), "{claims:?}");
}

/// On [`nodes`].
pub(crate) async fn shared<B>(world: &World<B>) {
    world.queue("a", 2).await;
    let metadata = json!({"name": "both", "labels": {"kai.scheduler/queue": "a"}});
    world.create(&RESOURCE_CLAIM, json!({"metadata": metadata, "spec": one_gpu()})).await;
    for name in ["left", "right"] {
        world.pod(user(name, "resourceClaimName", "both")).await;
        world.runs(name, 1).await;
    }
    let claim = world.get(&RESOURCE_CLAIM, "both").await.unwrap();
    let (device, users) = allocation(&claim);
    assert!(!device.is_empty(), "{claim}");
    assert_eq!(BTreeSet::from_iter(users), BTreeSet::from(["left".to_owned(), "right".to_owned()]));

    world.delete_pod("left").await;
    world.comes("one pod is left", async || world.list(&POD).await.len() == 1).await;
    let users = async || allocation(&world.get(&RESOURCE_CLAIM, "both").await.unwrap());
    world
        .comes("it has the device alone", async || {
            users().await == (device.clone(), vec!["right".to_owned()])
        })
        .await;
    world.delete_pod("right").await;
    world.comes("nobody has the device", async || users().await == (String::new(), vec![])).await;
}
