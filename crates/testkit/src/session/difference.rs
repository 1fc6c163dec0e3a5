//! Which intended difference explains a case: the first rule over its input that holds.
//!
//! A failing case counts as a difference only if the audit finds no violation, too.

pub use kai_migrate::rules::scheduling::{DIFFERENCES, Facts};

/// The first difference whose predicate holds.
pub fn explain(facts: &Facts<'_>) -> Option<&'static str> {
    DIFFERENCES.iter().find(|difference| (difference.holds)(facts)).map(|difference| difference.id)
}
