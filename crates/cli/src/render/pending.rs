//! Why each pending group is pending, with its numbers and what would help.

use kai_engine::Outcome;
use kai_engine::explain::{Sentence, failed_actions, plain};
use kai_engine::verdict::{EvictionFailureReason, GroupVerdict, Verdict};
use std::collections::BTreeSet;

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

/// Everything that stands in the way of a group, in one column.
///
/// One hint is enough: that of the first reason that has one. The JSON output has them all.
fn why(verdict: &GroupVerdict) -> String {
    let mut lines = Vec::new();
    let mut has_hint = false;
    for Obstacle { is_further, sentence } in obstacles(verdict) {
        lines.push(if is_further { format!("also: {}", sentence.text) } else { sentence.text });
        if let Some(hint) = sentence.hint.filter(|_| !has_hint && !is_further) {
            lines.push(format!("hint: {hint}"));
            has_hint = true;
        }
    }
    lines.join("\n")
}

/// Something that stands in the way of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// It is not the one that leads, and was found besides.
    pub(crate) is_further: bool,
    /// What it is, and what would help.
    pub(crate) sentence: Sentence,
}

/// The leading reason, what else was found, and why nobody was evicted for the group; nothing twice.
pub(crate) fn obstacles(verdict: &GroupVerdict) -> Vec<Obstacle> {
    let is_refusal = |of: &Verdict| matches!(of, Verdict::NoVictims(_));
    let in_words = |of: &Verdict| plain(of, &verdict.queue);
    let leading = Some(&verdict.leading).filter(|leading| !is_refusal(leading)).map(in_words);
    let further = verdict.further.iter().filter(|further| !is_refusal(further)).map(in_words);
    let refused = failed_actions(verdict).into_iter().filter(|refusal| !is_told(verdict, refusal.reason));
    let all = leading.into_iter().map(|sentence| Obstacle { is_further: false, sentence });
    let all = all.chain(further.map(|sentence| Obstacle { is_further: true, sentence }));
    let all = all.chain(refused.map(|refusal| Obstacle { is_further: false, sentence: refusal.sentence }));
    let mut told = BTreeSet::new();
    all.filter(|obstacle| told.insert(obstacle.sentence.text.clone())).collect()
}

/// Whether what keeps a pod from every node is what keeps actions from evicting somebody for it.
fn is_told(verdict: &GroupVerdict, reason: &EvictionFailureReason) -> bool {
    let EvictionFailureReason::Unschedulable(miss) = reason else { return false };
    let same = |of: &Verdict| matches!(of, Verdict::PodUnschedulable { reason, .. } if reason == miss);
    same(&verdict.leading) || verdict.further.iter().any(same)
}
