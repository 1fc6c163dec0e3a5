//! The table of pending groups: why each is pending, and what would help.

use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_view::Names;
use kai_view::verdicts::Obstacle;

/// One row per group that is not completely placed; `None` without any.
pub(crate) fn of(
    verdicts: &[GroupVerdict],
    names: Names<'_>,
    explain: impl Fn(&GroupVerdict) -> Vec<Obstacle>,
) -> Option<String> {
    let rows = verdicts
        .iter()
        .filter(|verdict| verdict.leading != Verdict::Placed)
        .map(|verdict| {
            let reasons = names.replaced(&reasons(explain(verdict)));
            [names.group(&verdict.group), verdict.queue.clone(), verdict.pending.to_string(), reasons]
        })
        .collect();
    super::table(["GROUP", "QUEUE", "PODS", "REASON"], rows)
}

/// All obstacles of a group, with the first hint; the JSON output has all hints.
fn reasons(obstacles: Vec<Obstacle>) -> String {
    let mut lines = Vec::new();
    let mut has_hint = false;
    for Obstacle { is_further, sentence, .. } in obstacles {
        lines.push(if is_further { format!("also: {}", sentence.text) } else { sentence.text });
        if let Some(hint) = sentence.hint.filter(|_| !has_hint && !is_further) {
            lines.push(format!("hint: {hint}"));
            has_hint = true;
        }
    }
    lines.join("\n")
}
