//! `CustomResourceDefinition`s and custom resources.

use crate::{delete, get, merge, post, put, send, server};
use http::Method;
use kai_apiserver::ApiServer;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
            "replicas": {"type": "integer"},
        }, "x-kubernetes-validations": [{"rule": "self.size < 100", "message": "too big"}]},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
    }});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            "selectableFields": [{"jsonPath": ".spec.color"}],
        })
    };
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

fn widget(name: &str, size: i64) -> Value {
    json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": name}, "spec": {"size": size}})
}

async fn with_widgets() -> ApiServer {
    let server = server();
    let (status, body) = post(&server, DEFINITIONS, &definition()).await;
    assert_eq!(status, 201, "{body}");
    server
}

#[tokio::test]
async fn definition_is_established_immediately() {
    let server = with_widgets().await;
    let (_, made) = get(&server, &format!("{DEFINITIONS}/widgets.example.com")).await;
    let conditions: Vec<_> = made["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| (condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap()))
        .collect();
    assert_eq!(conditions, [("NamesAccepted", "True"), ("Established", "True")]);
    assert_eq!(made["status"]["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let (_, list) = get(&server, "/apis/example.com/v1").await;
    let names: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let (_, groups) = get(&server, "/apis/example.com").await;
    assert_eq!(groups["preferredVersion"]["version"], "v1");
    let (_, document) = get(&server, "/openapi/v3/apis/example.com/v1").await;
    assert!(document["components"]["schemas"].get("com.example.v1.Widget").is_some());
}

#[tokio::test]
async fn custom_resources_are_pruned_defaulted_and_validated() {
    let server = with_widgets().await;
    let mut object = widget("a", 3);
    object["spec"]["unknown"] = json!(1);
    let (status, body) = post(&server, WIDGETS, &object).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(body["spec"], json!({"size": 3, "color": "red"}));
    assert_eq!(body["metadata"]["generation"], 1);
    for (bad, field) in [
        (widget("b", 0), "spec.size"),
        (
            json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "b"}, "spec": {}}),
            "spec.size",
        ),
        (widget("b", 500), "spec"),
    ] {
        let (status, body) = post(&server, WIDGETS, &bad).await;
        assert_eq!(
            (status.as_u16(), body["details"]["causes"][0]["field"].as_str()),
            (422, Some(field)),
            "{body}"
        );
    }
    let (status, body) = post(&server, &format!("{WIDGETS}?fieldValidation=Strict"), &{
        let mut object = widget("c", 3);
        object["spec"]["unknown"] = json!(1);
        object
    })
    .await;
    assert_eq!(
        (status.as_u16(), body["message"].as_str()),
        (
            400,
            Some(
                "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.unknown\""
            )
        )
    );
}

#[tokio::test]
async fn versions_serve_the_same_objects() {
    let server = with_widgets().await;
    post(&server, WIDGETS, &widget("a", 3)).await;
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let (_, seen) = get(&server, &format!("{beta}/a")).await;
    assert_eq!((&seen["apiVersion"], &seen["spec"]["size"]), (&json!("example.com/v1beta1"), &json!(3)));
    let (_, list) = get(&server, beta).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
    let (status, _) = merge(&server, &format!("{beta}/a"), &json!({"spec": {"size": 4}})).await;
    assert_eq!(status, 200);
    assert_eq!(get(&server, &format!("{WIDGETS}/a")).await.1["spec"]["size"], 4);
}

