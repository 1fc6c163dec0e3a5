//! The node scale adjuster on the embedded cluster. Tests write the conditions that a scheduler would write.

use super::{Component, TestCluster, builder};
use kai_api::BindRequest;
use kai_object as object;
use kai_runtime::ResourceKind;
use kai_runtime::api::{DeleteOptions, Part};
use kai_runtime::kind::{self, Key, POD, SERVICE_ACCOUNT};
use kai_sim::FaultRates;
use serde_json::{Value, json};

const SCALING: &str = "kai-scale-adjust";
const CLIENT: &str = "node-scale-adjuster";

/// The adjuster has run for longer than its cool-down.
async fn cluster() -> TestCluster {
    let mut test = TestCluster::of(builder(), &[]).await;
    prepare(&test).await;
    test.start(Component::NodeScale);
    test.sleep(61.0).await;
    test
}

async fn prepare(test: &TestCluster) {
    test.create(&kind::NAMESPACE, json!({"metadata": {"name": SCALING}})).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SCALING}});
    test.cluster.api().create_dynamic(&SERVICE_ACCOUNT, SCALING, &account).await.unwrap();
    test.sleep(5.0).await;
}

/// Creates a pod with a fraction of a GPU that the scheduler cannot place.
async fn unschedulable(test: &TestCluster, name: &str, fraction: &str) {
    let pod = json!({
        "metadata": {"name": name, "annotations": {"gpu-fraction": fraction}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
        },
    });
    test.create(&POD, pod).await;
    report(test, name, "Unschedulable").await;
}

async fn report(test: &TestCluster, name: &str, reason: &str) {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason});
    let patch = json!({"status": {"conditions": [condition]}});
    test.cluster.api().patch_dynamic(&POD, &Key::new("default", name), Part::Status, &patch).await.unwrap();
}

async fn scaling_pods(test: &TestCluster) -> Vec<Value> {
    test.cluster.api().list_dynamic(&POD, SCALING).await.unwrap().items
}

async fn names(test: &TestCluster) -> Vec<String> {
    scaling_pods(test).await.iter().map(|pod| object::name(pod).to_owned()).collect()
}

