//! Claims on storage that wait for their first user.

use crate::{Reporter, World, annotation, builder, phase, pod};
use kai_binder::{Options, plugin};
use kai_object as object;
use kai_runtime::kind;
use kai_sim::NodeGroup;
use serde_json::{Value, json};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn two_nodes() -> kai_sim::Builder {
    builder().nodes([NodeGroup::gpu_nodes(2, 8)])
}

async fn class(world: &World, name: &str, provisioner: &str, mode: &str) {
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    world.create(&kind::STORAGE_CLASS, class).await;
}

async fn claim(world: &World, name: &str, class: &str) {
    let spec = json!({
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
    });
    world.create(&kind::PERSISTENT_VOLUME_CLAIM, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn local_volume(world: &World, name: &str, node: &str) {
    let spec = json!({
        "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]},
        ]}},
    });
    world.create(&kind::PERSISTENT_VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
    world.until(&kind::PERSISTENT_VOLUME, name, |volume| phase(volume) == "Available").await;
}

fn using(name: &str, claim: &str) -> Value {
    let mut wanted = pod(name, &json!({}));
    wanted["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    wanted
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_volume_is_made_where_the_pod_will_run() {
    let world = World::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&world, "later", "sim.kai.scheduler/disk", "WaitForFirstConsumer").await;
    claim(&world, "data", "later").await;
    let made = world.create(&kind::POD, using("a", "data")).await;
    world.sleep(10).await;
    assert_eq!(phase(&world.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await), "Pending");
    world.request(&made, "node-2", &json!({})).await;
    world.until_phase("a", "Succeeded").await;
    let bound = world.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await;
    assert_eq!(annotation(&bound, SELECTED_NODE), "node-2");
    assert!(!object::str_at(&bound, "/spec/volumeName").is_empty());
    world.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_volume_that_is_there_is_taken_on_the_right_node() {
    let world = World::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&world, "local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    local_volume(&world, "disk-1", "node-1").await;
    local_volume(&world, "disk-2", "node-2").await;
    claim(&world, "data", "local").await;
    let made = world.create(&kind::POD, using("a", "data")).await;
    world.request(&made, "node-2", &json!({})).await;
    world.until_phase("a", "Succeeded").await;
    assert_eq!(world.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await["spec"]["volumeName"], "disk-2");

    // The data is on the second node for good.
    let made = world.create(&kind::POD, using("b", "data")).await;
    world.request(&made, "node-1", &json!({})).await;
    let request = world.until_phase("b", "Failed").await;
    assert!(
        object::str_at(&request, "/status/reason").contains("cannot be used on node `node-1`"),
        "{request:#}"
    );

    claim(&world, "more", "local").await;
    let made = world.create(&kind::POD, using("c", "more")).await;
    world.request(&made, "node-2", &json!({})).await;
    let request = world.until_phase("c", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("has no volume"), "{request:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_volume_that_does_not_come_fails_the_request_in_time() {
    let overrides = json!({"volumebinding": {"arguments": {"bindTimeoutSeconds": "30"}}});
    let plugins = plugin::resolve(&serde_json::from_value(overrides).unwrap()).unwrap();
    let options = Options { plugins, concurrent_max: 1, ..Options::default() };
    let world = World::with(two_nodes(), options, Reporter::Runs).await;
    class(&world, "slow", "example.com/nobody", "WaitForFirstConsumer").await;
    claim(&world, "data", "slow").await;
    let made = world.create(&kind::POD, using("a", "data")).await;
    let begin = tokio::time::Instant::now();
    world.request(&made, "node-1", &json!({})).await;
    // Who waits for storage keeps nobody else waiting.
    let other = world.create(&kind::POD, pod("b", &json!({}))).await;
    world.request(&other, "node-1", &json!({})).await;
    world.until_phase("b", "Succeeded").await;
    assert!(begin.elapsed().as_secs() < 10);
    let request = world.until_phase("a", "Failed").await;
    assert_eq!(
        object::str_at(&request, "/status/reason"),
        "binding the volumes of the pod took longer than 30 s"
    );
    assert!((30..40).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(annotation(&world.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await, SELECTED_NODE), "");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn claims_that_do_not_wait_must_be_bound_before() {
    let world = World::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&world, "now", "example.com/nobody", "Immediate").await;
    claim(&world, "data", "now").await;
    let made = world.create(&kind::POD, using("a", "data")).await;
    world.request(&made, "node-1", &json!({})).await;
    let request = world.until_phase("a", "Failed").await;
    assert!(
        object::str_at(&request, "/status/reason").contains("its class does not wait for pods"),
        "{request:#}"
    );
    let made = world.create(&kind::POD, using("b", "none")).await;
    world.request(&made, "node-1", &json!({})).await;
    let request = world.until_phase("b", "Failed").await;
    assert_eq!(object::str_at(&request, "/status/reason"), "volume claim `default/none` not found");
}
