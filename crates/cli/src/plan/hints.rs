//! `--hints`: what would run pending groups, each found by planning with it.

use crate::render::section;
use crate::view::why::hint_lines;
use anyhow::Result;
use kai_cache::Store;
use kai_engine::explain::is_correction;
use kai_engine::verdict::Verdict;
use kai_engine::{ClusterState, Cycle, Outcome, Policy};
use kai_view::Names;
use kai_view::hints::HintsView;
use kai_whatif::{Model, hints};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;

/// Maximum groups that hints are searched for: a search plans many times.
const GROUPS_MAX: usize = 20;

/// The hints for pending groups, in their order.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct PlanHints {
    groups: Vec<GroupHints>,
    /// Further pending groups, for which no hints were searched.
    omitted: usize,
}

#[derive(Debug, JsonSchema, Serialize)]
struct GroupHints {
    group: String,
    #[serde(flatten)]
    hints: HintsView,
}

impl PlanHints {
    /// Searches hints. Store and cluster are as before afterwards.
    pub(super) fn find(
        store: &mut Store,
        cluster: &mut ClusterState,
        policy: &Policy,
        cycle: Cycle,
        outcome: &Outcome,
    ) -> Self {
        let pending = outcome.verdicts.iter().filter(|verdict| verdict.pending > 0);
        let pending = pending.filter(|verdict| verdict.leading != Verdict::Placed);
        let mut model = Model { store, cluster, policy, cycle };
        let (mut groups, mut omitted) = (Vec::new(), 0);
        for verdict in pending {
            if groups.len() == GROUPS_MAX {
                omitted += 1;
                continue;
            }
            let effort = hints::Effort::of(model.cluster);
            let found = hints::find(&mut model, outcome, &verdict.group, effort);
            let mut hints = HintsView::new(&found);
            // Where an object has to be corrected, the verdict says why waiting does not help.
            hints.never = hints.never.filter(|_| !is_correction(&verdict.leading));
            groups.push(GroupHints { group: verdict.group.to_string(), hints });
        }
        Self { groups, omitted }
    }

    /// The keys are sorted at every level.
    pub(super) fn value(&self) -> Result<Value> {
        Ok(serde_json::to_value(self)?)
    }

    pub(super) fn append(&self, text: &mut String, names: Names<'_>) {
        for GroupHints { group, hints } in &self.groups {
            let mut lines = hint_lines(hints);
            lines.splice(0..0, hints.never.clone());
            if !lines.is_empty() {
                let heading = names.replaced(&format!("What would run `{group}` (each planned)"));
                section(text, &heading, &names.replaced(&lines.join("\n")));
            }
        }
        if self.omitted > 0 {
            writeln!(text, "\nno hints were searched for {} more pod groups", self.omitted)
                .expect("writing to a string");
        }
    }
}
