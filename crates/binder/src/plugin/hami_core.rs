//! `hamicore`: sets the GPU memory limit that HAMi-core enforces in the container.

use super::gpu_sharing;
use crate::bind_target::BindTarget;
use crate::error::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kai_api::well_known::{env, label};
use kai_runtime::api::Api;
use kube::ResourceExt as _;
use std::collections::BTreeMap;

/// Adds the limit to the capabilities config map of the container; none if the GPU memory of the node is unknown.
pub(crate) async fn pre_bind(api: &Api, target: &BindTarget, pod: &Pod, node: &Node) -> Result<()> {
    let memory = node.labels().get(label::GPU_MEMORY).map_or("", String::as_str);
    let Some(limit) = limit(memory, target.portion()) else { return Ok(()) };
    let maps = gpu_sharing::config_maps(pod)?;
    let data = BTreeMap::from([(env::CUDA_DEVICE_MEMORY_LIMIT.to_owned(), limit)]);
    gpu_sharing::write(api, pod, &maps.capabilities, data).await
}

/// The portion of the GPU memory in MiB, rounded down, in the format of HAMi-core.
fn limit(memory_mib: &str, portion: &str) -> Option<String> {
    let memory: i64 = memory_mib.parse().ok().filter(|memory| *memory > 0)?;
    let portion: f64 = portion.parse().ok().filter(|portion: &f64| portion.is_finite() && *portion > 0.0)?;
    let mib = (memory as f64 * portion).floor();
    (mib >= 1.0).then(|| format!("{mib:.0}m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_the_portion_of_the_memory() {
        let table = [
            ("81559", "0.50", Some("40779m")),
            ("4000", "0.25", Some("1000m")),
            ("", "0.50", None),
            ("many", "0.50", None),
            ("-5", "0.50", None),
            ("4000", "", None),
            ("4000", "NaN", None),
            ("4000", "-0.5", None),
            ("1", "0.50", None),
        ];
        for (memory, portion, expected) in table {
            assert_eq!(limit(memory, portion).as_deref(), expected, "{memory} {portion}");
        }
    }
}
