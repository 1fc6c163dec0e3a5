//! Failed binds: they are retried up to the backoff limit, do not block other groups, and succeed once the cause is gone.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_components::name;
use kai_object as object;
use kai_runtime::api::DeleteOptions;
use kai_runtime::kind::{
    CONFIG_MAP, Key, NAMESPACE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS,
};
use kai_scheduler::resources::BIND_REQUEST;
use kai_sim::Outage;
use serde_json::{Value, json};
use std::time::Duration;

/// A storage class without a provisioner: claims of it stay unbound until a test creates the volume.
const CLASS: &str = "no-provisioner";

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_bind_is_retried_up_to_its_backoff_limit() {
    retries_up_to_backoff_limit(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn group_whose_bind_fails_is_in_backoff_while_others_are_scheduled() {
    group_backoff(&TestCluster::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn bind_request_that_a_webhook_refuses_gives_its_capacity_back() {
    let cluster = TestCluster::with_bind_requests(1).await;
    cluster.create_queue("a", 8).await;
    let message =
        "Internal error occurred: failed calling webhook \"policy.example.com\": connection refused";
    let webhook =
        Outage { message: message.to_owned(), ..Outage::storage_full(&BIND_REQUEST.path("default")) };
    cluster.backend.faults().set_outage(name::SCHEDULER, webhook);
    cluster.create_pod(PodBuilder::new("refused", "a", 8)).await;
    let reported = async || !cluster.event_messages("FailedBinding", "refused").await.is_empty();
    cluster.wait_until("the refused binding is reported", reported).await;
    let events = cluster.event_messages("FailedBinding", "refused").await;
    assert!(events[0].contains("policy.example.com"), "{events:?}");
    // A pod of another namespace, for which the webhook is not called, gets the capacity.
    let mut other = PodBuilder::new("other", "a", 8).object;
    cluster
        .api()
        .ensure_dynamic(
            &NAMESPACE,
            "",
            &json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"},
            }),
        )
        .await
        .unwrap();
    let root_ca = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}});
    cluster.api().create_dynamic(&CONFIG_MAP, "elsewhere", &root_ca).await.unwrap();
    (other["apiVersion"], other["kind"]) = (Value::from("v1"), Value::from("Pod"));
    cluster.api().create_dynamic(&POD, "elsewhere", &other).await.unwrap();
    let runs = async || {
        let pod = cluster.api().get_dynamic(&POD, &Key::new("elsewhere", "other")).await.unwrap();
        object::str_at(&pod, "/status/phase") == "Running"
    };
    cluster.wait_until("the other pod runs", runs).await;
    assert_eq!(cluster.bound_pods("refused").await, []);
    cluster
        .api()
        .delete_dynamic(&POD, &Key::new("elsewhere", "other"), &DeleteOptions::default())
        .await
        .unwrap();
    cluster.backend.faults().heal(name::SCHEDULER);
    cluster.wait_for_running("refused", 1).await;
}

/// The next bind request of the pod has the same name.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn failed_bind_request_whose_deletion_is_refused_is_deleted_later() {
    let cluster = TestCluster::with_bind_requests(1).await;
    cluster.create_queue("a", 8).await;
    let faults = cluster.backend.faults();
    faults.set_outage(name::BINDER, Outage::forbidden("/binding"));
    faults.set_outage(name::SCHEDULER, Outage::forbidden(&BIND_REQUEST.path_of(&Key::new("default", "p"))));
    cluster.create_pod(PodBuilder::new("p", "a", 1)).await;
    let failed = async || {
        let request = cluster.get(&BIND_REQUEST, "p").await;
        request.is_some_and(|request| request["status"]["phase"] == "Failed")
    };
    cluster.wait_until("its bind request has failed", failed).await;
    cluster.sleep(Duration::from_secs(30)).await;
    assert!(failed().await, "the scheduler may not delete it");
    faults.heal(name::BINDER);
    faults.heal(name::SCHEDULER);
    cluster.wait_for_running("p", 1).await;
}

