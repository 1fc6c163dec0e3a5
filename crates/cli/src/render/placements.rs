//! The table of placements.

use kai_engine::outcome::{Bind, Decision, Outcome};

/// One row per placed pod, by name; `None` without any.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    let mut rows: Vec<[String; 4]> = outcome
        .decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Bind(bind) => Some([
                bind.pod.to_string(),
                bind.node.clone(),
                gpus(bind),
                format!("bound by {}", bind.action),
            ]),
            Decision::Pipeline { pod, node, action, moved, .. } => {
                let verb = if *moved { "moved" } else { "pipelined" };
                Some([pod.to_string(), node.clone(), "–".to_owned(), format!("{verb} by {action}")])
            }
            Decision::Evict { .. } => None,
        })
        .collect();
    rows.sort();
    super::table(["POD", "NODE", "GPUS", "HOW"], rows)
}

/// `2`, or `0.5 of 1` for shares of devices.
fn gpus(bind: &Bind) -> String {
    if bind.gpu_groups.is_empty() || bind.gpu_hundredths >= 100 {
        return if bind.gpu_count == 0 { "–".to_owned() } else { bind.gpu_count.to_string() };
    }
    format!("{} of {}", f64::from(bind.gpu_hundredths) / 100.0, bind.gpu_groups.len())
}