#[tokio::test]
async fn status_and_scale_are_subresources() {
    let server = with_widgets().await;
    post(&server, WIDGETS, &widget("a", 3)).await;
    let (_, body) =
        merge(&server, &format!("{WIDGETS}/a"), &json!({"status": {"phase": "Up"}, "spec": {"replicas": 2}}))
            .await;
    assert_eq!(body.get("status"), None);
    assert_eq!(body["metadata"]["generation"], 2);
    let change = json!({"status": {"phase": "Up", "replicas": 1}, "metadata": {"labels": {"x": "y"}}, "spec": {"size": 50}});
    let (_, body) = merge(&server, &format!("{WIDGETS}/a/status"), &change).await;
    assert_eq!((&body["status"]["phase"], &body["spec"]["size"]), (&json!("Up"), &json!(3)));
    assert_eq!(body["metadata"].get("labels"), None);
    assert_eq!(body["metadata"]["generation"], 2);
    let (_, scale) = get(&server, &format!("{WIDGETS}/a/scale")).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn update_requires_resource_version_and_strategic_patch_is_unsupported() {
    let server = with_widgets().await;
    post(&server, WIDGETS, &widget("a", 3)).await;
    let (status, body) = put(&server, &format!("{WIDGETS}/a"), &widget("a", 4)).await;
    assert_eq!(status, 422);
    assert_eq!(body["details"]["causes"][0]["field"], "metadata.resourceVersion");
    let strategic = "application/strategic-merge-patch+json";
    let (status, _) = send(&server, Method::PATCH, &format!("{WIDGETS}/a"), strategic, "{}").await;
    assert_eq!(status, 415);
}

#[tokio::test]
async fn selectable_fields_filter_lists() {
    let server = with_widgets().await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        let mut widget = widget(name, 1);
        widget["spec"]["color"] = json!(color);
        post(&server, WIDGETS, &widget).await;
    }
    let (_, list) = get(&server, &format!("{WIDGETS}?fieldSelector=spec.color%3Dblue")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["kind"], "Widget");
}

#[tokio::test]
async fn definition_is_removed_with_its_last_custom_resource() {
    let server = with_widgets().await;
    post(&server, WIDGETS, &widget("free", 1)).await;
    let mut held = widget("held", 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    post(&server, WIDGETS, &held).await;
    let (status, _) = delete(&server, &format!("{DEFINITIONS}/widgets.example.com"), "").await;
    assert_eq!(status, 200);
    assert_eq!(get(&server, &format!("{WIDGETS}/free")).await.0, 404);
    let (_, waiting) = get(&server, &format!("{DEFINITIONS}/widgets.example.com")).await;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    merge(&server, &format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(get(&server, &format!("{DEFINITIONS}/widgets.example.com")).await.0, 404);
    assert_eq!(get(&server, WIDGETS).await.0, 404);
}

#[tokio::test]
async fn invalid_definition_is_rejected_with_all_errors() {
    let server = server();
    let mut bad = definition();
    bad["metadata"]["name"] = json!("other.example.com");
    bad["spec"]["versions"][1]["storage"] = json!(true);
    let (status, body) = post(&server, DEFINITIONS, &bad).await;
    assert_eq!(status, 422);
    let fields: Vec<&str> = body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["metadata.name", "spec.versions", "status.storedVersions"]);
}

#[tokio::test]
async fn creates_are_rejected_while_the_definition_terminates() {
    let server = with_widgets().await;
    let mut held = widget("held", 1);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    post(&server, WIDGETS, &held).await;
    delete(&server, &format!("{DEFINITIONS}/widgets.example.com"), "").await;
    let (status, body) = post(&server, WIDGETS, &widget("new", 1)).await;
    assert_eq!(status, 405);
    assert_eq!(body["message"], "create not allowed while custom resource definition is terminating");
}

#[tokio::test]
async fn storage_version_can_change() {
    let server = with_widgets().await;
    post(&server, WIDGETS, &widget("old", 1)).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let (_, mut definition) = get(&server, &path).await;
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"][1]["storage"] = json!(true);
    let (status, body) = put(&server, &path, &definition).await;
    assert_eq!(status, 200, "{body}");
    post(&server, WIDGETS, &widget("young", 2)).await;
    for version in ["v1", "v1beta1"] {
        let (_, list) = get(&server, &format!("/apis/example.com/{version}/widgets")).await;
        let versions: Vec<_> =
            list["items"].as_array().unwrap().iter().map(|item| item["apiVersion"].clone()).collect();
        assert_eq!(versions, vec![json!(format!("example.com/{version}")); 2]);
    }
    let (_, definition) = get(&server, &path).await;
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v1beta1"]));
}
