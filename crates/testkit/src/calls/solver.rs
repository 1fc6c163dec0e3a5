//! The search for victims.

use super::{Adapter, Area};

pub(super) const AREA: Area = Area { name: "unit-solver", adapter, not_run: NOT_RUN };

const EVICTION: &str = "evicting actions are not part of this version";

const NOT_RUN: &[(&str, &str)] = &[
    ("common.FeasibleNodesForJob", EVICTION),
    ("common.MinimalJobRepresentatives.IsEasierToSchedule", EVICTION),
];

fn adapter(_function: &str) -> Option<Adapter> {
    None
}
