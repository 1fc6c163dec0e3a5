//! The program inside a reservation pod: it says which GPU the pod holds, and holds it by being there.
//!
//! The binder cannot know which GPU a node gives to a pod; only somebody inside the pod sees it. [`run`] is that
//! somebody. Where nodes are simulated nobody is inside, and [`simulated`] speaks for all reservation pods at once.

pub mod device;
pub mod simulated;

pub use device::DeviceSource;

use kai_api::well_known::annotation;
use kai_object as object;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::kind::{self, Key};
use kai_runtime::process::Process;
use serde_json::{Value, json};
use std::time::Duration;

/// How long to wait before the pod is read again while its node has not said what it gave it.
const PAUSE: Duration = Duration::from_secs(1);

/// What the program is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pod it runs in: `POD_NAMESPACE` and `POD_NAME` of its environment.
    pub pod: Key,
    /// How it learns which GPU it has.
    pub source: DeviceSource,
}

/// Why the pod's GPU is not known. Whoever runs the pod starts it again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused something, or could not be reached.
    #[error("cannot {doing} pod `{pod}`\nhint: the pod's service account needs `get` and `patch` on pods")]
    Api {
        /// What.
        doing: &'static str,
        /// The pod.
        pod: Key,
        /// Why.
        #[source]
        source: api::Error,
    },
    /// The GPUs cannot be read.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A task of the process ended.
    #[error("the process stopped working")]
    Stopped,
}

/// Says which GPU the pod has, unless it has been said, and stays. Returns only when that cannot be done.
pub async fn run(mut process: Process, options: Options) -> Error {
    match report(&process.api, &options).await {
        Ok(uuid) => tracing::info!(pod = %options.pod, uuid, "the GPU is reserved"),
        Err(error) => return error,
    }
    process.failed().await;
    Error::Stopped
}

/// Says which GPU the pod has, unless it has been said; the answer is what the pod says.
pub async fn report(api: &Api, options: &Options) -> Result<String, Error> {
    let read = |source| Error::Api { doing: "read", pod: options.pod.clone(), source };
    loop {
        let pod = api.get_dynamic(&kind::POD, &options.pod).await.map_err(read)?;
        if let Some(known) = reported(&pod) {
            return Ok(known.to_owned());
        }
        let uuid = match options.source {
            DeviceSource::Nvml => device::only(&device::by_nvml()?)?,
            DeviceSource::Status => match device::by_status(&pod) {
                devices if devices.is_empty() => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                devices => device::only(&devices)?,
            },
        };
        let written = write(api, &pod, &uuid).await;
        return written.map(|()| uuid).map_err(|source| Error::Api {
            doing: "annotate",
            pod: options.pod.clone(),
            source,
        });
    }
}

/// What the pod says about its GPU; said once, it stands, even if it is empty.
fn reported(pod: &Value) -> Option<&str> {
    object::meta(pod, "annotations")?.get(annotation::RESERVED_GPU)?.as_str()
}

async fn write(api: &Api, pod: &Value, uuid: &str) -> api::Result<()> {
    let patch =
        json!({"metadata": {"uid": object::uid(pod), "annotations": {annotation::RESERVED_GPU: uuid}}});
    api.patch_dynamic(&kind::POD, &Key::of(pod), Part::Main, &patch).await.map(|_| ())
}
