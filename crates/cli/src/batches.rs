//! Evictions that belong together: for whom, by which action, and which pods of a group give way by the same rule.

use kai_engine::Outcome;
use kai_engine::input::Key;
use kai_engine::outcome::{Decision, EvictionReason, QueueChange};
use std::collections::BTreeMap;

/// Everything that one action evicted for one group.
#[derive(Clone, Debug)]
pub(crate) struct Story<'a> {
    /// For whom; nobody where a gang is evicted for its own sake.
    pub(crate) preemptor: Option<&'a Key>,
    /// The action.
    pub(crate) action: &'static str,
    /// Who gives way, in the order of the decisions.
    pub(crate) batches: Vec<Batch<'a>>,
}

/// Pods of one group that give way by the same rule.
#[derive(Clone, Debug)]
pub(crate) struct Batch<'a> {
    /// Their group.
    pub(crate) group: Option<&'a Key>,
    /// The pods, in the order of the decisions.
    pub(crate) pods: Vec<&'a Key>,
    /// The rule.
    pub(crate) why: &'a EvictionReason,
}

impl<'a> Story<'a> {
    /// The queues that take and give, each change once: with `true` the one that takes.
    pub(crate) fn changes(&self) -> Vec<(&'a QueueChange, bool)> {
        let mut changes: Vec<(&QueueChange, bool)> = Vec::new();
        for (reclaimer, victim) in self.batches.iter().filter_map(|batch| queues(batch.why)) {
            for change in [(reclaimer, true), (victim, false)] {
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
        changes
    }
}

/// The queue that takes and the one that gives, where the rule is about queues.
fn queues(why: &EvictionReason) -> Option<(&QueueChange, &QueueChange)> {
    match why {
        EvictionReason::AboveShare { reclaimer, victim }
        | EvictionReason::AboveQuota { reclaimer, victim } => Some((reclaimer, victim)),
        EvictionReason::Moved { .. } | EvictionReason::Priority { .. } | EvictionReason::Stale { .. } => None,
    }
}

/// All evictions, in the order of the first one of each story.
pub(crate) fn stories(outcome: &Outcome) -> Vec<Story<'_>> {
    let mut stories: Vec<Story<'_>> = Vec::new();
    let mut known: BTreeMap<(Option<&Key>, &str), usize> = BTreeMap::new();
    // Batches by story and group: a story of thousands of groups is told without searching it.
    let mut of_group: BTreeMap<(usize, &Key), Vec<usize>> = BTreeMap::new();
    for decision in &outcome.decisions {
        let Decision::Evict { pod, group, preemptor, action, why, .. } = decision else { continue };
        let (group, preemptor) = (group.as_ref(), preemptor.as_ref());
        let story = *known.entry((preemptor, action)).or_insert_with(|| {
            stories.push(Story { preemptor, action, batches: Vec::new() });
            stories.len() - 1
        });
        let batches = &mut stories[story].batches;
        // Pods without a group have nothing in common.
        let siblings = group.map(|group| of_group.entry((story, group)).or_default());
        let same =
            siblings.iter().flat_map(|at| at.iter()).find(|at| batches[**at].why == why.as_ref()).copied();
        if let Some(at) = same {
            batches[at].pods.push(pod);
            continue;
        }
        if let Some(siblings) = siblings {
            siblings.push(batches.len());
        }
        batches.push(Batch { group, pods: vec![pod], why });
    }
    stories
}
