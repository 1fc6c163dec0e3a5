//! What a cluster has before anybody uses it: definitions, queues and priority classes, as KAI's chart installs them.

use anyhow::{Context, Result};
use kai_api::crds;
use kai_api::well_known::name::DEFAULT_QUEUE;
use kai_api::well_known::{name, priority_class};
use kai_runtime::api::Api;
use kai_runtime::{Kind, kind};
use kai_scheduler::resources::QUEUE;
use serde_json::{Value, json};

/// The queue above the one that serves whoever names none.
const PARENT_QUEUE: &str = "default-parent-queue";

/// An object that a cluster has.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) object: Value,
}

impl Piece {
    pub(super) fn new(kind: Kind, object: Value) -> Self {
        Self { kind, object }
    }

    async fn ensure(&self, api: &Api) -> Result<()> {
        let made = api.ensure(&self.kind, kai_object::namespace(&self.object), &self.object).await;
        made.with_context(|| format!("cannot make {} `{}`", self.kind.kind, kai_object::name(&self.object)))
    }
}

/// Makes whatever is missing. Queues are made only where there is none: a loaded cluster has its own.
pub(crate) async fn install(api: &Api) -> Result<()> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name::RESOURCE_RESERVATION, "namespace": name::RESOURCE_RESERVATION},
    });
    let account = [Piece::new(kind::SERVICE_ACCOUNT, account)];
    for piece in definitions()?.into_iter().chain(namespaces()).chain(account).chain(priority_classes()) {
        piece.ensure(api).await?;
    }
    let there = api.list(&QUEUE, "").await.context("cannot list the queues")?;
    if there.items.is_empty() {
        for queue in queues() {
            queue.ensure(api).await?;
        }
    }
    Ok(())
}

/// Makes the custom resource definitions.
pub(crate) async fn install_definitions(api: &Api) -> Result<()> {
    for definition in definitions()? {
        definition.ensure(api).await?;
    }
    Ok(())
}

/// The custom resource definitions.
pub(super) fn definitions() -> Result<Vec<Piece>> {
    let definitions = crds::crds();
    let pieces = definitions.iter().map(|definition| {
        let object = serde_json::to_value(definition).context("a definition has only text keys")?;
        Ok(Piece::new(kind::DEFINITION, object))
    });
    pieces.collect()
}

/// The namespaces of components.
pub(super) fn namespaces() -> impl Iterator<Item = Piece> {
    [name::NAMESPACE, name::RESOURCE_RESERVATION, name::SCALE_ADJUST].into_iter().map(|name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Piece::new(kind::NAMESPACE, namespace)
    })
}

/// The queues of whoever names none.
pub(super) fn queues() -> [Piece; 2] {
    [queue(PARENT_QUEUE, None), queue(DEFAULT_QUEUE, Some(PARENT_QUEUE))]
        .map(|object| Piece::new(QUEUE, object))
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

/// The priority classes.
pub(super) fn priority_classes() -> impl Iterator<Item = Piece> {
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
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "globalDefault": false, "description": description,
        });
        Piece::new(kind::PRIORITY_CLASS, class)
    })
}
