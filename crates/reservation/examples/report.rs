//! Reports the GPU of this machine as a reservation pod does, to a pod on an embedded API server.
//!
//! Needs a machine with exactly one NVIDIA GPU; fails with a hint elsewhere.

#![expect(clippy::print_stdout, reason = "an example prints its result")]

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
    let Err(error) = report_twice().await else { return ExitCode::SUCCESS };
    println!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        println!("  caused by: {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}

async fn report_twice() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::builder().without_controllers().start().await?;
    let pod = Key::new("default", "gpu-reservation-0123456789abcdef");
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name},
        "spec": {"containers": [{"name": "resource-reservation", "image": "none"}]},
    });
    cluster.api().create_dynamic(&kind::POD, &pod.namespace, &object).await?;
    let api = Api::new(cluster.client("reservation"), "reservation");
    let options = Options { pod: pod.clone(), source: DeviceSource::Nvml };
    for run in ["first", "second"] {
        println!("{run} run: {}", report(&api, &options).await?);
    }
    let annotated = api.get_dynamic(&kind::POD, &pod).await?;
    println!(
        "{} = {}",
        annotation::RESERVED_GPU,
        annotated["metadata"]["annotations"][annotation::RESERVED_GPU]
    );
    Ok(())
}
