//! Compacts custom resources when they are stored.
//!
//! A compacted object round-trips: times have the precision of their text form, and fields that no rule reads are dropped,
//! so that a change of them is no change of the object.

use super::{BindRequest, PodGroup, Queue, Topology};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

/// Drops metadata that no rule reads.
pub(super) trait Compact {
    fn compact(&mut self) {}
}

/// `managedFields` alone is often larger than the rest of an object.
pub(super) fn compact_meta(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.self_link = None;
    meta.resource_version = None;
    meta.generation = None;
    cut(&mut meta.creation_timestamp, 1_000);
    cut(&mut meta.deletion_timestamp, 1_000_000_000);
    for empty in [&mut meta.labels, &mut meta.annotations] {
        if empty.as_ref().is_some_and(std::collections::BTreeMap::is_empty) {
            *empty = None;
        }
    }
}

impl Compact for Queue {
    fn compact(&mut self) {
        self.status = None;
    }
}

impl Compact for PodGroup {
    fn compact(&mut self) {
        let Some(status) = &mut self.status else { return };
        status.conditions = Vec::new();
        status.resources_status = None;
        for condition in &mut status.scheduling_conditions {
            cut(&mut condition.last_transition_time, 1_000_000_000);
        }
        if status.scheduling_conditions.is_empty() {
            self.status = None;
        }
    }
}

impl Compact for BindRequest {
    fn compact(&mut self) {
        let claims = self.spec.resource_claim_allocations.iter_mut().map(|claim| &mut claim.allocation);
        let extended =
            self.spec.extended_resource_claim_allocation.iter_mut().map(|claim| &mut claim.allocation);
        for allocation in claims.chain(extended).flatten() {
            allocation.allocation_timestamp = None;
        }
    }
}

impl Compact for Topology {}

/// Truncates a time to a multiple of this many nanoseconds.
fn cut(time: &mut Option<Time>, step: i128) {
    if let Some(given) = time {
        let nanos = given.0.as_nanosecond();
        given.0 = Timestamp::from_nanosecond(nanos - nanos.rem_euclid(step)).unwrap_or(given.0);
    }
}
