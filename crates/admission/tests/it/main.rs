//! The webhook routers as the API server calls them, with queues stored in the embedded cluster.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod arbitrary_input;
mod managed;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use kai_admission::queue::{QuotaValidation, router};
use kai_api::{PodGroup, Queue};
use kai_runtime::ResourceKind;
use kai_runtime::api::{DeleteOptions, Part};
use kai_runtime::kind::{CUSTOM_RESOURCE_DEFINITION, Key};
use kai_sim::Cluster;
use serde_json::{Value, json};
use tower::ServiceExt;

async fn cluster() -> Cluster {
    let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
    let cluster = Cluster::builder().seed(1).starting_at(epoch).start().await.unwrap();
    for definition in kai_api::crds().into_iter().filter(|crd| crd.spec.group == "scheduling.run.ai") {
        let definition = serde_json::to_value(definition).unwrap();
        cluster.api().create_dynamic(&CUSTOM_RESOURCE_DEFINITION, "", &definition).await.unwrap();
    }
    cluster
}

async fn create_queue(cluster: &Cluster, name: &str, parent: &str) -> Value {
    let queue = json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": {}}});
    let queue: Queue = serde_json::from_value(queue).unwrap();
    serde_json::to_value(cluster.api().create(&queue).await.unwrap()).unwrap()
}

