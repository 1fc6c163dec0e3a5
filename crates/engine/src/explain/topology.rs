//! Messages of unsatisfied topology constraints: one per domain that is too small, and a summary.

use super::amount::{is_storage, number, significant, unit_of};
use super::{FitError, ReasonCode};
use crate::cluster::group::DEFAULT_POD_SET;
use crate::input::{self, Key};
use crate::resource::is_mig;
use crate::verdict::{DomainCapacity, Measured, TopologyReason, TopologyRejection};

pub(super) fn explain(rejection: &TopologyRejection, group: &Key) -> Vec<FitError<'static>> {
    let summed =
        |text: &str| vec![FitError::new(ReasonCode::PodSchedulingErrors, summary(rejection, group, text))];
    match &rejection.reason {
        TopologyReason::Unknown => vec![FitError::new(
            ReasonCode::PodSchedulingErrors,
            format!("Requested topology {} does not exist", rejection.topology),
        )],
        TopologyReason::BadLevel => summed(": the topology has no such level"),
        TopologyReason::TooSmall { measured: Measured::Whole(domain), .. } => {
            let place = if domain.is_empty() { "the cluster" } else { domain };
            summed(&format!(": not enough resources in {place} to allocate the job"))
        }
        TopologyReason::TooSmall { measured: Measured::Unlabelled(_), .. } => {
            summed(": not enough resources in the cluster to allocate the job")
        }
        TopologyReason::TooSmall { measured: Measured::Each(domains), wanted, .. } => {
            let mut all: Vec<FitError<'static>> =
                domains.iter().map(|domain| too_small(domain, *wanted, sub_group(rejection))).collect();
            all.extend(summed(""));
            all
        }
    }
}

fn summary(rejection: &TopologyRejection, group: &Key, text: &str) -> String {
    let sub_group = sub_group(rejection).map_or_else(String::new, |name| format!(", subgroup {name}"));
    format!(
        "topology {}, requirement {} couldn't be satisfied for job <{group}>{sub_group}{text}",
        rejection.topology, rejection.level
    )
}

/// The sub-group's name; `None` for the group itself and the default sub-group.
fn sub_group(rejection: &TopologyRejection) -> Option<&str> {
    let name = rejection.sub_group.as_str();
    (!name.is_empty() && name != DEFAULT_POD_SET).then_some(name)
}

fn too_small(capacity: &DomainCapacity, wanted: u32, sub_group: Option<&str>) -> FitError<'static> {
    let domain = &capacity.domain;
    let (messages, details): (Vec<String>, Vec<String>) = match capacity.pods {
        Some(pods) => {
            let text = format!("node-group {domain} can allocate only {pods} of {wanted} required pods");
            (vec![text.clone()], vec![text])
        }
        None => capacity.lacks.iter().map(|(name, wanted, free)| lack(domain, name, *wanted, *free)).unzip(),
    };
    let inside = sub_group.map_or_else(String::new, |name| format!("subgroup {name}: "));
    FitError {
        reason: ReasonCode::NotEnoughResources,
        detailed: format!("<{domain}>: {inside}{}", details.join(", ")),
        messages,
        numbers: None,
    }
}

/// A resource that a domain is short of: the short and the detailed message.
fn lack(domain: &str, name: &str, wanted: i64, free: i64) -> (String, String) {
    let (what, word) = match name {
        input::CPU => ("CPU cores", "resources"),
        input::MEMORY => ("memory", "resources"),
        input::GPU => ("GPUs", "resource"),
        other => (other, "resource"),
    };
    let amount = |value| match name {
        input::GPU => significant(value),
        input::CPU | input::MEMORY => number(value, unit_of(name)),
        _ if is_storage(name) => value.to_string(),
        _ => (value / unit_of(name)).to_string(),
    };
    let short = if is_mig(name) {
        format!("node-group(s) didn't have enough of mig profile: {name}")
    } else {
        format!("node-group(s) didn't have enough resources: {what}")
    };
    let (wanted, free) = (amount(wanted), amount(free));
    (short, format!("{domain} didn't have enough {word}: {what}, requested: {wanted}, available: {free}"))
}
