//! A topology constraint that cannot be met: one explanation per domain that is too small, and one that sums up.

use super::amount::{is_storage, number, significant, unit_of};
use super::{FitError, ReasonCode};
use crate::cluster::group::DEFAULT_POD_SET;
use crate::input::{self, Key};
use crate::resource::is_mig;
use crate::verdict::{DomainCapacity, Measured, TopologyReason, TopologyRejection};

/// The explanations of a miss.
pub(super) fn explain(miss: &TopologyRejection, group: &Key) -> Vec<FitError<'static>> {
    let summed =
        |words: &str| vec![FitError::new(ReasonCode::PodSchedulingErrors, summary(miss, group, words))];
    match &miss.reason {
        TopologyReason::Unknown => vec![FitError::new(
            ReasonCode::PodSchedulingErrors,
            format!("Requested topology {} does not exist", miss.topology),
        )],
        TopologyReason::BadLevel => summed(": the topology has no such level"),
        TopologyReason::TooSmall { measured: Measured::Whole(domain), .. } => {
            let place = if domain.is_empty() { "the cluster" } else { domain };
            summed(&format!(": not enough resources in {place} to allocate the job"))
        }
        TopologyReason::TooSmall { measured: Measured::Each(domains), wanted, .. } => {
            let mut all: Vec<FitError<'static>> =
                domains.iter().map(|domain| too_small(domain, *wanted, sub_group(miss))).collect();
            all.extend(summed(""));
            all
        }
    }
}

fn summary(miss: &TopologyRejection, group: &Key, words: &str) -> String {
    let sub_group = sub_group(miss).map_or_else(String::new, |name| format!(", subgroup {name}"));
    format!(
        "topology {}, requirement {} couldn't be satisfied for job <{group}>{sub_group}{words}",
        miss.topology, miss.level
    )
}

/// The sub-group's name; the group itself and the default sub-group go without.
fn sub_group(miss: &TopologyRejection) -> Option<&str> {
    let name = miss.sub_group.as_str();
    (!name.is_empty() && name != DEFAULT_POD_SET).then_some(name)
}

fn too_small(room: &DomainCapacity, wanted: u32, sub_group: Option<&str>) -> FitError<'static> {
    let domain = &room.domain;
    let (messages, details): (Vec<String>, Vec<String>) = match room.pods {
        Some(pods) => {
            let words = format!("node-group {domain} can allocate only {pods} of {wanted} required pods");
            (vec![words.clone()], vec![words])
        }
        None => room.lacks.iter().map(|(name, wanted, free)| lack(domain, name, *wanted, *free)).unzip(),
    };
    let inside = sub_group.map_or_else(String::new, |name| format!("subgroup {name}: "));
    FitError {
        reason: ReasonCode::NotEnoughResources,
        detailed: format!("<{domain}>: {inside}{}", details.join(", ")),
        messages,
        numbers: None,
    }
}

/// A resource of which a domain has too little, in short and with numbers.
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
