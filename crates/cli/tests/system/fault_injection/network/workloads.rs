//! The workloads of the seeds: beside pods, gangs and shared GPUs also volumes, device claims and jobs.

use super::super::submit as submit_pods;
use crate::resource_claims;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_runtime::kind::{JOB, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS};
use kai_sim::NodeGroup;
use kai_sim::controllers::persistent_volume::PROVISIONER;
use kai_sim::node::Taint;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use serde_json::json;

const CLASS: &str = "on-first-use";

const TAINT: &str = "example.com/devices";

/// One node whose GPUs are devices of a `ResourceSlice`; there are as many as all rounds claim. Its taint keeps pods away that
/// request GPUs without a claim: as in KAI, the devices count as GPUs of the node.
pub(super) fn nodes_with_claims() -> NodeGroup {
    let taint = Taint { key: TAINT.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    NodeGroup { name: "devices".to_owned(), dra: true, taints: vec![taint], ..NodeGroup::gpu_nodes(1, 6) }
}

/// Creates what the workloads refer to.
pub(super) async fn prepare(cluster: &TestCluster) {
    resource_claims::create_template(cluster).await;
    let class = json!({
        "metadata": {"name": CLASS}, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create(&STORAGE_CLASS, class).await;
}

/// Submits a random workload; returns the number of its pods.
pub(super) async fn submit(cluster: &TestCluster, rng: &mut ChaCha8Rng, round: u32) -> usize {
    match rng.next_u32() % 6 {
        0 => {
            let name = format!("data-{round}");
            let spec = json!({
                "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                "resources": {"requests": {"storage": "1Gi"}},
            });
            let claim = json!({"metadata": {"name": name}, "spec": spec});
            cluster.create(&PERSISTENT_VOLUME_CLAIM, claim).await;
            let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            cluster.create_pod(PodBuilder::new(&name, "a", 1).spec_field("volumes", volumes)).await;
            1
        }
        1 => {
            let user = resource_claims::templated_user(&format!("claims-{round}"));
            let tolerations = json!([{"key": TAINT, "operator": "Exists"}]);
            cluster.create_pod(user.spec_field("tolerations", tolerations)).await;
            1
        }
        2 => {
            let pod = PodBuilder::new("job", "b", 1).spec_field("restartPolicy", json!("Never"));
            let metadata = json!({"labels": {"kai.scheduler/queue": "b"}});
            let template = json!({"metadata": metadata, "spec": pod.object["spec"]});
            let spec = json!({"parallelism": 2, "completions": 2, "template": template});
            cluster.create(&JOB, json!({"metadata": {"name": format!("job-{round}")}, "spec": spec})).await;
            2
        }
        _ => submit_pods(cluster, rng, round).await,
    }
}
