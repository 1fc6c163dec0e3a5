//! Says what a pod group requests and holds.
//!
//! Input: its pods with what other objects say about them, and whether it may be preempted. A pod counts while it is
//! pending or running; it holds what it requests from the moment it has a node. Whole resources follow
//! [`kai_api::request()`]; parts of GPUs and devices of claims are added under their own names.

use super::claim;
use crate::amounts::{Sum, Totals};
use kai_api::pod_group::Preemptibility;
use kai_api::share::{Portion, Share, share};
use kai_api::well_known::{annotation, priority_class, resource};
use kai_api::{BindRequestSpec, Pod};
use kai_units::Quantity;

/// How a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for a node.
    Waits,
    /// It holds what it requests.
    Holds,
    /// Not at all, or no longer.
    Over,
}

impl State {
    fn of(pod: &Pod) -> Self {
        match &*pod.status.phase {
            "Pending" | "" if pod.spec.node_name.is_empty() => Self::Waits,
            "Running" | "Pending" | "" => Self::Holds,
            _ => Self::Over,
        }
    }
}

/// A pod of a group, as far as it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Whether and how it counts.
    pub state: State,
    /// The node it is on.
    pub node: Box<str>,
    /// The claims on devices that it uses.
    pub claims: Box<[Box<str>]>,
    request: Sum,
    share: Option<Share>,
    is_shared: bool,
}

impl Member {
    /// A pod as it counts.
    pub fn read(pod: &Pod) -> Self {
        let mut request = Sum::default();
        let state = State::of(pod);
        if state == State::Over {
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

    /// Whether the memory of its node's GPUs says what it holds.
    pub fn needs_memory(&self) -> bool {
        !self.node.is_empty() && matches!(self.share, Some(Share { portion: Portion::Memory(_), .. }))
    }
}

/// What other objects say about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around<'a> {
    /// Devices of its claims, by device class.
    pub devices: Vec<(&'a str, i64)>,
    /// Memory of a GPU on its node, in MiB, where that is known.
    pub gpu_memory: Option<i64>,
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
pub fn preemption(said: Option<Preemptibility>, class_value: Option<i32>) -> Preemption {
    let is_low = class_value.unwrap_or(priority_class::FALLBACK_VALUE) < priority_class::NON_PREEMPTIBLE_FROM;
    let is_allowed = said.map_or(is_low, |said| said == Preemptibility::Preemptible);
    if is_allowed { Preemption::Allowed } else { Preemption::Excluded }
}

/// What a group requests and holds.
pub(crate) fn totals<'a>(
    members: impl Iterator<Item = (&'a Member, Around<'a>)>,
    preemption: Preemption,
) -> Totals {
    let mut totals = Totals::default();
    for (member, around) in members.filter(|(member, _)| member.state != State::Over) {
        add_whole(&mut totals.requested, member, &around);
        if let Some(share) = member.share {
            add_wanted_share(&mut totals.requested, share);
        }
        if member.state == State::Holds {
            add_whole(&mut totals.allocated, member, &around);
            add_held_share(&mut totals.allocated, member, &around);
        }
    }
    if preemption == Preemption::Excluded {
        totals.allocated_non_preemptible = totals.allocated.clone();
    }
    totals
}

fn add_whole(sum: &mut Sum, member: &Member, around: &Around<'_>) {
    sum.add_all(&member.request);
    for (class, count) in &around.devices {
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
fn add_held_share(sum: &mut Sum, member: &Member, around: &Around<'_>) {
    let Some(share) = member.share.filter(|_| member.is_shared) else { return };
    let part = match (share.portion, around.gpu_memory) {
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
