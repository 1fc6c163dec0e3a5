//! What an operator has to withstand: others who change and delete its objects, settings without sense, missing rights, a
//! second operator. It repairs, never writes an object more than once a second, and its conditions say what is wrong.

use crate::cluster::{Cluster, NAMESPACE};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const OPERATOR: &str = "system:serviceaccount:kai-scheduler:kai-operator";
const LIMIT: Duration = Duration::from_mins(1);
/// Time in which a Deployment is edited, and in which an undisturbed operator is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// The audit log of the API server.
pub(crate) struct Audit<'a>(pub(crate) &'a Path);

impl Audit<'_> {
    /// Position of the end.
    fn end(&self) -> usize {
        std::fs::read(self.0).map(|log| log.len()).unwrap_or_default()
    }

    /// Accepted writes of the operator since a position, by object. Its own events and lease do not count.
    fn writes_since(&self, start: usize) -> BTreeMap<String, usize> {
        let log = std::fs::read(self.0).unwrap_or_default();
        let text = String::from_utf8_lossy(&log[start.min(log.len())..]).into_owned();
        let mut writes = BTreeMap::new();
        for line in text.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let writes_it = matches!(event["verb"].as_str(), Some("create" | "update" | "patch" | "delete"));
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            if event["user"]["username"] != OPERATOR || !writes_it || ["events", "leases"].contains(&resource)
            {
                continue;
            }
            let name = event["objectRef"]["name"].as_str().unwrap_or_default();
            *writes.entry(format!("{resource}/{name}")).or_default() += 1;
        }
        writes
    }
}

