//! Strategies of built-in kinds, beyond the recordings of kube-apiserver.

use crate::{get, merge, pod, post, put, server};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn cluster_ips_and_node_ports_are_unique() {
    let server = server();
    let mut seen = Vec::new();
    for name in ["a", "b", "c"] {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
        let (status, body) = post(&server, SERVICES, &service(name, &spec)).await;
        assert_eq!(status, 201);
        assert_eq!(body["spec"]["clusterIPs"][0], body["spec"]["clusterIP"]);
        for value in [&body["spec"]["clusterIP"], &body["spec"]["ports"][0]["nodePort"]] {
            assert!(!value.is_null() && !seen.contains(value), "{value} twice");
            seen.push(value.clone());
        }
    }
}

#[tokio::test]
async fn updated_service_keeps_its_allocations() {
    let server = server();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    let (_, made) = post(&server, SERVICES, &service("a", &spec)).await;
    let (status, body) = put(&server, &format!("{SERVICES}/a"), &service("a", &spec)).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["spec"], made["spec"]);
    let patch = json!({"spec": {"clusterIP": "10.96.9.9"}});
    let (status, body) = merge(&server, &format!("{SERVICES}/a"), &patch).await;
    assert_eq!(status, 422);
    assert!(body["message"].as_str().unwrap().contains("may not change once set"), "{body}");
}

#[tokio::test]
async fn job_gets_a_generated_selector() {
    let server = server();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let (status, body) = post(&server, "/apis/batch/v1/namespaces/default/jobs", &job).await;
    assert_eq!(status, 201, "{body}");
    let uid = &body["metadata"]["uid"];
    assert_eq!(body["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], *uid);
    assert_eq!(body["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    assert_eq!(body["metadata"]["labels"], body["spec"]["template"]["metadata"]["labels"]);
}

#[tokio::test]
async fn generation_counts_spec_changes() {
    let server = server();
    let sets = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"matchLabels": {"a": "b"}});
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "x"}]}});
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": labels, "template": template}});
    assert_eq!(post(&server, sets, &body).await.1["metadata"]["generation"], 1);
    let path = format!("{sets}/d");
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"x": "y"}}}), 1),
        (json!({"spec": {"replicas": 3}}), 2),
        (json!({"metadata": {"annotations": {"x": "y"}}}), 3),
        (json!({"status": {"replicas": 1}}), 3),
    ] {
        assert_eq!(merge(&server, &path, &patch).await.1["metadata"]["generation"], generation, "{patch}");
    }
    let status = merge(&server, &format!("{path}/status"), &json!({"status": {"replicas": 1}})).await.1;
    assert_eq!((&status["metadata"]["generation"], &status["status"]["replicas"]), (&json!(3), &json!(1)));
}

#[tokio::test]
async fn qos_class_follows_from_resources() {
    let server = server();
    for (name, resources, class) in [
        ("a", json!({}), "BestEffort"),
        ("b", json!({"requests": {"cpu": "1"}}), "Burstable"),
        ("c", json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        ("d", json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable"),
        ("e", json!({"limits": {"nvidia.com/gpu": 1}}), "BestEffort"),
    ] {
        let mut wanted = pod(name);
        wanted["spec"]["containers"][0]["resources"] = resources;
        let (status, body) = post(&server, PODS, &wanted).await;
        assert_eq!(status, 201, "{body}");
        assert_eq!(body["status"]["qosClass"], class, "{name}");
    }
}

#[tokio::test]
async fn mutable_pod_fields_can_be_updated() {
    let server = server();
    post(&server, PODS, &pod("p")).await;
    let path = format!("{PODS}/p");
    let resize = json!({"spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}});
    let (status, body) = merge(&server, &format!("{path}/resize"), &resize).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    assert!(body["spec"].get("nodeName").is_none(), "resize changes resources alone");
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "x"}]}});
    assert_eq!(merge(&server, &format!("{path}/ephemeralcontainers"), &debug).await.0, 200);
    let (_, body) = get(&server, &path).await;
    assert_eq!(body["spec"]["ephemeralContainers"][0]["imagePullPolicy"], "Always");
    assert_eq!(merge(&server, &path, &json!({"spec": {"hostNetwork": true}})).await.0, 422);
}

#[tokio::test]
async fn quantities_are_stored_canonically() {
    let server = server();
    let node = json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": 64, "memory": "1048576Ki", "nvidia.com/gpu": 8}}});
    let (_, body) = post(&server, "/api/v1/nodes", &node).await;
    let amounts = json!({"cpu": "64", "memory": "1Gi", "nvidia.com/gpu": "8"});
    assert_eq!(body["status"]["capacity"], amounts);
    assert_eq!(body["status"]["allocatable"], amounts);
}
