//! Why each pending group is pending, with its numbers and what would help.

use kai_engine::Outcome;
use kai_engine::explain::plain;
use kai_engine::verdict::{GroupVerdict, Verdict};

/// One row a group that is not wholly placed; `None` when there is none.
pub(super) fn table(outcome: &Outcome) -> Option<String> {
    of(&outcome.verdicts)
}

/// The same from verdicts alone.
pub(crate) fn of(verdicts: &[GroupVerdict]) -> Option<String> {
    let rows = verdicts
        .iter()
        .filter(|verdict| verdict.leading != Verdict::Placed)
        .map(|verdict| {
            [verdict.group.to_string(), verdict.queue.clone(), verdict.pending.to_string(), why(verdict)]
        })
        .collect();
    super::table(["GROUP", "QUEUE", "PODS", "WHY"], rows)
}

/// The leading reason, its hint, and what else was found.
fn why(verdict: &GroupVerdict) -> String {
    let leading = plain(&verdict.leading, &verdict.queue);
    let mut lines = vec![leading.text];
    lines.extend(leading.hint.map(|hint| format!("hint: {hint}")));
    let further = verdict.further.iter().map(|further| plain(further, &verdict.queue).text);
    lines.extend(further.map(|text| format!("also: {text}")));
    lines.join("\n")
}
