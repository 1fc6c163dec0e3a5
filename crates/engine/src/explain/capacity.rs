//! Messages and numbers of exceeded queue limits and quotas.

use super::amount::{exact, number, unit};
use crate::input::WHOLE_GPU;
use crate::resource::PerResource;
use crate::verdict::{CapacityRule, QueueExcess, QueueNumbers, QueueResource};
use kai_units::Quantity;
use std::collections::BTreeMap;

/// Quantities by resource name, as in status fields.
pub type Quantities = BTreeMap<&'static str, Quantity>;

/// The numbers of the exceeded queue, as in `details.queueDetails`.
#[derive(Clone, Debug)]
pub struct QueueDetails {
    /// Object name of the queue.
    pub name: String,
    /// `queueRequestedResources`.
    pub requested: Quantities,
    /// `queueDeservedResources`.
    pub deserved: Quantities,
    /// `queueAllocatedResources`.
    pub allocated: Quantities,
    /// `queueAllocatedNonPreemptibleResources`.
    pub allocated_non_preemptible: Quantities,
    /// `queueResourceLimits`.
    pub limits: Quantities,
    /// `podGroupRequestedResources`.
    pub group_requested: Quantities,
    /// `podGroupRequestedNonPreemptibleResources`.
    pub group_requested_non_preemptible: Quantities,
}

impl QueueDetails {
    /// Converts the numbers to quantities.
    pub fn of(numbers: &QueueNumbers) -> Self {
        Self {
            name: numbers.name.clone(),
            requested: amounts(&numbers.requested),
            deserved: bounds(&numbers.quota),
            allocated: amounts(&numbers.allocated),
            allocated_non_preemptible: amounts(&numbers.allocated_non_preemptible),
            limits: bounds(&numbers.limit),
            group_requested: amounts(&numbers.group_requested),
            group_requested_non_preemptible: amounts(&numbers.group_requested_non_preemptible),
        }
    }
}

fn amounts(amounts: &PerResource<i64>) -> Quantities {
    bounds(&amounts.map(Some))
}

/// Unlimited CPU and memory are -1 base unit and unlimited GPUs are 0, as in KAI.
fn bounds(bounds: &PerResource<Option<i64>>) -> Quantities {
    BTreeMap::from([
        ("cpu", Quantity::from_milli(bounds[QueueResource::Cpu].unwrap_or(-1))),
        ("memory", Quantity::from_units(bounds[QueueResource::Memory].unwrap_or(-1))),
        ("nvidia.com/gpu", gpus(bounds[QueueResource::Gpu].unwrap_or(0))),
    ])
}

/// Fractions below one GPU as milli-quantities, rounded to hundredths; otherwise whole devices.
fn gpus(millionths: i64) -> Quantity {
    let hundredth = WHOLE_GPU / 100;
    let hundredths = (millionths + hundredth / 2) / hundredth;
    if (0..100).contains(&hundredths) {
        Quantity::from_milli(hundredths * 10)
    } else {
        Quantity::from_units(millionths.max(WHOLE_GPU) / WHOLE_GPU)
    }
}

/// The condition message of an exceeded bound.
pub fn message(excess: &QueueExcess, rule: CapacityRule) -> String {
    match rule {
        CapacityRule::Limit => over_limit(excess),
        CapacityRule::NonPreemptibleQuota => over_quota(excess),
    }
}

fn over_limit(excess: &QueueExcess) -> String {
    let (what, measure) = match excess.resource {
        QueueResource::Cpu => ("CPU cores", "cores"),
        QueueResource::Memory => ("memory", "GB"),
        QueueResource::Gpu => ("GPUs", "GPUs"),
    };
    let amount = |value| number(value, unit(excess.resource));
    format!(
        "{} quota has reached the allowable limit of {what}. Limit is {} {measure}, currently {} {measure} \
         allocated and workload requested {} {measure}",
        excess.queue,
        amount(excess.bound),
        amount(excess.used),
        amount(excess.requested)
    )
}

fn over_quota(excess: &QueueExcess) -> String {
    let (what, measure) = match excess.resource {
        QueueResource::Cpu => ("CPU cores", "cores"),
        QueueResource::Memory => ("GB memory", "GB"),
        QueueResource::Gpu => ("GPUs", "GPUs"),
    };
    let unit = unit(excess.resource);
    let requested = match excess.resource {
        QueueResource::Gpu => exact(excess.requested, unit),
        QueueResource::Cpu | QueueResource::Memory => number(excess.requested, unit),
    };
    format!(
        "Non-preemptible workload is over quota. Workload requested {requested} {what}, but {} quota is {} \
         {measure}, while {} {measure} are already allocated for non-preemptible pods. Use a preemptible workload \
         to go over quota.",
        excess.queue,
        number(excess.bound, unit),
        number(excess.used, unit)
    )
}
