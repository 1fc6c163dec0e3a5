//! The program of a reservation pod: it reports the UUID of the pod's GPU in an annotation, and keeps the pod running.
//!
//! The kubelet chooses the GPU of a pod, and only a process inside the pod can see which one. [`run`] is that process.
//! In a simulated cluster no containers run; [`simulated`] reports the GPUs of all reservation pods there.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod device;
pub mod simulated;

pub use device::DeviceSource;

use k8s_openapi::api::core::v1::Pod;
use kai_api::well_known::annotation;
use kai_runtime::Key;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::process::Process;
use kube::ResourceExt as _;
use serde_json::json;
use std::time::Duration;

/// Poll interval while the kubelet has not reported the devices of the pod.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Options {
    /// The pod of the process: `POD_NAMESPACE` and `POD_NAME` of its environment.
    pub pod: Key,
    pub source: DeviceSource,
}

/// Why the GPU cannot be reported. The process exits and the kubelet restarts it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot {operation} pod `{pod}`\nhint: the pod's service account needs `get` and `patch` on pods"
    )]
    Api {
        operation: &'static str,
        pod: Key,
        #[source]
        source: api::Error,
    },
    #[error(transparent)]
    Device(#[from] device::Error),
    #[error("a task of the process ended")]
    Stopped,
}

/// Reports the GPU of the pod and keeps running. Returns only with an error.
pub async fn run(mut process: Process, options: Options) -> Error {
    match report(&process.api, &options).await {
        Ok(uuid) => tracing::info!(pod = %options.pod, uuid, "GPU reserved"),
        Err(error) => return error,
    }
    process.failed().await;
    Error::Stopped
}

/// Reports the GPU of the pod, unless it is reported already. Returns the reported UUID.
pub async fn report(api: &Api, options: &Options) -> Result<String, Error> {
    let failed = |operation| move |source| Error::Api { operation, pod: options.pod.clone(), source };
    loop {
        let pod = api.get::<Pod>(&options.pod).await.map_err(failed("read"))?;
        if let Some(known) = reported(&pod) {
            return Ok(known.to_owned());
        }
        let uuid = match options.source {
            DeviceSource::Nvml => device::single(&device::from_nvml()?)?,
            DeviceSource::Status => match device::from_status(&pod) {
                devices if devices.is_empty() => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                devices => device::single(&devices)?,
            },
        };
        return annotate(api, &pod, &uuid).await.map(|()| uuid).map_err(failed("annotate"));
    }
}

/// The reported UUID. A report is final, even an empty one.
fn reported(pod: &Pod) -> Option<&str> {
    pod.annotations().get(annotation::RESERVED_GPU).map(String::as_str)
}

async fn annotate(api: &Api, pod: &Pod, uuid: &str) -> api::Result<()> {
    let patch =
        json!({"metadata": {"uid": pod.metadata.uid, "annotations": {annotation::RESERVED_GPU: uuid}}});
    api.patch::<Pod>(&kai_runtime::key_of_typed(pod), Part::Main, &patch).await.map(|_| ())
}
