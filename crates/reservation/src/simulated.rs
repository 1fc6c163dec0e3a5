//! Reports the GPUs of reservation pods in a simulated cluster, where no containers run.
//!
//! A simulated kubelet writes the devices of a pod to `status.containerStatuses`, as real ones do. This controller copies
//! the GPU from there to the annotation of each reservation pod.

use crate::{annotate, device, reported};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::well_known::{label, label_value, name};
use kai_runtime::Key;
use kai_runtime::api;
use kai_runtime::controller::{self, Action, Context, Controller, Watch};
use kai_runtime::informer::{Informer, Informers};
use kai_runtime::process::Process;
use std::sync::Arc;

/// Which pods are reservation pods.
#[derive(Clone, Debug)]
pub struct Options {
    pub namespace: String,
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

/// Runs the controller. Never returns.
pub async fn run(mut process: Process, options: Options) {
    let query = format!("labelSelector={}%3D{}", label::APP, options.app_label);
    let informers = Arc::new(Informers::default().with(Informer::<Pod>::typed().query(query).trim(trim)));
    let context = Context::of(&process, Arc::clone(&informers));
    informers.start(&process.api, &process.health, &mut process.tasks);
    process.tasks.spawn(controller::run(Simulated { namespace: options.namespace }, context));
    process.failed().await;
}

#[derive(Debug)]
struct Simulated {
    namespace: String,
}

impl Controller for Simulated {
    const NAME: &'static str = "simulated-reservations";

    fn watches(&self) -> Vec<Watch<Self>> {
        vec![Watch::typed::<Pod>(|controller, _, pod| {
            let key = kai_runtime::key_of_typed(pod);
            if key.namespace == controller.namespace { vec![Arc::new(key)] } else { Vec::new() }
        })]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let Some(pod) = context.informers.get::<Pod>(key) else { return Ok(Action::AwaitChange) };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let running = phase == Some("Running") && pod.metadata.deletion_timestamp.is_none();
        if !running || reported(&pod).is_some() {
            return Ok(Action::AwaitChange);
        }
        match device::single(&device::from_status(&pod)) {
            Ok(uuid) => match annotate(&context.api, &pod, &uuid).await {
                Err(error) if error.is_not_found() => {}
                annotated => annotated?,
            },
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(pod = %key, error, "reservation pod without a GPU");
            }
        }
        Ok(Action::AwaitChange)
    }
}

/// Removes the fields that are not read here.
fn trim(pod: &mut Pod) {
    let full = std::mem::take(&mut pod.metadata);
    pod.metadata = ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        deletion_timestamp: full.deletion_timestamp,
        annotations: full.annotations,
        ..ObjectMeta::default()
    };
    pod.spec = Some(PodSpec::default());
    if let Some(full) = pod.status.take() {
        let PodStatus { phase, container_statuses, .. } = full;
        pod.status = Some(PodStatus { phase, container_statuses, ..PodStatus::default() });
    }
}