/// On one node. Bind requests of this scheduler have no backoff limit; those of other clients may have one.
pub(crate) async fn retries_up_to_backoff_limit<B>(cluster: &TestCluster<B>) {
    prepare(cluster).await;
    for (name, limit) in [("patient", 8), ("hasty", 2)] {
        claim(cluster, name).await;
        cluster.create_group(name, "no-such-queue", 1, json!({}), |pod| reader(pod, 0, name)).await;
        request(cluster, &format!("{name}-0"), limit).await;
    }
    for name in ["patient-0", "hasty-0"] {
        let failed = format!("a bind of `{name}` fails");
        cluster
            .wait_until(&failed, async || failures(cluster, name).await.is_some_and(|count| count > 0))
            .await;
    }
    let gone = async || failures(cluster, "hasty-0").await.is_none();
    cluster.wait_until("the bind request that failed twice is deleted", gone).await;
    assert_eq!(cluster.bound_pods("hasty").await, []);
    volume(cluster, "patient").await;
    cluster.wait_for_running("patient", 1).await;
    let done = async || {
        let request = cluster.get(&BIND_REQUEST, "patient-0").await.unwrap();
        request["status"]["phase"] == "Succeeded"
    };
    cluster.wait_until("the other bind request has succeeded", done).await;
    assert!(failures(cluster, "patient-0").await.unwrap() > 0, "failed attempts stay counted");
    let events = cluster.event_messages("BindingError", "patient").await;
    assert!(!events.is_empty(), "{}", cluster.dump().await);
}

/// On one node of eight GPUs.
pub(crate) async fn group_backoff<B>(cluster: &TestCluster<B>) {
    prepare(cluster).await;
    cluster.create_queue("a", 8).await;
    claim(cluster, "data").await;
    cluster.create_group("stuck", "a", 1, json!({}), |pod| reader(pod, 8, "data")).await;
    cluster
        .wait_until("its bind request exists", async || cluster.get(&BIND_REQUEST, "stuck-0").await.is_some())
        .await;
    cluster.create_gang("next", "a", 1, 8, json!({})).await;
    cluster.wait_for_running("next", 1).await;
    assert_eq!(cluster.bound_pods("stuck").await, []);

    cluster.delete_pod("next-0").await;
    let why = cluster.wait_for_condition("stuck", "in backoff").await;
    assert!(why.contains("binding pod") && why.contains(&cluster.node_name(1)), "{why}");
    volume(cluster, "data").await;
    cluster.wait_for_running("stuck", 1).await;
}

async fn prepare<B>(cluster: &TestCluster<B>) {
    let class = json!({
        "metadata": {"name": class(cluster)}, "provisioner": "example.com/none",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create(&STORAGE_CLASS, class).await;
}

fn class<B>(cluster: &TestCluster<B>) -> String {
    format!("{}-{CLASS}", cluster.namespace())
}

async fn claim<B>(cluster: &TestCluster<B>, name: &str) {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": class(cluster),
        "resources": {"requests": {"storage": "1Gi"}},
    });
    cluster.create(&PERSISTENT_VOLUME_CLAIM, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// Creates the volume for a claim.
async fn volume<B>(cluster: &TestCluster<B>, claim: &str) {
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class(cluster),
        "hostPath": {"path": "/data"}, "claimRef": {"namespace": cluster.namespace(), "name": claim},
    });
    let name = format!("{}-{claim}", cluster.namespace());
    cluster.create(&PERSISTENT_VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// A pod that mounts a claim.
fn reader(name: &str, gpus: u32, claim: &str) -> PodBuilder {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    PodBuilder::new(name, "a", gpus).spec_field("volumes", volumes)
}

/// Creates a bind request, as another client may do.
async fn request<B>(cluster: &TestCluster<B>, pod: &str, limit: i64) {
    let found = cluster.get(&POD, pod).await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": object::uid(&found)}]);
    let spec = json!({
        "podName": pod, "selectedNode": cluster.node_name(1), "receivedResourceType": "Regular",
        "receivedGPU": {"count": 0, "portion": "0.00"}, "backoffLimit": limit,
    });
    let metadata = json!({"name": pod, "ownerReferences": owner});
    cluster.create(&BIND_REQUEST, json!({"metadata": metadata, "spec": spec})).await;
}

/// `status.failedAttempts` of a bind request; `None` where it does not exist.
async fn failures<B>(cluster: &TestCluster<B>, pod: &str) -> Option<i64> {
    let request: Value = cluster.get(&BIND_REQUEST, pod).await?;
    Some(request["status"]["failedAttempts"].as_i64().unwrap_or(0))
}
