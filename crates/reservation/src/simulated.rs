//! Speaks for the reservation pods of simulated nodes, in which nothing runs.
//!
//! A simulated node writes the devices it gives to a pod into the pod's status, as kubelets do. From there each
//! reservation pod's GPU is written to where the program inside would have written it.

use crate::{device, reported, write};
use kai_api::well_known::{label, label_value, name};
use kai_object as object;
use kai_runtime::api;
use kai_runtime::controller::{self, Action, Context, DynamicController};
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::kind::{self, Key, ResourceKind};
use kai_runtime::process::Process;
use serde_json::{Value, json};
use std::sync::Arc;

/// Which pods are reservation pods.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where they are.
    pub namespace: String,
    /// Their `app` label.
    pub app_label: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: name::RESOURCE_RESERVATION.to_owned(),
            app_label: label_value::RESOURCE_RESERVATION.to_owned(),
        }
    }
}

/// Runs for as long as it is wanted.
pub async fn run(mut process: Process, options: Options) {
    let query = format!("labelSelector={}%3D{}", label::APP, options.app_label);
    let watched = Informer::dynamic(kind::POD).query(query).trim(keep);
    let informers = Arc::new(Informers::dynamic_of([watched]));
    let context = Context::new(process.api.clone(), Arc::clone(&informers), process.clock);
    informers.start(&process.api, &process.health, &mut process.tasks);
    process.tasks.spawn(controller::run_dynamic(Simulated { namespace: options.namespace }, context));
    process.failed().await;
}

#[derive(Debug)]
struct Simulated {
    namespace: String,
}

impl DynamicController for Simulated {
    const NAME: &'static str = "simulated-reservations";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::POD]
    }

    fn map_to_keys(&self, _: &Informers, _: &ResourceKind, changed: &Value) -> Vec<Key> {
        let own = object::namespace(changed) == self.namespace;
        if own { vec![Key::of(changed)] } else { Vec::new() }
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let Some(pod) = context.informers.dynamic(&kind::POD).get(key) else {
            return Ok(Action::AwaitChange);
        };
        let running = object::str_at(&pod, "/status/phase") == "Running" && !object::is_deleting(&pod);
        if !running || reported(&pod).is_some() {
            return Ok(Action::AwaitChange);
        }
        match device::only(&device::by_status(&pod)) {
            Ok(uuid) => match write(&context.api, &pod, &uuid).await {
                Err(error) if error.is_not_found() => {}
                written => written?,
            },
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(pod = %key, error, "the reservation pod holds no GPU");
            }
        }
        Ok(Action::AwaitChange)
    }
}

/// Leaves what is read here.
fn keep(pod: &mut Value) {
    let metadata = pod.get("metadata").cloned().unwrap_or_default();
    let mut kept = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "status": {}});
    for field in ["name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "annotations"] {
        if let Some(value) = metadata.get(field) {
            kept["metadata"][field] = value.clone();
        }
    }
    for field in ["phase", "containerStatuses"] {
        if let Some(value) = pod["status"].get(field) {
            kept["status"][field] = value.clone();
        }
    }
    *pod = kept;
}
