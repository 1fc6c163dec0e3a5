//! Built-in admission plugins and in-process webhooks.

use crate::{config_map, delete, get, merge, pod, post, server};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::post as on_post;
use base64::Engine as _;
use kai_apiserver::ApiServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
/// The host of the in-process webhook service.
const HOST: &str = "hooks.default.svc";

/// Serves webhooks whose response depends on their path.
fn with_hooks() -> ApiServer {
    let server = server();
    server.core().webhooks.serve(HOST, Router::new().route("/{answer}", on_post(answer)));
    server
}

async fn answer(Path(wanted): Path<String>, body: Bytes) -> axum::response::Response {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    let mut patch = |operations: Value| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
        response["patch"] = json!(encoded);
        response["patchType"] = json!("JSONPatch");
    };
    match wanted.as_str() {
        "deny" => {
            response =
                json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "no"}});
        }
        "count" => {
            let count = review["request"]["object"]["data"]["count"].as_str().unwrap_or("0");
            let count = count.parse::<u32>().unwrap() + 1;
            patch(json!([{"op": "add", "path": "/data/count", "value": count.to_string()}]));
        }
        "limit" => patch(json!([
            {"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"cpu": 2, "memory": "1.5Gi"}},
        ])),
        "show" => {
            let request = &review["request"];
            let shown = json!([request["operation"], request["subResource"], request["object"]["kind"]]);
            let message = shown.to_string();
            response = json!({"uid": request["uid"], "allowed": false, "status": {"message": message}});
        }
        "hang" => tokio::time::sleep(Duration::from_mins(1)).await,
        _ => {}
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    review.to_string().into_response()
}

fn hook(name: &str, path: &str, resources: &[&str]) -> Value {
    json!({
        "name": format!("{name}.hooks.test"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "hooks", "namespace": "default", "path": path}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": resources}],
    })
}

async fn install(server: &ApiServer, phase: &str, hooks: Value) {
    let kind =
        if phase == "mutating" { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hooks"}, "webhooks": hooks,
    });
    let (status, answer) = post(server, &format!("{HOOKS}/{phase}webhookconfigurations"), &body).await;
    assert_eq!(status, 201, "{answer}");
}

#[tokio::test]
async fn service_webhook_is_called_in_process_until_deleted() {
    let server = with_hooks();
    install(&server, "validating", json!([hook("deny", "/deny", &["configmaps"])])).await;
    let (status, body) = post(&server, MAPS, &config_map("a")).await;
    assert_eq!(status, 400);
    assert_eq!(body["message"], "admission webhook \"deny.hooks.test\" denied the request: no");
    let path = format!("{HOOKS}/validatingwebhookconfigurations/hooks");
    assert_eq!(delete(&server, &path, "").await.0, 200, "webhooks are not called for webhook configurations");
    assert_eq!(post(&server, MAPS, &config_map("a")).await.0, 201);
}

#[tokio::test]
async fn patched_object_is_defaulted() {
    let server = with_hooks();
    install(&server, "mutating", json!([hook("limit", "/limit", &["pods"])])).await;
    let (status, body) = post(&server, PODS, &pod("p")).await;
    assert_eq!(status, 201, "{body}");
    let amounts = json!({"cpu": "2", "memory": "1536Mi"});
    assert_eq!(body["spec"]["containers"][0]["resources"], json!({"limits": amounts, "requests": amounts}));
    assert_eq!(body["status"]["qosClass"], "Guaranteed");
}

#[tokio::test]
async fn webhook_is_reinvoked_only_if_needed() {
    let server = with_hooks();
    let mut first = hook("first", "/count", &["configmaps"]);
    first["reinvocationPolicy"] = json!("IfNeeded");
    let second = hook("second", "/count", &["configmaps"]);
    install(&server, "mutating", json!([first, second])).await;
    let (_, body) = post(&server, MAPS, &config_map("a")).await;
    assert_eq!(body["data"]["count"], "3", "the first, the second, and the first again");
}

#[tokio::test]
async fn rules_selectors_and_match_conditions_select_requests() {
    let server = with_hooks();
    let mut labelled = hook("labelled", "/deny", &["configmaps"]);
    labelled["objectSelector"] = json!({"matchLabels": {"hook": "yes"}});
    let mut elsewhere = hook("elsewhere", "/deny", &["configmaps"]);
    elsewhere["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-public"}});
    let mut conditional = hook("conditional", "/deny", &["configmaps"]);
    conditional["matchConditions"] =
        json!([{"name": "big", "expression": "request.operation == 'CREATE' && object.data.a == 'big'"}]);
    let mut cluster = hook("cluster", "/deny", &["*"]);
    cluster["rules"][0]["scope"] = json!("Cluster");
    cluster["rules"][0]["operations"] = json!(["DELETE"]);
    install(&server, "validating", json!([labelled, elsewhere, conditional, cluster])).await;
    assert_eq!(post(&server, MAPS, &config_map("a")).await.0, 201);
    assert_eq!(post(&server, "/api/v1/namespaces/kube-public/configmaps", &config_map("a")).await.0, 400);
    let mut big = config_map("b");
    big["data"]["a"] = json!("big");
    assert_eq!(post(&server, MAPS, &big).await.0, 400);
    let labels = json!({"metadata": {"labels": {"hook": "yes"}}});
    assert_eq!(merge(&server, &format!("{MAPS}/a"), &labels).await.0, 400);
    assert_eq!(delete(&server, &format!("{MAPS}/a"), "").await.0, 200);
}

