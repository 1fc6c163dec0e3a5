//! Requested and allocated resources of a pod group.
//!
//! Input: its pods with related objects, and its preemptibility. A pod is counted while it is pending or running; its
//! request is allocated once it has a node. Container resources follow [`kai_api::request()`]; GPU fractions and devices of
//! resource claims are added under their own names.

use super::claim;
use crate::amounts::{Sum, Totals};
use kai_api::pod_group::Preemptibility;
use kai_api::share::{Portion, Share, share};
use kai_api::well_known::{annotation, priority_class, resource};
use kai_api::{BindRequestSpec, Pod};
use kai_units::Quantity;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Without a node.
    Pending,
    /// With a node.
    Allocated,
    /// In a terminal or unknown phase.
    NotCounted,
}

impl State {
    fn of(pod: &Pod) -> Self {
        match &*pod.status.phase {
            "Pending" | "" if pod.spec.node_name.is_empty() => Self::Pending,
            "Running" | "Pending" | "" => Self::Allocated,
            _ => Self::NotCounted,
        }
    }
}

/// The counted fields of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub state: State,
    pub node: Box<str>,
    /// Names of its resource claims.
    pub claims: Box<[Box<str>]>,
    request: Sum,
    share: Option<Share>,
    is_shared: bool,
}

impl Member {
    pub fn read(pod: &Pod) -> Self {
        let mut request = Sum::default();
        let state = State::of(pod);
        if state == State::NotCounted {
            return Self {
                state,
                request,
                node: "".into(),
                claims: Box::default(),
                share: None,
                is_shared: false,
            };
        }
        for (name, amount) in kai_api::request(pod).total.iter() {
            request.add(name, amount);
        }
        let received = pod.metadata.annotation(annotation::RECEIVED_RESOURCE_TYPE);
        Self {
            state,
            node: (*pod.spec.node_name).into(),
            claims: claim::names(pod).map(Into::into).collect(),
            request,
            share: share(pod, |_| {}),
            is_shared: received == Some(BindRequestSpec::FRACTION),
        }
    }

    /// Whether its allocation depends on the memory of the GPUs of its node.
    pub fn needs_memory(&self) -> bool {
        !self.node.is_empty() && matches!(self.share, Some(Share { portion: Portion::Memory(_), .. }))
    }
}

/// Fields of other objects that a pod refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelatedObjects<'a> {
    /// Devices of its resource claims by device class.
    pub devices: Vec<(&'a str, i64)>,
    /// Memory of a GPU of its node in MiB, where known.
    pub gpu_memory: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    Allowed,
    Excluded,
}

/// Preemptibility of a group: explicit, or by the value of its priority class, as KAI derives it.
pub fn preemption(explicit: Option<Preemptibility>, class_value: Option<i32>) -> Preemption {
    let is_low = class_value.unwrap_or(priority_class::FALLBACK_VALUE) < priority_class::NON_PREEMPTIBLE_FROM;
    let is_allowed = explicit.map_or(is_low, |explicit| explicit == Preemptibility::Preemptible);
    if is_allowed { Preemption::Allowed } else { Preemption::Excluded }
}

pub(crate) fn totals<'a>(
    members: impl Iterator<Item = (&'a Member, RelatedObjects<'a>)>,
    preemption: Preemption,
) -> Totals {
    let mut totals = Totals::default();
    for (member, related) in members.filter(|(member, _)| member.state != State::NotCounted) {
        add_whole(&mut totals.requested, member, &related);
        if let Some(share) = member.share {
            add_requested_share(&mut totals.requested, share);
        }
        if member.state == State::Allocated {
            add_whole(&mut totals.allocated, member, &related);
            add_allocated_share(&mut totals.allocated, member, &related);
        }
    }
    if preemption == Preemption::Excluded {
        totals.allocated_non_preemptible = totals.allocated.clone();
    }
    totals
}

fn add_whole(sum: &mut Sum, member: &Member, related: &RelatedObjects<'_>) {
    sum.add_all(&member.request);
    for (class, count) in &related.devices {
        sum.add(class, Quantity::from_units(*count));
    }
}

fn add_requested_share(sum: &mut Sum, share: Share) {
    match share.portion {
        Portion::Fraction(part) => sum.add(resource::NVIDIA_GPU, in_thousandths(part, share.devices)),
        Portion::Memory(mib) => {
            let all = mib.saturating_mul(i64::from(share.devices));
            sum.add(resource::GPU_MEMORY, Quantity::from_units(all));
        }
    }
}

/// A GPU fraction is allocated once the binder has annotated the pod with the received resource type.
fn add_allocated_share(sum: &mut Sum, member: &Member, related: &RelatedObjects<'_>) {
    let Some(share) = member.share.filter(|_| member.is_shared) else { return };
    let part = match (share.portion, related.gpu_memory) {
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
