//! Says what a pod group requests and holds.
//!
//! Input: its pods with what other objects say about them, and whether it may be preempted. A pod counts while it is
//! pending or running; it holds what it requests from the moment it has a node. Whole resources follow
//! [`kai_api::request`]; parts of GPUs and devices of claims are added under their own names.

use crate::amounts::{Sum, Totals};
use kai_api::BindRequestSpec;
use kai_api::Pod;
use kai_api::pod_group::{PodGroupSpec, Preemptibility};
use kai_api::share::{Portion, Share, share};
use kai_api::well_known::{annotation, priority_class, resource};
use kai_units::Quantity;

/// A pod of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The pod.
    pub pod: Pod,
    /// Devices of its claims, by device class.
    pub devices: Vec<(String, i64)>,
    /// Memory of a GPU on its node, in MiB, where that is known and needed.
    pub gpu_memory: Option<i64>,
}

impl Member {
    /// Whether it counts at all.
    pub fn counts(&self) -> bool {
        self.pod.status.phase.is_empty() || self.pod.status.phase == "Pending" || self.runs()
    }

    /// Whether it counts and has no node.
    pub fn waits(&self) -> bool {
        self.counts() && !self.holds()
    }

    /// Whether it holds what it requests.
    fn holds(&self) -> bool {
        self.counts() && (self.runs() || !self.pod.spec.node_name.is_empty())
    }

    fn runs(&self) -> bool {
        self.pod.status.phase == "Running"
    }
}

/// Whether a group may be evicted for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// It may.
    Allowed,
    /// It may not.
    Excluded,
}

/// Whether a group may be evicted, by what it says or by the value of its priority class.
pub fn preemption(spec: &PodGroupSpec, class_value: Option<i32>) -> Preemption {
    match spec.preemptibility {
        Some(Preemptibility::Preemptible) => Preemption::Allowed,
        Some(Preemptibility::NonPreemptible) => Preemption::Excluded,
        None if class_value.unwrap_or(priority_class::FALLBACK_VALUE)
            < priority_class::NON_PREEMPTIBLE_FROM =>
        {
            Preemption::Allowed
        }
        None => Preemption::Excluded,
    }
}

/// What a group requests and holds.
pub(crate) fn totals(members: &[Member], preemption: Preemption) -> Totals {
    let mut totals = Totals::default();
    for member in members.iter().filter(|member| member.counts()) {
        add_whole(&mut totals.requested, member);
        let share = share(&member.pod, |_| {});
        if let Some(share) = share {
            add_wanted_share(&mut totals.requested, share);
        }
        if member.holds() {
            add_whole(&mut totals.allocated, member);
            if let Some(share) = share {
                add_held_share(&mut totals.allocated, share, member);
            }
        }
    }
    if preemption == Preemption::Excluded {
        totals.allocated_non_preemptible = totals.allocated.clone();
    }
    totals
}

fn add_whole(sum: &mut Sum, member: &Member) {
    for (name, amount) in kai_api::request(&member.pod).total.iter() {
        sum.add(name, amount);
    }
    for (class, count) in &member.devices {
        sum.add(class, Quantity::from_units(*count));
    }
}

fn add_wanted_share(sum: &mut Sum, share: Share) {
    match share.portion {
        Portion::Fraction(part) => sum.add(resource::NVIDIA_GPU, in_thousandths(part, share.devices)),
        Portion::Memory(mib) => {
            let all = mib.saturating_mul(i64::from(share.devices));
            sum.add(resource::GPU_MEMORY, Quantity::from_units(all));
        }
    }
}

/// A part of a GPU is held once the binder has said that it was given as one.
fn add_held_share(sum: &mut Sum, share: Share, member: &Member) {
    let received = member.pod.metadata.annotation(annotation::RECEIVED_RESOURCE_TYPE);
    if received != Some(BindRequestSpec::FRACTION) {
        return;
    }
    let part = match (share.portion, member.gpu_memory) {
        (Portion::Fraction(part), _) => part,
        (Portion::Memory(mib), Some(all)) if all > 0 => mib as f64 / all as f64,
        (Portion::Memory(_), _) => return,
    };
    sum.add(resource::NVIDIA_GPU, in_thousandths(part, share.devices));
}

fn in_thousandths(part: f64, devices: u32) -> Quantity {
    Quantity::from_milli((part * f64::from(devices) * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests;
