//! Validates Leases.

use super::checks::{Errors, not_negative, number, part};
use crate::field::{Error, Path};
use serde_json::Value;

pub(super) fn validate(lease: &Value) -> Errors {
    let mut errors = Vec::new();
    let path = Path::of("spec");
    let spec = part(lease, "spec");
    if let Some(seconds) = number(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    not_negative(&mut errors, spec, &path, &["leaseTransitions"]);
    errors
}
