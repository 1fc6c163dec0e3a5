//! Translates the GPU request of a pod: whole GPUs, shares and MIG instances, from resource names and annotations; and the
//! shared GPUs that a bound pod has.

use super::amount::Totals;
use crate::finding::{Report, quoted};
use crate::object::Pod;
use kai_api::share::{Portion, share};
use kai_api::well_known::{annotation, label, resource};
use kai_engine::input::{GpuRequest, Received, WHOLE_GPU};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuDemand {
    pub gpu: GpuRequest,
    /// The pod uses the legacy MIG annotations; such pods are never placed.
    pub legacy_mig: bool,
}

/// Reads the GPU request. Removes whole GPUs from `total` where an annotation replaces them, and adds the profiles of the
/// legacy MIG annotations.
pub fn demand<'a>(pod: &'a Pod, total: &mut Totals<'a>, report: &mut Report<'_>) -> GpuDemand {
    let mut gpu = match total.get(kai_engine::input::GPU) {
        Some(amount) => GpuRequest::Whole(u32::try_from(amount / WHOLE_GPU).unwrap_or(u32::MAX)),
        None => GpuRequest::None,
    };
    if let Some(shared) = shared_request(pod, report) {
        if matches!(gpu, GpuRequest::Whole(1..)) {
            report.error(
                format!("metadata.annotations[{}]", annotation_of(shared)),
                "the pod requests a GPU fraction and whole GPUs, so it is not placed",
                "remove the annotation, or the GPUs from the containers",
            );
        }
        gpu = shared;
        total.remove(kai_engine::input::GPU);
    }
    let mut legacy_mig = false;
    for (name, value) in
        pod.metadata.annotations.iter().filter(|(name, _)| name.starts_with(annotation::MIG_PREFIX))
    {
        legacy_mig = true;
        total.remove(kai_engine::input::GPU);
        total.add(name, value.parse::<i64>().unwrap_or(0).clamp(0, 1 << 20) * 1000);
    }
    if total.iter().any(|(name, _)| name.starts_with(resource::NVIDIA_MIG_PREFIX)) {
        gpu = GpuRequest::Mig;
    }
    GpuDemand { gpu, legacy_mig }
}

/// A GPU share that is requested by annotations.
fn shared_request(pod: &Pod, report: &mut Report<'_>) -> Option<GpuRequest> {
    let share = share(pod, |invalid| {
        report.error(
            format!("metadata.annotations[{}]", invalid.annotation),
            format!("{} is not {}, so the pod is not placed", quoted(invalid.text), invalid.wanted),
            format!("write {}, such as `{}`, or remove the annotation", invalid.wanted, invalid.example),
        );
    })?;
    let both = [annotation::GPU_FRACTION, annotation::GPU_MEMORY].map(|name| pod.metadata.annotation(name));
    if let (Portion::Fraction(_), [Some(_), Some(_)]) = (share.portion, both) {
        report.warn(
            format!("metadata.annotations[{}]", annotation::GPU_MEMORY),
            format!("`{}` is also set, so this annotation has no effect", annotation::GPU_FRACTION),
            "remove one of the two annotations",
        );
    }
    let devices = share.devices;
    Some(match share.portion {
        Portion::Fraction(portion) => {
            // A share below 0.005 would be rounded to 0 and still occupy memory.
            let hundredths = ((portion * 100.0).round() as u32).max(1);
            GpuRequest::Fraction { hundredths, devices }
        }
        Portion::Memory(mib) => GpuRequest::Memory { mib, devices },
    })
}

/// The annotation that requests a share.
fn annotation_of(share: GpuRequest) -> &'static str {
    match share {
        GpuRequest::Memory { .. } => annotation::GPU_MEMORY,
        GpuRequest::Fraction { .. } | GpuRequest::None | GpuRequest::Whole(_) | GpuRequest::Mig => {
            annotation::GPU_FRACTION
        }
    }
}

/// The shared GPUs in the labels of a bound pod: the plain label, then one label per device.
pub fn groups_from_labels(pod: &Pod) -> Vec<String> {
    if pod.metadata.labels.iter().all(|(key, _)| !key.starts_with(label::GPU_GROUP)) {
        return Vec::new();
    }
    let plain = pod.metadata.label(label::GPU_GROUP);
    let per_device = pod.metadata.labels.iter().filter(|(key, _)| key.starts_with(label::GPU_GROUP_PREFIX));
    let mut seen = BTreeSet::new();
    let named = plain.into_iter().chain(per_device.map(|(_, group)| &**group));
    named.filter(|group| seen.insert(*group)).map(str::to_owned).collect()
}

/// Parses `receivedResourceType`.
pub fn received(word: &str) -> Option<Received> {
    match word {
        kai_api::BindRequestSpec::REGULAR => Some(Received::Regular),
        kai_api::BindRequestSpec::FRACTION => Some(Received::Fraction),
        kai_api::BindRequestSpec::MIG_INSTANCE => Some(Received::Mig),
        _ => None,
    }
}
