//! GPUs of a pod: whole ones from its request, shares and MIG instances from annotations and resource names,
//! and the shared GPUs it sits on.

use super::amount::Totals;
use crate::finding::Report;
use crate::object::Pod;
use kai_api::well_known::{annotation, label, resource};
use kai_engine::input::{GpuRequest, Received, WHOLE_GPU};
use std::collections::BTreeSet;

/// GPUs a pod wants, and whether it asks in the old MIG annotation form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The request.
    pub gpu: GpuRequest,
    /// The old MIG annotation form; such pods are never placed.
    pub legacy_mig: bool,
}

/// Reads what a pod wants. `total` loses whole GPUs where an annotation asks for something else, and gains the
/// profiles of the old MIG form.
pub fn wanted<'a>(pod: &'a Pod, total: &mut Totals<'a>, report: &mut Report<'_>) -> Wanted {
    let mut gpu = match total.get(kai_engine::input::GPU) {
        Some(amount) => GpuRequest::Whole(u32::try_from(amount / WHOLE_GPU).unwrap_or(u32::MAX)),
        None => GpuRequest::None,
    };
    if let Some(shared) = shared_request(pod, report) {
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
    Wanted { gpu, legacy_mig }
}

/// A share of GPUs by annotation; a fraction wins over memory.
fn shared_request(pod: &Pod, report: &mut Report<'_>) -> Option<GpuRequest> {
    let fraction = read(pod, annotation::GPU_FRACTION, "a decimal above 0 and up to 1", report, |text| {
        text.parse().ok().filter(|portion: &f64| *portion > 0.0 && *portion <= 1.0)
    });
    let memory = read(pod, annotation::GPU_MEMORY, "a positive number of MiB", report, |text| {
        text.parse().ok().filter(|mib: &i64| *mib > 0)
    });
    let devices =
        read(pod, annotation::GPU_FRACTION_NUM_DEVICES, "a positive number of devices", report, |text| {
            text.parse().ok().filter(|devices: &u32| *devices > 0)
        });
    let devices = devices.unwrap_or(1);
    if let Some(portion) = fraction {
        // A share below half of a hundredth would count as nothing and yet hold memory.
        let hundredths = ((portion * 100.0).round() as u32).max(1);
        return Some(GpuRequest::Fraction { hundredths, devices });
    }
    memory.map(|mib| GpuRequest::Memory { mib, devices })
}

fn read<T>(
    pod: &Pod,
    name: &str,
    wanted: &str,
    report: &mut Report<'_>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = pod.metadata.annotation(name)?;
    let value = parse(text);
    if value.is_none() {
        report.add(
            format!("metadata.annotations[{name}]"),
            format!("`{text}` is not {wanted}, so the annotation has no effect"),
            format!("write {wanted}"),
        );
    }
    value
}

/// The shared GPUs that labels of a bound pod name: the plain label, then one label per device.
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

/// What kind of GPU a word says was received.
pub fn received(word: &str) -> Option<Received> {
    match word {
        kai_api::BindRequestSpec::REGULAR => Some(Received::Regular),
        kai_api::BindRequestSpec::FRACTION => Some(Received::Fraction),
        kai_api::BindRequestSpec::MIG_INSTANCE => Some(Received::Mig),
        _ => None,
    }
}
