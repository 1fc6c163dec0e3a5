//! Why each pending group is pending, with its numbers and what would help.

use kai_engine::Outcome;
use kai_engine::explain::{Sentence, plain, refusals};
use kai_engine::verdict::{EvictionReason, GroupVerdict, Verdict};
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

/// The leading reason, what else was found, and why nobody was evicted for the group; nothing twice.
///
/// One hint is enough: that of the first reason that has one. The JSON output has them all.
fn why(verdict: &GroupVerdict) -> String {
    let is_refusal = |of: &Verdict| matches!(of, Verdict::NoVictims(_));
    let mut lines = Lines::default();
    if !is_refusal(&verdict.leading) {
        lines.add("", plain(&verdict.leading, &verdict.queue));
    }
    for further in verdict.further.iter().filter(|further| !is_refusal(further)) {
        let text = plain(further, &verdict.queue).text;
        lines.add("also: ", Sentence { text, hint: None });
    }
    for refusal in refusals(verdict).into_iter().filter(|refusal| !is_told(verdict, refusal.reason)) {
        lines.add("", refusal.sentence);
    }
    lines.all.join("\n")
}

/// Whether what keeps a pod from every node is what keeps actions from evicting somebody for it.
fn is_told(verdict: &GroupVerdict, reason: &EvictionReason) -> bool {
    let EvictionReason::Impossible(miss) = reason else { return false };
    let same = |of: &Verdict| matches!(of, Verdict::PodImpossible { reason, .. } if reason == miss);
    same(&verdict.leading) || verdict.further.iter().any(same)
}

#[derive(Default)]
struct Lines {
    told: BTreeSet<String>,
    has_hint: bool,
    all: Vec<String>,
}

impl Lines {
    fn add(&mut self, prefix: &str, sentence: Sentence) {
        if !self.told.insert(sentence.text.clone()) {
            return;
        }
        self.all.push(format!("{prefix}{}", sentence.text));
        if let Some(hint) = sentence.hint.filter(|_| !self.has_hint) {
            self.all.push(format!("hint: {hint}"));
            self.has_hint = true;
        }
    }
}
