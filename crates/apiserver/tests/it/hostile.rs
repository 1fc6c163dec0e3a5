//! Requests with extreme values: each is accepted or rejected, and none panics or harms later requests.

use crate::{config_map, delete, get, merge, pod, post, send, send_raw, server};
use http::{Method, StatusCode};
use kai_apiserver::ApiServer;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Values at and beyond the limits of every type.
fn extremes() -> Vec<Value> {
    vec![
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(i32::MAX),
        json!(i32::MIN),
        json!(1e308),
        json!(-1),
        json!(i64::MAX.to_string()),
        json!("1e400"),
        json!("-9223372036854775808"),
        json!("99999999999999999999Ei"),
        json!("0.0000000000000000000000001"),
        json!(""),
        json!("\u{0}\u{1f}\u{e9}\u{1f600}"),
        json!("x".repeat(5_000)),
        json!([]),
        json!({}),
        json!([[], {}, null]),
        Value::Null,
    ]
}

#[track_caller]
fn no_panic(what: &str, status: StatusCode, answer: &Value) {
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(!message.contains("panic"), "{what}: {status} {message}");
}

/// Sends the object with every extreme in every field, and reads what was stored as an object and as a table row.
async fn send_extremes(server: &ApiServer, path: &str, object: &Value, pointers: &[&str]) {
    for pointer in pointers {
        for (index, extreme) in extremes().into_iter().enumerate() {
            let mut object = object.clone();
            let name = format!("x-{index}");
            object["metadata"]["name"] = json!(name);
            *object.pointer_mut(pointer).unwrap() = extreme.clone();
            let what = format!("{path} {pointer} {extreme}");
            let (status, answer) = post(server, path, &object).await;
            no_panic(&what, status, &answer);
            let stored = format!("{path}/{name}");
            for read in [stored.clone(), path.to_owned()] {
                let request = http::Request::builder()
                    .uri(&read)
                    .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
                    .body(axum::body::Body::empty())
                    .unwrap();
                let response = tower::ServiceExt::oneshot(server.service(), request).await.unwrap();
                assert_ne!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{what}");
            }
            let label = json!({"metadata": {"labels": {"changed": "yes"}}});
            let (status, answer) = merge(server, &stored, &label).await;
            no_panic(&what, status, &answer);
            let (status, answer) =
                delete(server, &stored, r#"{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}"#)
                    .await;
            no_panic(&what, status, &answer);
        }
    }
}

#[tokio::test]
async fn extreme_values_in_objects_are_accepted_or_rejected() {
    let server = server();
    let mut wanted = pod("x");
    wanted["metadata"]["generation"] = json!(1);
    wanted["metadata"]["annotations"] = json!({"a": "b"});
    wanted["spec"] = json!({
        "priority": 1, "activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1, "nodeSelector": {"a": "b"},
        "overhead": {"cpu": "1"}, "tolerations": [{"operator": "Exists", "tolerationSeconds": 1}],
        "containers": [{
            "name": "main", "image": "busybox", "ports": [{"containerPort": 1}],
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
        }],
    });
    let pointers = [
        "/metadata/generation",
        "/metadata/annotations",
        "/metadata/annotations/a",
        "/spec",
        "/spec/priority",
        "/spec/activeDeadlineSeconds",
        "/spec/terminationGracePeriodSeconds",
        "/spec/nodeSelector",
        "/spec/overhead/cpu",
        "/spec/tolerations",
        "/spec/tolerations/0/tolerationSeconds",
        "/spec/containers",
        "/spec/containers/0/ports/0/containerPort",
        "/spec/containers/0/resources/requests",
        "/spec/containers/0/resources/requests/cpu",
        "/spec/containers/0/resources/limits/cpu",
    ];
    send_extremes(&server, PODS, &wanted, &pointers).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": wanted["spec"]});
    let selector = json!({"matchLabels": {"a": "b"}});
    let deployment = json!({"metadata": {"name": "x"}, "spec": {
        "replicas": 1, "progressDeadlineSeconds": 1, "selector": selector, "template": template,
        "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
    }});
    let pointers = [
        "/spec/replicas",
        "/spec/progressDeadlineSeconds",
        "/spec/selector",
        "/spec/strategy/rollingUpdate/maxSurge",
        "/spec/strategy/rollingUpdate/maxUnavailable",
    ];
    send_extremes(&server, "/apis/apps/v1/namespaces/default/deployments", &deployment, &pointers).await;
    let mut job = json!({"metadata": {"name": "x"}, "spec": {
        "parallelism": 1, "completions": 1, "backoffLimit": 1, "ttlSecondsAfterFinished": 1, "template": template,
    }});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let pointers =
        ["/spec/parallelism", "/spec/completions", "/spec/backoffLimit", "/spec/ttlSecondsAfterFinished"];
    send_extremes(&server, "/apis/batch/v1/namespaces/default/jobs", &job, &pointers).await;
    let claim = json!({"metadata": {"name": "x"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}},
    ]}}});
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    send_extremes(&server, path, &claim, &["/spec/devices/requests/0/exactly/count"]).await;
}

