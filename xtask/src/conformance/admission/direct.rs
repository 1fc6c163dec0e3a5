//! Cases that were posted to a process.

use super::case::{Case, Input};
use super::{compare, json_patch, without_random};
use crate::conformance::server::{Server, send};
use anyhow::{Context, Result, bail};
use axum::Router;
use axum::http::Method;
use base64::Engine as _;
use kai_admission::{pod, podgroup, queue, topology};
use serde_json::{Value, json};

pub(super) async fn run(case: &Case) -> Result<Vec<String>> {
    let Case { input, expect, .. } = case;
    let router = router(input).await?;
    let mut differences = Vec::new();
    let object = &input.object;
    if let Some(path) = &input.path {
        validate(&router, path, input, object, "validate", expect, &mut differences).await?;
        return Ok(differences);
    }
    let mut mutated = object.clone();
    if let Some(expected) = expect.get("mutate") {
        let answer = ask(&router, pod::MUTATE_PATH, input, object).await?;
        if let Some(patch) = &answer.patch {
            json_patch::apply(&mut mutated, patch)?;
        }
        let changed = &mutated != object;
        compare(&mut differences, "mutate: allowed", &expected["allowed"], &json!(answer.allowed));
        compare(&mut differences, "mutate: code", &expected["code"], &json!(answer.code));
        if answer.allowed {
            compare(&mut differences, "mutate: changed", &expected["changed"], &json!(changed));
        }
        if changed && let Some(expected) = expected.get("object") {
            compare(&mut differences, "mutate: object", expected, &without_random(&mutated));
        }
    }
    for (key, object) in [("validate", &mutated), ("validateUnmutated", object)] {
        validate(&router, pod::VALIDATE_PATH, input, object, key, expect, &mut differences).await?;
    }
    Ok(differences)
}

async fn validate(
    router: &Router,
    path: &str,
    input: &Input,
    object: &Value,
    key: &str,
    expect: &Value,
    differences: &mut Vec<String>,
) -> Result<()> {
    let Some(expected) = expect.get(key) else { return Ok(()) };
    let answer = ask(router, path, input, object).await?;
    let warnings = expected.get("warnings").and_then(Value::as_array).map_or(0, Vec::len);
    compare(differences, &format!("{key}: allowed"), &expected["allowed"], &json!(answer.allowed));
    compare(differences, &format!("{key}: code"), &expected["code"], &json!(answer.code));
    compare(differences, &format!("{key}: number of warnings"), &json!(warnings), &json!(answer.warnings));
    Ok(())
}

/// The router of the process that serves the webhook.
async fn router(input: &Input) -> Result<Router> {
    Ok(match input.component.as_str() {
        "admission" => pod::router(input.pod_options()?).merge(topology::router()),
        "podgroupcontroller" => podgroup::router(),
        "queuecontroller" => {
            let server = Server::start(&["Queue"]).await?;
            for queue in queues(input) {
                server.create("/apis/scheduling.run.ai/v2/queues", &queue).await?;
            }
            queue::router(server.api(), input.quota_validation()?)
        }
        other => bail!("component `{other}` is unknown"),
    })
}

/// The queues of the cluster, and the children that the status of the queue in question lists besides.
pub(super) fn queues(input: &Input) -> Vec<Value> {
    let mut queues: Vec<Value> = input.cluster.clone();
    for of in [&input.object, &input.old_object] {
        let parent = kai_object::name(of);
        let listed = of.pointer("/status/childQueues").and_then(Value::as_array).into_iter().flatten();
        for child in listed.filter_map(Value::as_str) {
            if !queues.iter().any(|queue| kai_object::name(queue) == child) {
                queues.push(json!({
                    "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": child},
                    "spec": {"parentQueue": parent, "resources": {}},
                }));
            }
        }
    }
    queues
}

struct Review {
    allowed: bool,
    code: u64,
    warnings: usize,
    patch: Option<Value>,
}

async fn ask(router: &Router, path: &str, input: &Input, object: &Value) -> Result<Review> {
    let of = if object.is_null() { &input.old_object } else { object };
    let namespace = input.namespace.clone().unwrap_or_else(|| kai_object::namespace(of).to_owned());
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": input.operation,
            "name": kai_object::name(of), "namespace": namespace, "object": object, "oldObject": input.old_object,
        },
    });
    let answer = send(router.clone(), Method::POST, path, "application/json", &review).await?;
    let response = &answer.body["response"];
    let allowed = response["allowed"].as_bool().with_context(|| format!("no answer: {}", answer.body))?;
    let code = response.pointer("/status/code").and_then(Value::as_u64).unwrap_or(200);
    let patch = response.get("patch").and_then(Value::as_str);
    let decode = |text| -> Result<Value> {
        Ok(serde_json::from_slice(&base64::engine::general_purpose::STANDARD.decode(text)?)?)
    };
    Ok(Review {
        allowed,
        code,
        warnings: response.get("warnings").and_then(Value::as_array).map_or(0, Vec::len),
        patch: patch.map(decode).transpose()?,
    })
}
