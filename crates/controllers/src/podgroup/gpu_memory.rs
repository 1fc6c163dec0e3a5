//! Memory of a node's GPUs, from its labels.

use kai_api::well_known::label;
use kai_units::Quantity;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the node has no label with the memory of its GPUs; hint: set `{}`", label::GPU_MEMORY)]
    Missing,
    #[error("the node has GPU memory labels of two vendors; hint: remove those of the other vendor")]
    Ambiguous,
    #[error("label `{label}` is not an amount of memory")]
    Malformed { label: String },
}

/// Memory of each GPU: in MiB for NVIDIA, in megabytes for AMD, as the labels of the vendors are.
pub fn read<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Result<i64, Error> {
    let (mut nvidia, mut amd) = (None, None);
    for (name, value) in labels {
        if name == label::GPU_MEMORY {
            nvidia = Some(value);
        } else if let Some(amount) = name.strip_prefix(label::AMD_GPU_MEMORY_PREFIX) {
            // The amount is a part of the label's name: `beta.amd.com/gpu.vram.64G`.
            amd = Some((name, amount.trim_start_matches('.')));
        }
    }
    let malformed = |label: &str| Error::Malformed { label: label.to_owned() };
    match (nvidia, amd) {
        (Some(mib), None) => mib.parse().map_err(|_| malformed(label::GPU_MEMORY)),
        (None, Some((name, amount))) => {
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
    fn memory_is_read_from_the_label_of_one_vendor() {
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
