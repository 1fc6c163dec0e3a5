//! Reads the memory of a node's GPUs from its labels.

use kai_api::well_known::label;
use kai_units::Quantity;
use serde_json::Value;

/// Why the memory of a node's GPUs is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No label tells it.
    #[error("no label of the node tells the memory of its GPUs; hint: `{}` does", label::GPU_MEMORY)]
    Missing,
    /// Labels of two vendors tell it.
    #[error(
        "labels of two vendors tell the memory of the node's GPUs; hint: remove those of the other vendor"
    )]
    Ambiguous,
    /// A label tells nonsense.
    #[error("label `{label}` tells no amount of memory")]
    Malformed {
        /// Which.
        label: String,
    },
}

/// Whether a label tells something here.
pub fn is_read(name: &str) -> bool {
    name == label::GPU_MEMORY || name.starts_with(label::AMD_GPU_MEMORY_PREFIX)
}

/// Memory of each GPU of a node: in MiB for NVIDIA, in millions of bytes for AMD, as the labels have it.
pub fn of_node(node: &Value) -> Result<i64, Error> {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let nvidia = labels.and_then(|labels| labels.get(label::GPU_MEMORY)).and_then(Value::as_str);
    let mut names = labels.into_iter().flat_map(serde_json::Map::keys);
    let amd = names.find(|name| name.starts_with(label::AMD_GPU_MEMORY_PREFIX));
    let malformed = |label: &str| Error::Malformed { label: label.to_owned() };
    match (nvidia, amd) {
        (Some(mib), None) => mib.parse().map_err(|_| malformed(label::GPU_MEMORY)),
        (None, Some(name)) => {
            // The amount is a part of the label's name: `beta.amd.com/gpu.vram.64G`.
            let amount = name[label::AMD_GPU_MEMORY_PREFIX.len()..].trim_start_matches('.');
            let bytes: Quantity = amount.parse().map_err(|_| malformed(name))?;
            Ok(bytes.units() / 1_000_000)
        }
        (Some(_), Some(_)) => Err(Error::Ambiguous),
        (None, None) => Err(Error::Missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_vendor_tells_it() {
        let amd = "beta.amd.com/gpu.vram.64G";
        let cases = [
            (json!({"nvidia.com/gpu.memory": "4000"}), Ok(4000)),
            (json!({amd: "1"}), Ok(64_000)),
            (json!({"nvidia.com/gpu.memory": "4000", amd: "1"}), Err(Error::Ambiguous)),
            (json!({"other": "x"}), Err(Error::Missing)),
            (
                json!({"nvidia.com/gpu.memory": "much"}),
                Err(Error::Malformed { label: "nvidia.com/gpu.memory".to_owned() }),
            ),
        ];
        for (labels, expected) in cases {
            assert_eq!(of_node(&json!({"metadata": {"labels": labels}})), expected);
        }
    }
}
