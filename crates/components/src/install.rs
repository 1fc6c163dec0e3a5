//! The objects of an installation besides the components: custom resource definitions, namespaces, priority classes and
//! default queues, as KAI's chart creates them.

use anyhow::{Context, Result};
use kai_api::crds;
use kai_api::well_known::name::DEFAULT_QUEUE;
use kai_api::well_known::{name, priority_class};
use kai_runtime::api::Api;
use kai_runtime::{ResourceKind, kind};
use kai_scheduler::resources::QUEUE;
use serde_json::{Value, json};

/// Parent of the queue of pods that name none.
const PARENT_QUEUE: &str = "default-parent-queue";

/// An object to create.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub kind: ResourceKind,
    pub object: Value,
}

impl Manifest {
    pub fn new(kind: ResourceKind, object: Value) -> Self {
        Self { kind, object }
    }

    async fn ensure(&self, api: &Api) -> Result<()> {
        let created = api.ensure_dynamic(&self.kind, kai_object::namespace(&self.object), &self.object).await;
        created
            .with_context(|| format!("cannot create {} `{}`", self.kind.kind, kai_object::name(&self.object)))
    }
}

/// Creates what is missing. Default queues are created only in a cluster without queues.
pub async fn install(api: &Api) -> Result<()> {
    let accounts = [name::RESOURCE_RESERVATION, name::SCALE_ADJUST].map(|name| {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": name},
        });
        Manifest::new(kind::SERVICE_ACCOUNT, account)
    });
    for manifest in custom_resource_definitions()?
        .into_iter()
        .chain(namespaces())
        .chain(accounts)
        .chain(priority_classes())
    {
        manifest.ensure(api).await?;
    }
    let existing = api.list_dynamic(&QUEUE, "").await.context("cannot list the queues")?;
    if existing.items.is_empty() {
        for queue in default_queues() {
            queue.ensure(api).await?;
        }
    }
    Ok(())
}

pub async fn install_crds(api: &Api) -> Result<()> {
    for definition in custom_resource_definitions()? {
        definition.ensure(api).await?;
    }
    Ok(())
}

pub fn custom_resource_definitions() -> Result<Vec<Manifest>> {
    let definitions = crds::crds();
    let manifests = definitions.iter().map(|definition| {
        let object = serde_json::to_value(definition).context("a definition serialises")?;
        Ok(Manifest::new(kind::CUSTOM_RESOURCE_DEFINITION, object))
    });
    manifests.collect()
}

/// Namespaces of the components, of GPU reservation pods and of scale adjustment pods.
pub fn namespaces() -> impl Iterator<Item = Manifest> {
    [name::NAMESPACE, name::RESOURCE_RESERVATION, name::SCALE_ADJUST].into_iter().map(|name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Manifest::new(kind::NAMESPACE, namespace)
    })
}

/// The queue of pods that name none, and its parent.
pub fn default_queues() -> [Manifest; 2] {
    [queue(PARENT_QUEUE, None), queue(DEFAULT_QUEUE, Some(PARENT_QUEUE))]
        .map(|object| Manifest::new(QUEUE.clone(), object))
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

pub fn priority_classes() -> impl Iterator<Item = Manifest> {
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
        Manifest::new(kind::PRIORITY_CLASS, class)
    })
}