fn condition(cluster: &Cluster, kind: &str, name: &str, type_: &str) -> (String, String) {
    let object = cluster.get(&[kind, name]);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// Nothing is written while nothing changes.
pub(crate) async fn operator_at_rest_writes_nothing(audit: &Audit<'_>) {
    let start = audit.end();
    tokio::time::sleep(WATCHED).await;
    assert_eq!(audit.writes_since(start), BTreeMap::new());
}

/// Deleted objects come back: the certificate of the webhooks, a Service, a ConfigMap, a webhook configuration.
pub(crate) async fn deleted_objects_come_back(cluster: &Cluster) {
    let objects = [
        ("secret", "kai-admission-webhook-tls-secret"),
        ("service", "admission"),
        ("configmap", "kai-scheduler-default"),
        ("validatingwebhookconfiguration", "validating-kai-admission"),
    ];
    for (kind, name) in objects {
        let before = cluster.get(&[kind, name, "--namespace", NAMESPACE])["metadata"]["uid"].clone();
        cluster.kubectl(&["delete", kind, name, "--namespace", NAMESPACE]);
        let back = |cluster: &Cluster| {
            let found = cluster.try_kubectl(&[
                "get",
                kind,
                name,
                "--namespace",
                NAMESPACE,
                "-o=jsonpath={.metadata.uid}",
            ]);
            found.is_ok_and(|uid| !uid.is_empty() && uid != before)
        };
        cluster.until(&format!("{kind} {name} is restored"), LIMIT, back).await;
    }
}

/// Repeated edits of a Deployment are reverted at most once a second, and reported by an event.
pub(crate) async fn edits_are_reverted_once_a_second(cluster: &Cluster, audit: &Audit<'_>) {
    let start = audit.end();
    let watch = kai_clock::Stopwatch::start();
    let mut edits = 0;
    while watch.elapsed() < WATCHED {
        let patch = format!("{{\"spec\":{{\"replicas\":{}}}}}", 2 + edits % 3);
        cluster.kubectl(&["patch", "deployment", "pod-grouper", "--namespace", NAMESPACE, "--patch", &patch]);
        edits += 1;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let seconds = watch.elapsed().as_secs() as usize;
    let writes = audit.writes_since(start);
    let of_deployment = writes.get("deployments/pod-grouper").copied().unwrap_or_default();
    assert!(of_deployment >= 1, "{writes:?}");
    assert!(of_deployment <= seconds + 1, "{of_deployment} writes in {seconds} s");
    let restored = |cluster: &Cluster| {
        cluster.get(&["deployment", "pod-grouper", "--namespace", NAMESPACE])["spec"]["replicas"] == 1
    };
    cluster.until("the Deployment is restored", LIMIT, restored).await;
    let events =
        cluster.kubectl(&["get", "events", "--all-namespaces", "--field-selector=reason=ChangeReverted"]);
    assert!(events.contains("pod-grouper"), "{events}");
}

/// A shard whose settings make no sense says so and keeps its scheduler; the others are not affected.
pub(crate) async fn nonsense_is_reported_and_the_last_good_state_stays(cluster: &Cluster) {
    let before =
        cluster.get(&["deployment", "kai-scheduler-default", "--namespace", NAMESPACE])["spec"].clone();
    let patch = |depth: &str| {
        let patch = format!("{{\"spec\":{{\"queueDepthPerAction\":{depth}}}}}");
        cluster.kubectl(&["patch", "schedulingshard", "default", "--type=merge", "--patch", &patch]);
    };
    patch("{\"no-such-action\":10}");
    let reported = |cluster: &Cluster| {
        let (ready, _) = condition(cluster, "schedulingshard", "default", "Ready");
        let (_, why) = condition(cluster, "schedulingshard", "default", "Deployed");
        ready == "False" && why.contains("no-such-action")
    };
    cluster.until("the condition names the setting", LIMIT, reported).await;
    let after =
        cluster.get(&["deployment", "kai-scheduler-default", "--namespace", NAMESPACE])["spec"].clone();
    assert_eq!(before, after, "the last good state stays");
    assert_eq!(condition(cluster, "config", "kai-config", "Ready").0, "True");
    patch("null");
    cluster.wait(&["schedulingshard/default", "--for=condition=Ready"]);
}

/// Without a right the installation says which one is missing, and continues when it is granted.
pub(crate) async fn missing_right_is_reported(cluster: &Cluster) {
    let mut role = cluster.get(&["role", "kai-operator", "--namespace", NAMESPACE]);
    role["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let mut lesser = role.clone();
    for rule in lesser["rules"].as_array_mut().into_iter().flatten() {
        if rule["resources"].as_array().is_some_and(|names| names.contains(&Value::from("services"))) {
            rule["verbs"] = serde_json::json!(["list", "watch"]);
        }
    }
    cluster.apply(&lesser.to_string());
    cluster.kubectl(&["delete", "service", "binder", "--namespace", NAMESPACE]);
    let reported = |cluster: &Cluster| {
        let (failed, why) = condition(cluster, "config", "kai-config", "Reconciling");
        failed == "True" && why.contains("services") && why.contains("forbidden")
    };
    cluster.until("the condition names the missing right", LIMIT, reported).await;
    cluster.apply(&role.to_string());
    let back = |cluster: &Cluster| {
        cluster.try_kubectl(&["get", "service", "binder", "--namespace", NAMESPACE]).is_ok()
    };
    cluster.until("the Service is restored", LIMIT * 2, back).await;
    cluster.wait(&["config/kai-config", "--for=condition=Ready"]);
}

/// Two operators, neither of which leads, agree with each other.
pub(crate) async fn two_operators_agree(cluster: &Cluster, audit: &Audit<'_>) {
    cluster.kubectl(&["scale", "deployment", "kai-operator", "--replicas=2", "--namespace", NAMESPACE]);
    cluster.kubectl(&[
        "rollout",
        "status",
        "deployment/kai-operator",
        "--namespace",
        NAMESPACE,
        "--timeout=120s",
    ]);
    cluster.wait(&["config/kai-config", "--for=condition=Ready"]);
    operator_at_rest_writes_nothing(audit).await;
    cluster.kubectl(&["scale", "deployment", "kai-operator", "--replicas=1", "--namespace", NAMESPACE]);
}
