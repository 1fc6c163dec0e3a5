//! Persistent volume claims with `WaitForFirstConsumer`.

use crate::{Reporter, TestCluster, annotation, builder, phase, pod};
use kai_binder::{Options, plugin};
use kai_object as object;
use kai_runtime::kind;
use kai_sim::faults::Reads;
use kai_sim::{NodeGroup, Outage};
use serde_json::{Value, json};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn two_nodes() -> kai_sim::Builder {
    builder().nodes([NodeGroup::gpu_nodes(2, 8)])
}

async fn class(test: &TestCluster, name: &str, provisioner: &str, mode: &str) {
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    test.create(&kind::STORAGE_CLASS, class).await;
}

async fn claim(test: &TestCluster, name: &str, class: &str) {
    let spec = json!({
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
    });
    test.create(&kind::PERSISTENT_VOLUME_CLAIM, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn local_volume(test: &TestCluster, name: &str, node: &str) {
    let spec = json!({
        "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]},
        ]}},
    });
    test.create(&kind::PERSISTENT_VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
    test.until(&kind::PERSISTENT_VOLUME, name, |volume| phase(volume) == "Available").await;
}

fn using(name: &str, claim: &str) -> Value {
    let mut wanted = pod(name, &json!({}));
    wanted["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    wanted
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn volume_is_provisioned_for_the_selected_node() {
    let test = TestCluster::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&test, "later", "sim.kai.scheduler/disk", "WaitForFirstConsumer").await;
    claim(&test, "data", "later").await;
    let made = test.create(&kind::POD, using("a", "data")).await;
    test.sleep(10).await;
    assert_eq!(phase(&test.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await), "Pending");
    test.request(&made, "node-2", &json!({})).await;
    test.until_phase("a", "Succeeded").await;
    let bound = test.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await;
    assert_eq!(annotation(&bound, SELECTED_NODE), "node-2");
    assert!(!object::str_at(&bound, "/spec/volumeName").is_empty());
    test.until(&kind::POD, "a", |pod| phase(pod) == "Running").await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn volumes_are_listed_once_however_many_claims_are_bound() {
    let test = TestCluster::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&test, "local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    for index in 0..4 {
        local_volume(&test, &format!("disk-{index}"), "node-1").await;
    }
    for index in 0..4 {
        let (name, data) = (format!("a-{index}"), format!("data-{index}"));
        claim(&test, &data, "local").await;
        let made = test.create(&kind::POD, using(&name, &data)).await;
        test.request(&made, "node-1", &json!({})).await;
    }
    let mut bound = Vec::new();
    for index in 0..4 {
        test.until_phase(&format!("a-{index}"), "Succeeded").await;
        let claim = test.get(&kind::PERSISTENT_VOLUME_CLAIM, &format!("data-{index}")).await;
        bound.push(object::str_at(&claim, "/spec/volumeName").to_owned());
    }
    bound.sort();
    assert_eq!(bound, ["disk-0", "disk-1", "disk-2", "disk-3"], "each claim has its own volume");
    let mut read = test.requests("GET");
    read.retain(|path| path.contains("/persistentvolumes"));
    assert!(read.is_empty(), "besides the list and watch of the informer: {read:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn available_volume_of_the_selected_node_is_bound() {
    let test = TestCluster::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&test, "local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    local_volume(&test, "disk-1", "node-1").await;
    local_volume(&test, "disk-2", "node-2").await;
    claim(&test, "data", "local").await;
    let made = test.create(&kind::POD, using("a", "data")).await;
    test.request(&made, "node-2", &json!({})).await;
    test.until_phase("a", "Succeeded").await;
    assert_eq!(test.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await["spec"]["volumeName"], "disk-2");

    // The volume is local to the second node.
    let made = test.create(&kind::POD, using("b", "data")).await;
    test.request(&made, "node-1", &json!({})).await;
    let request = test.until_phase("b", "Failed").await;
    assert!(
        object::str_at(&request, "/status/reason").contains("cannot be used on node `node-1`"),
        "{request:#}"
    );

    claim(&test, "more", "local").await;
    let made = test.create(&kind::POD, using("c", "more")).await;
    test.request(&made, "node-2", &json!({})).await;
    let request = test.until_phase("c", "Failed").await;
    assert!(object::str_at(&request, "/status/reason").contains("has no volume"), "{request:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn request_fails_after_the_timeout_if_no_volume_is_provisioned() {
    let overrides = json!({"volumebinding": {"arguments": {"bindTimeoutSeconds": "30"}}});
    let plugins = plugin::resolve(&serde_json::from_value(overrides).unwrap()).unwrap();
    let options = Options { plugins, concurrent_max: 1, ..Options::default() };
    let test = TestCluster::with(two_nodes(), options, Reporter::Runs).await;
    class(&test, "slow", "example.com/none", "WaitForFirstConsumer").await;
    claim(&test, "data", "slow").await;
    let made = test.create(&kind::POD, using("a", "data")).await;
    let begin = tokio::time::Instant::now();
    test.request(&made, "node-1", &json!({})).await;
    // An attempt that waits for storage does not block others.
    let other = test.create(&kind::POD, pod("b", &json!({}))).await;
    test.request(&other, "node-1", &json!({})).await;
    test.until_phase("b", "Succeeded").await;
    assert!(begin.elapsed().as_secs() < 10);
    let request = test.until_phase("a", "Failed").await;
    assert_eq!(
        object::str_at(&request, "/status/reason"),
        "binding the volumes of the pod took longer than 30 s"
    );
    assert!((30..40).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(annotation(&test.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await, SELECTED_NODE), "");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn unbound_claim_with_immediate_binding_fails_the_request() {
    let test = TestCluster::with(two_nodes(), Options::default(), Reporter::Runs).await;
    class(&test, "now", "example.com/none", "Immediate").await;
    claim(&test, "data", "now").await;
    let made = test.create(&kind::POD, using("a", "data")).await;
    test.request(&made, "node-1", &json!({})).await;
    let request = test.until_phase("a", "Failed").await;
    assert!(
        object::str_at(&request, "/status/reason").contains("its class is not `WaitForFirstConsumer`"),
        "{request:#}"
    );
    let made = test.create(&kind::POD, using("b", "none")).await;
    test.request(&made, "node-1", &json!({})).await;
    let request = test.until_phase("b", "Failed").await;
    assert_eq!(object::str_at(&request, "/status/reason"), "volume claim `default/none` not found");
}

/// KAI's role does not grant `patch` on `persistentvolumes`.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn available_volume_is_not_used_without_the_right_to_pre_bind_it() {
    let test = TestCluster::with(two_nodes(), Options::default(), Reporter::Runs).await;
    let message = "persistentvolumes \"disk\" is forbidden: User \"binder\" cannot patch resource \"persistentvolumes\" in API \
                   group \"\" at the cluster scope";
    let denied = Outage {
        code: 403,
        message: message.to_owned(),
        retry_after: 0,
        path: "/persistentvolumes/".to_owned(),
        reads: Reads::Served,
    };
    test.cluster.faults().set_outage(crate::BINDER, denied.clone());
    class(&test, "local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer").await;
    local_volume(&test, "disk", "node-1").await;
    claim(&test, "data", "local").await;
    let made = test.create(&kind::POD, using("a", "data")).await;
    test.request(&made, "node-1", &json!({})).await;
    let request = test.until_phase("a", "Failed").await;
    let reason = object::str_at(&request, "/status/reason");
    assert!(reason.contains("cannot patch resource \"persistentvolumes\""), "{reason}");

    // The provisioner creates a volume, although one is available.
    let test = TestCluster::with(two_nodes(), Options::default(), Reporter::Runs).await;
    test.cluster.faults().set_outage(crate::BINDER, denied);
    class(&test, "local", "sim.kai.scheduler/disk", "WaitForFirstConsumer").await;
    local_volume(&test, "disk", "node-1").await;
    claim(&test, "data", "local").await;
    let made = test.create(&kind::POD, using("a", "data")).await;
    test.request(&made, "node-1", &json!({})).await;
    test.until_phase("a", "Succeeded").await;
    let bound = test.get(&kind::PERSISTENT_VOLUME_CLAIM, "data").await;
    assert_ne!(object::str_at(&bound, "/spec/volumeName"), "disk");
}
