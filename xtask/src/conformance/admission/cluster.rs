//! Cases through an API server: selectors, match conditions, rules, definitions and webhooks together.

use super::case::{Case, Input, Step};
use super::{compare, without_random};
use crate::conformance::server::Server;
use anyhow::{Result, bail};
use axum::http::Method;
use kai_admission::registration::{self, Endpoint, PodScope};
use kai_admission::{pod, podgroup, queue, topology};
use kai_api::well_known::name::NAMESPACE;
use serde_json::{Value, json};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

pub(super) async fn run(case: &Case) -> Result<Vec<String>> {
    let Case { input, expect, note, .. } = case;
    let kinds: Vec<&str> = input.steps.iter().map(kind).collect();
    let server = Server::start(&kinds).await?;
    prepare(&server, input, note).await?;
    let expected = expect.get("steps").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut differences = Vec::new();
    for (index, (step, expected)) in input.steps.iter().zip(expected).enumerate() {
        let found = perform(&server, input, step).await?;
        let what = |part: &str| format!("step {index}: {part}");
        for part in ["allowed", "code"] {
            compare(&mut differences, &what(part), &expected[part], &found[part]);
        }
        // The API server's own recommendation about host names is not part of the webhooks.
        let warnings = expected.get("warnings").and_then(Value::as_array).into_iter().flatten();
        let is_own = |text: &&Value| text.as_str().is_some_and(|text| text.starts_with("metadata.name: "));
        let warnings = warnings.filter(|text| !is_own(text)).count();
        compare(&mut differences, &what("number of warnings"), &json!(warnings), &found["warnings"]);
        if let Some(stored) = expected.get("stored") {
            compare(&mut differences, &what("stored"), stored, &found["stored"]);
        }
        if found["allowed"] == false && !differences.is_empty() {
            differences.push(format!("step {index}: message {}", found["message"]));
        }
    }
    Ok(differences)
}

async fn prepare(server: &Server, input: &Input, note: &str) -> Result<()> {
    let namespace = input.namespace.clone().unwrap_or_default();
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": input.namespace_labels},
    });
    if namespace != "kube-system" {
        server.create("/api/v1/namespaces", &object).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        server.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await?;
    }
    if !note.contains("RuntimeClass nvidia does not exist") {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia",
        });
        server.create("/apis/node.k8s.io/v1/runtimeclasses", &class).await?;
    }
    let webhooks = &server.api_server.core().webhooks;
    let host = |service: &str| format!("{service}.{NAMESPACE}.svc");
    let pods = pod::router(input.pod_options()?);
    webhooks.serve(&host("admission"), pods.merge(topology::router()));
    let queues = queue::router(server.api(), input.quota_validation()?);
    webhooks.serve(&host("queue-controller"), queues);
    webhooks.serve(&host("podgroup-controller"), podgroup::router());
    let of = |name: &str| Endpoint::Service { namespace: NAMESPACE.to_owned(), name: name.to_owned() };
    let scope = scope(&input.operator_config_case)?;
    let mutating = registration::mutating(&of("admission"), "", &scope);
    server.create(&format!("{WEBHOOKS}/mutatingwebhookconfigurations"), &mutating).await?;
    for configuration in [
        registration::validating(&of("admission"), "", &scope),
        registration::queues(&of("queue-controller"), ""),
        registration::pod_groups(&of("podgroup-controller"), ""),
    ] {
        server.create(&format!("{WEBHOOKS}/validatingwebhookconfigurations"), &configuration).await?;
    }
    Ok(())
}

/// The pods that the webhooks see under the operator configurations that cases refer to.
fn scope(operator_case: &str) -> Result<PodScope> {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Ok(match operator_case {
        "default" => PodScope::default(),
        "admission-flags" => PodScope { queue_label: Some("team/queue".to_owned()), ..PodScope::default() },
        "selectors" => PodScope {
            namespace_labels: labels(&[("team", "a"), ("env", "prod")]),
            pod_labels: labels(&[("kai", "yes")]),
            ..PodScope::default()
        },
        other => bail!("operator configuration `{other}` is unknown"),
    })
}

/// The path of all objects of a kind.
fn collection(kind: &str, namespace: &str) -> Result<String> {
    Ok(match kind {
        "Pod" => format!("/api/v1/namespaces/{namespace}/pods"),
        "PodGroup" => format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups"),
        "Queue" => "/apis/scheduling.run.ai/v2/queues".to_owned(),
        "SchedulingShard" => "/apis/kai.scheduler/v1/schedulingshards".to_owned(),
        "Topology" => "/apis/kai.scheduler/v1alpha1/topologies".to_owned(),
        other => bail!("kind `{other}` is unknown"),
    })
}

fn kind(step: &Step) -> &str {
    if step.kind.is_empty() { kai_object::kind(&step.object) } else { &step.kind }
}

async fn perform(server: &Server, input: &Input, step: &Step) -> Result<Value> {
    let namespace = input.namespace.as_deref().unwrap_or_default();
    let kind = kind(step);
    let all = collection(kind, namespace)?;
    let one = format!("{all}/{}", step.name);
    let answer = match step.op.as_str() {
        "CREATE" => {
            let mut object = step.object.clone();
            if all.contains("/namespaces/") {
                kai_object::set_meta(&mut object, "namespace", Some(Value::from(namespace)));
            }
            server.send(Method::POST, &all, "application/json", &object).await?
        }
        "UPDATE" => server.send(Method::PATCH, &one, "application/merge-patch+json", &step.patch).await?,
        "DELETE" => server.send(Method::DELETE, &one, "application/json", &Value::Null).await?,
        other => bail!("operation `{other}` is unknown"),
    };
    Ok(json!({
        "allowed": answer.is_success(), "code": answer.code, "warnings": answer.warnings,
        "message": answer.body.get("message"), "stored": stored(kind, &answer.body),
    }))
}

/// The part of a stored object that cases contain.
fn stored(kind: &str, object: &Value) -> Value {
    if kind != "Pod" {
        return json!({"spec": object.get("spec")});
    }
    let list = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let containers = |pointer: &str| -> Vec<Value> {
        let of = |container: Value| {
            let part = |field: &str| container.get(field).cloned().unwrap_or_else(|| json!([]));
            json!({"name": container["name"], "env": part("env"), "envFrom": part("envFrom")})
        };
        list(pointer).into_iter().map(of).collect()
    };
    // Cases were recorded without tokens of service accounts.
    let is_token = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    let names = list("/spec/volumes").into_iter().map(|volume| volume["name"].clone());
    let volumes: Vec<Value> = names.filter(|name| !is_token(name)).collect();
    without_random(&json!({
        "annotations": object.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({})),
        "runtimeClassName": object.pointer("/spec/runtimeClassName"),
        "containers": containers("/spec/containers"),
        "initContainers": containers("/spec/initContainers"),
        "volumes": volumes,
    }))
}