async fn until_names(test: &TestCluster, expected: &[&str]) {
    for _ in 0..600 {
        if names(test).await == expected {
            return;
        }
        test.sleep(1.0).await;
    }
    panic!("the scaling pods are {:?} instead of {expected:?}", names(test).await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scaling_pod_is_visible_to_autoscalers_and_goes_when_its_pod_is_bound() {
    let test = cluster().await;
    unschedulable(&test, "a", "0.5").await;
    unschedulable(&test, "b", "0.5").await;
    until_names(&test, &["default-a"]).await;
    let pod = scaling_pods(&test).await.remove(0);
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(
        (&condition["reason"], &condition["status"]),
        (&json!("Unschedulable"), &json!("False")),
        "{pod}"
    );
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1");
    assert_eq!(pod["spec"]["schedulerName"], "kai-scaling-pod");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ServiceAccount");
    let events = test.list(&kind::EVENT).await;
    assert!(events.iter().any(|event| event["reason"] == "NodeRequested"), "{events:?}");
    test.bind("b", "node-1").await;
    test.sleep(30.0).await;
    assert_eq!(names(&test).await, ["default-a"], "one of its pods is pending");
    test.bind("a", "node-1").await;
    until_names(&test, &[]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scaling_pod_goes_at_once_when_its_pod_is_being_bound() {
    let test = cluster().await;
    unschedulable(&test, "a", "0.5").await;
    until_names(&test, &["default-a"]).await;
    let request = json!({"metadata": {"name": "a"}, "spec": {"podName": "a", "selectedNode": "node-1"}});
    test.create(&ResourceKind::of::<BindRequest>(), request).await;
    test.sleep(0.1).await;
    assert_eq!(names(&test).await, Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scaling_pod_goes_when_its_pod_is_deleted_or_no_longer_unschedulable() {
    let test = cluster().await;
    unschedulable(&test, "a", "0.9").await;
    unschedulable(&test, "b", "0.9").await;
    until_names(&test, &["default-a", "default-b"]).await;
    test.delete(&POD, "a").await;
    until_names(&test, &["default-b"]).await;
    report(&test, "b", "SchedulerError").await;
    until_names(&test, &[]).await;
    // The cool-down of the last deletion.
    report(&test, "b", "Unschedulable").await;
    test.sleep(50.0).await;
    assert_eq!(names(&test).await, Vec::<String>::new());
    until_names(&test, &["default-b"]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn adjuster_starts_in_the_cool_down_and_adopts_what_exists() {
    let mut test = TestCluster::of(builder(), &[]).await;
    prepare(&test).await;
    unschedulable(&test, "a", "0.9").await;
    unschedulable(&test, "b", "0.9").await;
    // As KAI's adjuster leaves it: with labels only, and of a pod that is gone.
    for (name, source) in [("default-a", "a"), ("default-gone", "gone")] {
        let labels = json!({
            "app": "scaling-pod", "shared-gpu-pod-name": source, "shared-gpu-pod-namespace": "default",
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        });
        test.cluster.api().create_dynamic(&POD, SCALING, &pod).await.unwrap();
    }
    // Of no concern to the adjuster.
    let foreign = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    test.cluster.api().create_dynamic(&POD, SCALING, &foreign).await.unwrap();
    test.start(Component::NodeScale);
    test.sleep(50.0).await;
    assert_eq!(names(&test).await, ["default-a", "foreign"]);
    until_names(&test, &["default-a", "default-b", "foreign"]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn scaling_pods_go_with_their_service_account() {
    let test = cluster().await;
    unschedulable(&test, "a", "0.5").await;
    until_names(&test, &["default-a"]).await;
    test.cluster.faults().partition(CLIENT);
    let account = Key::new(SCALING, SCALING);
    test.cluster.api().delete_dynamic(&SERVICE_ACCOUNT, &account, &DeleteOptions::default()).await.unwrap();
    until_names(&test, &[]).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_with_a_long_name_gets_a_scaling_pod() {
    let test = cluster().await;
    // Longer than a label value may be; a valid name of a scaling pod is found.
    let long = "x".repeat(245);
    unschedulable(&test, &long, "0.9").await;
    unschedulable(&test, "z", "0.9").await;
    for _ in 0..60 {
        test.sleep(1.0).await;
    }
    let found = names(&test).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&"default-z".to_owned()), "{found:?}");
    test.delete(&POD, &long).await;
    until_names(&test, &["default-z"]).await;
}

/// Crashes, lost requests and broken watches; afterwards there are exactly the scaling pods of the pods that are pending.
#[test]
fn seeds_of_faults_leave_no_scaling_pod_behind() {
    for seed in 0..20_u64 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut test = TestCluster::of(builder().seed(seed), &[]).await;
            prepare(&test).await;
            test.start(Component::NodeScale);
            test.sleep(61.0).await;
            let rates =
                FaultRates { crash: 5_000 + 2_000 * u32::try_from(seed).unwrap(), ..FaultRates::mixed() };
            test.cluster.faults().set_client_rates(CLIENT, rates);
            for round in 0..6 {
                unschedulable(&test, &format!("p{round}"), "0.9").await;
                test.sleep(5.0 + f64::from(u32::try_from(seed * 7 % 40).unwrap())).await;
                match (seed + round) % 3 {
                    0 => test.delete(&POD, &format!("p{round}")).await,
                    1 => test.bind(&format!("p{round}"), "node-1").await,
                    _ => {}
                }
            }
            test.cluster.faults().set_client_rates(CLIENT, FaultRates::default());
            let pending: Vec<String> = (0..6)
                .filter(|round| (seed + round) % 3 == 2)
                .map(|round| format!("default-p{round}"))
                .collect();
            let pending: Vec<&str> = pending.iter().map(String::as_str).collect();
            println!("seed {seed}: {pending:?}");
            until_names(&test, &pending).await;
            let before = test.cluster.faults().counts(CLIENT).requests;
            test.sleep(300.0).await;
            assert_eq!(names(&test).await, pending, "seed {seed}");
            let requests = test.cluster.faults().counts(CLIENT).requests - before;
            assert!(requests < 10, "seed {seed}: {requests} requests at rest");
        });
    }
}
