//! What a cluster has before anybody uses it: definitions, queues and priority classes, as KAI's chart installs them.

use anyhow::{Context, Result};
use kai_api::crds;
use kai_api::well_known::name::DEFAULT_QUEUE;
use kai_api::well_known::{name, priority_class};
use kai_runtime::api::Api;
use kai_runtime::{Kind, kind};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The queue above the one that serves whoever names none.
const PARENT_QUEUE: &str = "default-parent-queue";

/// Queues.
const QUEUE: Kind = Kind {
    group: Cow::Borrowed("scheduling.run.ai"),
    version: Cow::Borrowed("v2"),
    kind: Cow::Borrowed("Queue"),
    plural: Cow::Borrowed("queues"),
    namespaced: false,
};

/// Makes whatever is missing. Queues are made only where there is none: a loaded cluster has its own.
pub(crate) async fn install(api: &Api) -> Result<()> {
    install_definitions(api).await?;
    for name in [name::NAMESPACE, name::RESOURCE_RESERVATION, name::SCALE_ADJUST] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ensure(api, &kind::NAMESPACE, "", &namespace).await?;
    }
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name::RESOURCE_RESERVATION},
    });
    ensure(api, &kind::SERVICE_ACCOUNT, name::RESOURCE_RESERVATION, &account).await?;
    for class in priority_classes() {
        ensure(api, &kind::PRIORITY_CLASS, "", &class).await?;
    }
    let there = api.list(&QUEUE, "").await.context("cannot list the queues")?;
    if there.items.is_empty() {
        ensure(api, &QUEUE, "", &queue(PARENT_QUEUE, None)).await?;
        ensure(api, &QUEUE, "", &queue(DEFAULT_QUEUE, Some(PARENT_QUEUE))).await?;
    }
    Ok(())
}

/// Makes the custom resource definitions.
pub(crate) async fn install_definitions(api: &Api) -> Result<()> {
    for definition in crds::crds() {
        let definition = serde_json::to_value(&definition).context("a definition has only text keys")?;
        ensure(api, &kind::DEFINITION, "", &definition).await?;
    }
    Ok(())
}

async fn ensure(api: &Api, kind: &Kind, namespace: &str, object: &Value) -> Result<()> {
    let made = api.ensure(kind, namespace, object).await;
    made.with_context(|| format!("cannot make {} `{}`", kind.kind, kai_object::name(object)))
}

fn queue(name: &str, parent: Option<&str>) -> Value {
    let share = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
    let mut queue = json!({
        "apiVersion": QUEUE.api_version(), "kind": "Queue", "metadata": {"name": name},
        "spec": {"resources": {"cpu": share, "gpu": share, "memory": share}},
    });
    if let Some(parent) = parent {
        queue["spec"]["parentQueue"] = Value::from(parent);
    }
    queue
}

fn priority_classes() -> impl Iterator<Item = Value> {
    let classes = [
        (priority_class::TRAIN, priority_class::TRAIN_VALUE, "training that can be interrupted"),
        (
            priority_class::BUILD_PREEMPTIBLE,
            priority_class::BUILD_PREEMPTIBLE_VALUE,
            "interactive work that can be interrupted",
        ),
        (priority_class::BUILD, priority_class::BUILD_VALUE, "interactive work that is not interrupted"),
        (priority_class::INFERENCE, priority_class::INFERENCE_VALUE, "serving that is not interrupted"),
    ];
    classes.into_iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "globalDefault": false, "description": description,
        })
    })
}
