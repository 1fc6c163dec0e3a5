//! Which pod is deleted, and for whom.

use kai_engine::outcome::{Decision, Outcome};

/// One row a pod that is evicted, by pod; `None` when there is none.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    let mut rows: Vec<[String; 4]> = outcome
        .decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Evict { pod, group, preemptor, action, .. } => {
                let name = |key: &Option<kai_engine::input::Key>| {
                    key.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string)
                };
                Some([pod.to_string(), name(group), name(preemptor), (*action).to_owned()])
            }
            Decision::Bind(_) | Decision::Pipeline { .. } => None,
        })
        .collect();
    rows.sort();
    super::table(["POD", "GROUP", "FOR", "BY"], rows)
}