#[tokio::test(start_paused = true)]
async fn extreme_parameters_are_accepted_or_rejected() {
    let server = server();
    post(&server, MAPS, &config_map("a")).await;
    for value in ["9223372036854775807", "-9223372036854775808", "99999999999999999999", "1e3", "%00", ""] {
        for name in
            ["limit", "resourceVersion", "continue", "fieldSelector", "labelSelector", "timeoutSeconds"]
        {
            let (status, answer) = get(&server, &format!("{MAPS}?{name}={value}")).await;
            no_panic(&format!("{name}={value}"), status, &answer);
        }
        let body = format!(r#"{{"gracePeriodSeconds": {value}}}"#);
        let (status, answer) = delete(&server, &format!("{PODS}/none"), &body).await;
        no_panic(&body, status, &answer);
    }
    // The body of a watch never ends; its head comes at once.
    let request = http::Request::builder()
        .uri(format!("{MAPS}?watch=true&timeoutSeconds=9223372036854775807"))
        .body(axum::body::Body::empty())
        .unwrap();
    let response = tower::ServiceExt::oneshot(server.service(), request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn generation_at_its_maximum_survives_a_deletion() {
    let server = server();
    let mut map = config_map("a");
    map["metadata"]["generation"] = json!(i64::MAX);
    map["metadata"]["finalizers"] = json!(["example.com/hold"]);
    post(&server, MAPS, &map).await;
    let (status, answer) = delete(&server, &format!("{MAPS}/a"), "").await;
    assert_eq!(status, StatusCode::OK, "{answer:#}");
}

#[tokio::test]
async fn object_that_is_nested_too_deeply_is_rejected_and_others_stay_readable() {
    let server = server();
    let definition = json!({"metadata": {"name": "toys.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}],
    }});
    post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let toys = "/apis/example.com/v1/namespaces/default/toys";
    let nested = |levels: usize| (0..levels).fold(json!("end"), |inner, _| json!({"a": inner}));
    let toy = |name: &str, levels| json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}, "spec": nested(levels)});
    for levels in [60, 90, 96, 110, 120, 123, 124, 125, 126, 200] {
        let (status, answer) = post(&server, toys, &toy(&format!("t-{levels}"), levels)).await;
        no_panic(&format!("{levels} levels"), status, &answer);
        assert_eq!(status.is_success(), levels <= 90, "{levels}: {answer}");
    }
    // Patches add levels to what is there.
    let patch = json!([{"op": "add", "path": format!("/spec{}", "/a".repeat(60)), "value": nested(60)}]);
    let path = format!("{toys}/t-60");
    let (status, answer) =
        send(&server, Method::PATCH, &path, "application/json-patch+json", &patch.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let (status, list) = send_raw(&server, Method::GET, toys, "application/json", "").await;
    assert_eq!(status, StatusCode::OK);
    let list: Value = serde_json::from_slice(&list).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}