#[tokio::test]
async fn subresource_review_has_the_kind_of_its_body() {
    let server = with_hooks();
    install(&server, "validating", json!([hook("show", "/show", &["pods/binding", "pods/eviction"])])).await;
    assert_eq!(post(&server, PODS, &pod("p")).await.0, 201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let (_, body) = post(&server, &format!("{PODS}/p/binding"), &binding).await;
    assert!(body["message"].as_str().unwrap().ends_with("[\"CREATE\",\"binding\",\"Binding\"]"), "{body}");
    let eviction = json!({"metadata": {"name": "p"}});
    let (_, body) = post(&server, &format!("{PODS}/p/eviction"), &eviction).await;
    assert!(body["message"].as_str().unwrap().ends_with("[\"CREATE\",\"eviction\",\"Eviction\"]"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn webhook_timeout_follows_the_failure_policy() {
    let server = with_hooks();
    let mut hanging = hook("hang", "/hang", &["configmaps"]);
    hanging["timeoutSeconds"] = json!(5);
    let mut ignored = hook("ignored", "/hang", &["secrets"]);
    ignored["failurePolicy"] = json!("Ignore");
    install(&server, "validating", json!([hanging, ignored])).await;
    let (status, body) = post(&server, MAPS, &config_map("a")).await;
    assert_eq!(status, 500);
    assert_eq!(
        body["message"],
        "Internal error occurred: failed calling webhook \"hang.hooks.test\": failed to call webhook: Post \"https://hooks.default.svc:443/hang?timeout=5s\": context deadline exceeded"
    );
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
    let (status, body) = post(&server, "/api/v1/namespaces/default/secrets", &secret).await;
    assert_eq!((status.as_u16(), &body["data"]["a"]), (201, &json!("Yg==")));
}

/// Forwards and counts connections.
async fn counting(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                // Either side may close the connection.
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, count)
}

#[tokio::test]
async fn webhook_connection_is_reused() {
    let webhook = kai_kubetest::webhook::Webhook::start().await.unwrap();
    let to = webhook.url().strip_prefix("https://").unwrap().parse().unwrap();
    let (address, connections) = counting(to).await;
    let server = server();
    let mut allow = hook("allow", "/allow", &["configmaps"]);
    allow["clientConfig"] = json!({"url": format!("https://{address}/allow"), "caBundle": webhook.bundle()});
    install(&server, "validating", json!([allow])).await;
    for number in 0..20 {
        let (status, body) = post(&server, MAPS, &config_map(&format!("m{number}"))).await;
        assert_eq!(status, 201, "{body}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let both: Vec<Value> = (0..8).map(|number| config_map(&format!("n{number}"))).collect();
    let both = both.iter().map(|map| post(&server, MAPS, map));
    let answers = futures::future::join_all(both).await;
    assert!(answers.iter().all(|(status, _)| *status == 201), "{answers:?}");
    assert!(connections.load(Ordering::SeqCst) <= 8, "as many as there are calls at once");
}

#[tokio::test]
async fn unknown_webhook_service_is_reported() {
    let server = server();
    install(&server, "validating", json!([hook("lost", "/x", &["configmaps"])])).await;
    let (_, body) = post(&server, MAPS, &config_map("a")).await;
    assert!(body["message"].as_str().unwrap().ends_with("service \"hooks\" not found"), "{body}");
}

#[tokio::test]
async fn pod_gets_service_account_priority_and_tolerations() {
    let server = server();
    let class = json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"});
    assert_eq!(post(&server, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.0, 201);
    let mut wanted = pod("p");
    wanted["spec"]["priorityClassName"] = json!("high");
    let (_, body) = post(&server, PODS, &wanted).await;
    let spec = &body["spec"];
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(7), &json!("Never")));
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(mount["name"], spec["volumes"][0]["name"]);
    wanted["metadata"]["name"] = json!("q");
    wanted["spec"]["serviceAccountName"] = json!("missing");
    assert_eq!(post(&server, PODS, &wanted).await.0, 403);
}

#[tokio::test]
async fn claim_gets_the_default_storage_class() {
    let server = server();
    for (name, default) in [("slow", "false"), ("fast", "true")] {
        let class = json!({
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": "test/x",
        });
        assert_eq!(post(&server, "/apis/storage.k8s.io/v1/storageclasses", &class).await.0, 201);
    }
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let (_, body) = post(&server, claims, &claim).await;
    assert_eq!(body["spec"]["storageClassName"], "fast");
    assert_eq!(body["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(get(&server, &format!("{claims}/c")).await.1["status"]["phase"], "Pending");
}
