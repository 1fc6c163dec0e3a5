//! `hamicore`: tells HAMi-core, which runs in the container, how much GPU memory it may use.

use super::gpu_sharing;
use crate::bind_target::BindTarget;
use crate::error::Result;
use kai_api::well_known::{env, label};
use kai_object as object;
use kai_runtime::api::Api;
use serde_json::{Value, json};

/// Adds the limit to what the container may know of its GPUs; nothing where the node's memory is not known.
pub(crate) async fn prepare(api: &Api, target: &BindTarget, pod: &Value, node: &Value) -> Result<()> {
    let labels = object::meta(node, "labels");
    let memory = labels.and_then(|labels| labels.get(label::GPU_MEMORY)).and_then(Value::as_str);
    let Some(limit) = limit(memory.unwrap_or_default(), &target.portion) else { return Ok(()) };
    let maps = gpu_sharing::config_maps(pod)?;
    gpu_sharing::write(api, pod, &maps.capabilities, &json!({env::CUDA_DEVICE_MEMORY_LIMIT: limit})).await
}

/// The part of a GPU's memory in MiB, rounded down, as HAMi-core reads it.
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
    fn the_limit_is_the_part_of_the_memory() {
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
        for (memory, portion, wanted) in table {
            assert_eq!(limit(memory, portion).as_deref(), wanted, "{memory} {portion}");
        }
    }
}
