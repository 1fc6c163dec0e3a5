//! Reports the GPU of this machine as a reservation pod would: to a pod on an embedded API server.
//!
//! For machines with one NVIDIA GPU; elsewhere it says what is missing and fails.

#![expect(clippy::print_stdout, reason = "what it is for")]

use kai_api::well_known::annotation;
use kai_reservation::{DeviceSource, Options, report};
use kai_runtime::Key;
use kai_runtime::api::Api;
use kai_runtime::kind;
use kai_sim::Cluster;
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = trial().await else { return ExitCode::SUCCESS };
    println!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        println!("  because: {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}

async fn trial() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::builder().without_controllers().start().await?;
    let pod = Key::new("default", "gpu-reservation-0123456789abcdef");
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name},
        "spec": {"containers": [{"name": "resource-reservation", "image": "none"}]},
    });
    cluster.api().create_dynamic(&kind::POD, &pod.namespace, &object).await?;
    let api = Api::new(cluster.client("reservation"), "reservation");
    let options = Options { pod: pod.clone(), source: DeviceSource::Nvml };
    for time in ["first", "second"] {
        println!("{time} start: {}", report(&api, &options).await?);
    }
    let annotated = api.get_dynamic(&kind::POD, &pod).await?;
    println!(
        "{} = {}",
        annotation::RESERVED_GPU,
        annotated["metadata"]["annotations"][annotation::RESERVED_GPU]
    );
    Ok(())
}
