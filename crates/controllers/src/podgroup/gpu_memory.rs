//! Reads the memory of a node's GPUs from its labels.

use kai_api::well_known::label;
use kai_units::Quantity;

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

/// Memory of each GPU of a node with these labels: in MiB for NVIDIA, in millions of bytes for AMD, as labels have it.
pub fn read<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Result<i64, Error> {
    let (mut nvidia, mut amd) = (None, None);
    for (name, value) in labels {
        if name == label::GPU_MEMORY {
            nvidia = Some(value);
        } else if name.starts_with(label::AMD_GPU_MEMORY_PREFIX) {
            amd = Some(name);
        }
    }
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

    #[test]
    fn one_vendor_tells_it() {
        let (nvidia, amd) = ("nvidia.com/gpu.memory", "beta.amd.com/gpu.vram.64G");
        let cases = [
            (vec![(nvidia, "4000")], Ok(4000)),
            (vec![(amd, "1")], Ok(64_000)),
            (vec![(nvidia, "4000"), (amd, "1")], Err(Error::Ambiguous)),
            (vec![("other", "x")], Err(Error::Missing)),
            (vec![(nvidia, "much")], Err(Error::Malformed { label: nvidia.to_owned() })),
        ];
        for (labels, expected) in cases {
            assert_eq!(read(labels.iter().copied()), expected, "{labels:?}");
        }
    }
}
