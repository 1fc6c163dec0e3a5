//! Malformed requests get the status of kube-apiserver.

use crate::{config_map, get, post, send, server};
use http::{Method, StatusCode};
use kai_apiserver::ApiServer;
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn accepting(server: &ApiServer, path: &str, accept: &str) -> (StatusCode, String) {
    let request =
        http::Request::builder().uri(path).header("accept", accept).body(axum::body::Body::empty()).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let kind = response.headers().get("content-type").unwrap().to_str().unwrap().to_owned();
    (response.status(), kind)
}

#[tokio::test]
async fn malformed_bodies_are_bad_requests() {
    let server = server();
    for body in ["", "{", "[1,2", "nonsense", "[]", "3", "\"text\"", "{\"metadata\": 5}"] {
        let (status, answer) = send(&server, Method::POST, MAPS, "application/json", body).await;
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(answer["kind"], "Status", "{body}");
        assert_eq!(answer["reason"], "BadRequest", "{body}");
    }
    let (status, _) = send(&server, Method::POST, MAPS, "application/yaml", "a: [b").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn unsupported_media_types_are_reported() {
    let server = server();
    let protobuf = "application/vnd.kubernetes.protobuf";
    let (status, body) = send(&server, Method::POST, MAPS, "text/csv", "a,b").await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    let (status, _) = accepting(&server, MAPS, protobuf).await;
    assert_eq!(status, 406);
    let (status, kind) = accepting(&server, MAPS, &format!("{protobuf},application/json")).await;
    assert_eq!((status.as_u16(), kind.as_str()), (200, "application/json"));
    let (status, kind) = accepting(&server, MAPS, "application/yaml").await;
    assert_eq!((status.as_u16(), kind.as_str()), (200, "application/yaml"));
    let (status, body) = send(&server, Method::PATCH, &format!("{MAPS}/a"), "text/plain", "x").await;
    assert_eq!(status, 415, "{body}");
}

#[tokio::test]
async fn body_over_3_mib_is_too_large() {
    let server = server();
    let mut map = config_map("big");
    map["data"]["a"] = json!("x".repeat(3 * 1024 * 1024));
    let (status, body) = post(&server, MAPS, &map).await;
    assert_eq!((status.as_u16(), body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    assert_eq!(body["message"], "Request entity too large: limit is 3145728");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_rejected() {
    let server = server();
    for path in ["/nothing", "/api/v9/pods", "/apis/none/v1/things", "/api/v1/namespaces/a/pods/b/nothing"] {
        assert_eq!(get(&server, path).await.0, 404, "{path}");
    }
    let (status, _) = post(&server, "/api/v1/configmaps", &config_map("a")).await;
    assert_eq!(status, 405);
    let (status, _) = send(&server, Method::DELETE, "/api/v1/namespaces", "application/json", "").await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn objects_of_another_kind_are_rejected() {
    let server = server();
    let (status, body) = post(&server, "/api/v1/namespaces/default/secrets", &config_map("a")).await;
    assert_eq!(status, 400, "{body}");
    let wrong = json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}});
    let (status, body) = post(&server, MAPS, &wrong).await;
    assert_eq!(status, 400);
    assert_eq!(
        body["message"],
        "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\""
    );
}

#[tokio::test]
async fn malformed_selectors_are_bad_requests() {
    let server = server();
    for query in ["labelSelector=a%20b%20c", "fieldSelector=spec.nothing%3D1", "limit=x", "continue=zzz"] {
        let (status, body) = get(&server, &format!("{MAPS}?{query}")).await;
        assert_eq!(status, 400, "{query}: {body}");
    }
}

#[tokio::test]
async fn discovery_is_served_aggregated_and_unaggregated() {
    let server = server();
    let (_, groups) = get(&server, "/apis").await;
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(&names[..3], ["apps", "events.k8s.io", "authentication.k8s.io"]);
    let (_, core) = get(&server, "/api/v1").await;
    let listed = core["resources"].as_array().unwrap();
    let pods = listed.iter().find(|entry| entry["name"] == "pods").unwrap();
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert!(listed.iter().any(|entry| entry["name"] == "pods/eviction" && entry["kind"] == "Eviction"));

    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = http::Request::builder()
        .uri("/apis")
        .header("accept", accept)
        .body(axum::body::Body::empty())
        .unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], accept);
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    let apps =
        list["items"].as_array().unwrap().iter().find(|group| group["metadata"]["name"] == "apps").unwrap();
    assert!(
        apps["versions"][0]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["resource"] == "deployments")
    );
}

#[tokio::test]
async fn health_and_version_are_served() {
    let server = server();
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(get(&server, path).await, (StatusCode::OK, json!("ok")), "{path}");
    }
    assert_eq!(get(&server, "/version").await.1["minor"], "36");
}

#[tokio::test]
async fn openapi_describes_kinds_and_parameters() {
    let server = server();
    let (_, index) = get(&server, "/openapi/v3").await;
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (status, document) = get(&server, &url).await;
    assert_eq!(status, 200);
    let item = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let parameters = item["patch"]["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"));
    let schema = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
    assert!(document["components"]["schemas"].get("io.k8s.api.core.v1.PodSpec").is_some());
}

#[tokio::test]
async fn access_reviews_are_allowed_with_a_reason() {
    let server = server();
    let review = json!({"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}});
    let (status, body) =
        post(&server, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
    assert_eq!(status, 201);
    assert_eq!(body["status"]["allowed"], true);
    assert!(body["status"]["reason"].as_str().unwrap().contains("not enforced"));
    let (_, body) = post(&server, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(body["status"]["userInfo"]["username"], "kubernetes-admin");
}