async fn review(cluster: &Cluster, operation: &str, object: Value, old: Value) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": operation, "object": object, "oldObject": old},
    });
    let request =
        Request::post("/validate-scheduling-run-ai-v2-queue").body(Body::from(review.to_string())).unwrap();
    let router = router(cluster.api().clone(), QuotaValidation::Disabled);
    let response = router.oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deletion_of_a_queue_with_children_is_denied() {
    let cluster = cluster().await;
    let root = create_queue(&cluster, "root", "").await;
    let leaf = create_queue(&cluster, "leaf", "root").await;
    let denied = review(&cluster, "DELETE", Value::Null, root.clone()).await;
    assert_eq!((&denied["allowed"], &denied["uid"]), (&json!(false), &json!("u")));
    assert_eq!(
        denied["status"]["message"],
        "queue `root` has child queues: `leaf`; hint: delete those first"
    );
    assert_eq!(review(&cluster, "DELETE", Value::Null, leaf).await["allowed"], true);
    cluster
        .api()
        .delete::<Queue>(&Key::new("", "leaf"), &DeleteOptions::default().immediately())
        .await
        .unwrap();
    assert_eq!(review(&cluster, "DELETE", Value::Null, root).await["allowed"], true);
    let without_resources = json!({"metadata": {"name": "x"}, "spec": {}});
    let denied = review(&cluster, "CREATE", without_resources, Value::Null).await;
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["warnings"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deletion_of_a_queue_needs_no_definition_of_pod_groups() {
    let cluster = cluster().await;
    let queue = create_queue(&cluster, "leaf", "").await;
    let definition = Key::new("", "podgroups.scheduling.run.ai");
    let options = DeleteOptions::default().immediately();
    cluster.api().delete_dynamic(&CUSTOM_RESOURCE_DEFINITION, &definition, &options).await.unwrap();
    while cluster.api().list::<PodGroup>("").await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert_eq!(review(&cluster, "DELETE", Value::Null, queue).await["allowed"], true);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deletion_of_a_queue_is_denied_while_a_pod_group_names_it() {
    let cluster = cluster().await;
    let queue = create_queue(&cluster, "leaf", "").await;
    let groups = ResourceKind::of::<PodGroup>();
    let create = async |name: &str, queue: &str| {
        let group = json!({
            "apiVersion": groups.api_version(), "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"},
            "spec": {"queue": queue, "minMember": 1},
        });
        cluster.api().create_dynamic(&groups, "default", &group).await.unwrap();
    };
    // More than one request lists, so that the group is on the second page.
    for number in 0..600 {
        create(&format!("other-{number}"), "other").await;
    }
    assert_eq!(review(&cluster, "DELETE", Value::Null, queue.clone()).await["allowed"], true);
    create("zebra", "leaf").await;
    let denied = review(&cluster, "DELETE", Value::Null, queue.clone()).await;
    let message = denied["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("queue `leaf` is named by pod group `default/zebra`"), "{denied:#}");
    // Its pods have ended: their resources were counted, and nothing is left.
    let status = json!({"status": {"resourcesStatus": {"requested": {}}}});
    let key = Key::new("default", "zebra");
    cluster.api().patch_dynamic(&groups, &key, Part::Status, &status).await.unwrap();
    assert_eq!(review(&cluster, "DELETE", Value::Null, queue).await["allowed"], true);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn body_that_is_no_admission_review_is_a_bad_request() {
    let cluster = cluster().await;
    let request = Request::post("/validate-scheduling-run-ai-v2-queue").body(Body::from("{}")).unwrap();
    let router = router(cluster.api().clone(), QuotaValidation::Disabled);
    assert_eq!(router.oneshot(request).await.unwrap().status(), 400);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn absurd_numbers_and_unknown_kinds_are_refused_or_accepted_as_they_are() {
    let cluster = cluster().await;
    let quota = |text: &str| {
        let resources =
            format!(r#"{{"gpu": {{"quota": {text}, "limit": {text}, "overQuotaWeight": {text}}}}}"#);
        format!(r#"{{"metadata": {{"name": "q"}}, "spec": {{"resources": {resources}}}}}"#)
    };
    let group = |text: &str| format!(r#"{{"metadata": {{"name": "g"}}, "spec": {{"minMember": {text}}}}}"#);
    let pod = |annotation: &str| {
        format!(
            r#"{{"metadata": {{"name": "p", "annotations": {{{annotation}}}}}, "spec": {{"schedulerName": "kai-scheduler", "containers": [{{"name": "a"}}]}}}}"#
        )
    };
    let options = kai_admission::pod::Options { gpu_sharing: true, ..kai_admission::pod::Options::default() };
    let router = router(cluster.api().clone(), QuotaValidation::Disabled)
        .merge(kai_admission::podgroup::router())
        .merge(kai_admission::topology::router())
        .merge(kai_admission::pod::router(options));
    let (queues, groups) = (kai_admission::queue::PATH, kai_admission::podgroup::PATH);
    let pods = kai_admission::pod::VALIDATE_PATH;
    // The code of the answer; 200 for an accepted object, and 0 where the body is no review.
    for (path, object, code) in [
        (queues, quota("1e308"), 200),
        (queues, quota("-1e308"), 200),
        (queues, quota("1e400"), 0),
        (queues, quota("\"many\""), 400),
        (groups, group("2147483647"), 200),
        (groups, group("-2147483648"), 200),
        (groups, group("1000000000000000000000"), 400),
        (groups, group("1.5"), 400),
        (pods, pod(r#""gpu-fraction": "1e400""#), 403),
        (pods, pod(r#""gpu-fraction": "1e-400""#), 403),
        (pods, pod(r#""gpu-memory": "99999999999999999999999999""#), 403),
        (pods, pod(r#""gpu-fraction": "0.5", "gpu-fraction-num-devices": "18446744073709551616""#), 403),
        // Objects of another kind: the first is no pod of this scheduler.
        (pods, quota("1"), 200),
        (kai_admission::topology::PATH, pod(""), 200),
        // It has none of the fields of a queue.
        (queues, r#"{"kind": "Unknown"}"#.to_owned(), 403),
    ] {
        let review = format!(r#"{{"request": {{"uid": "u", "operation": "CREATE", "object": {object}}}}}"#);
        let request = Request::post(path).body(Body::from(review)).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answer = &answer["response"];
        let answered = match answer["allowed"].as_bool() {
            Some(true) => 200,
            Some(false) => answer["status"]["code"].as_u64().unwrap(),
            None => 0,
        };
        assert_eq!(answered, code, "{path} {object}: {answer}");
    }
}
