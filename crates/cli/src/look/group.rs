//! What can be said about a pod group at one moment: how far it is, and why it is no further.

use super::Moment;
use crate::batches::stories;
use crate::render::pending::obstacles;
use kai_engine::Cluster;
use kai_engine::cluster::group::{Group, MemberKind};
use kai_engine::cluster::pod::Status;
use kai_engine::ids::{GroupIdx, MemberIdx};
use kai_engine::input::Key;
use kai_engine::outcome::Outcome;
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_units::Timestamp;
use std::collections::BTreeMap;

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has no pods.
    Empty,
    /// No pod has a place.
    Pending,
    /// No pod has a place, and gates hold all of them back.
    Gated,
    /// Every pod has a place, and not all run yet.
    Starting,
    /// Every pod runs.
    Running,
    /// Some pods have a place, others wait for one.
    Partly,
    /// It runs below its minimum.
    Stale,
    /// Its pods are leaving.
    Leaving,
    /// Its pods are on nodes that no longer answer.
    Lost,
    /// Its pods have ended.
    Done,
}

impl State {
    /// One word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Pending => "Pending",
            Self::Gated => "Gated",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Partly => "Partly",
            Self::Stale => "Stale",
            Self::Leaving => "Leaving",
            Self::Lost => "Lost",
            Self::Done => "Done",
        }
    }
}

/// How many pods of a group are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All of them.
    pub(super) pods: u32,
    /// They run.
    pub(super) running: u32,
    /// They have a place.
    pub(super) placed: u32,
    /// They wait for a place.
    pub(super) pending: u32,
    /// Gates hold them back.
    pub(super) gated: u32,
    leaving: u32,
    lost: u32,
    done: u32,
}

impl Counts {
    fn of(cluster: &Cluster, group: &Group) -> Self {
        let mut counts = Self::default();
        for pod in &group.pods {
            counts.add(cluster.observed_status(*pod));
        }
        counts
    }

    fn add(&mut self, status: Status) {
        self.pods += 1;
        match status {
            Status::Pending => self.pending += 1,
            Status::Gated => self.gated += 1,
            Status::Running => {
                self.placed += 1;
                self.running += 1;
            }
            Status::Allocated | Status::Pipelined | Status::Binding | Status::Bound => self.placed += 1,
            Status::Releasing | Status::Stuck => self.leaving += 1,
            Status::Unknown => self.lost += 1,
            Status::Succeeded | Status::Failed => self.done += 1,
        }
    }

    fn state(&self, min: u32) -> State {
        let waiting = self.pending + self.gated;
        match *self {
            Self { pods: 0, .. } => State::Empty,
            Self { placed: 0, pending: 0, gated: 1.., .. } => State::Gated,
            Self { placed: 0, pending: 1.., .. } => State::Pending,
            Self { placed: 0, leaving: 1.., .. } => State::Leaving,
            Self { placed: 0, lost: 1.., .. } => State::Lost,
            Self { placed: 0, .. } => State::Done,
            // A group of which some have ended is about to end, not short of pods.
            Self { placed, done: 0, .. } if placed < min => State::Stale,
            Self { .. } if waiting > 0 => State::Partly,
            Self { placed, running, .. } if placed == running => State::Running,
            Self { .. } => State::Starting,
        }
    }
}

/// A group at one moment.
pub(super) struct Facts<'a> {
    pub(super) key: Key,
    pub(super) queue: &'a str,
    pub(super) priority: i32,
    /// Its priority class; empty when it names none.
    pub(super) class: &'a str,
    pub(super) preemptible: bool,
    pub(super) created: Timestamp,
    pub(super) counts: Counts,
    /// How many pods it needs to run.
    pub(super) min: u32,
    pub(super) state: State,
    /// Why it waits, if it does.
    pub(super) verdict: Option<&'a GroupVerdict>,
    /// What a cycle would take from it, in words.
    pub(super) loses: Vec<String>,
}

impl Facts<'_> {
    /// The first thing to know, in a sentence; nothing where all is well.
    pub(super) fn reason(&self) -> Option<String> {
        if let Some(verdict) = self.verdict {
            if verdict.leading == Verdict::Placed {
                return Some("a cycle would place it now".to_owned());
            }
            return obstacles(verdict).into_iter().next().map(|obstacle| obstacle.sentence.text);
        }
        if let Some(loss) = self.loses.first() {
            return Some(loss.clone());
        }
        match self.state {
            State::Gated => Some("scheduling gates hold its pods back".to_owned()),
            State::Stale => Some(format!("{} of {} needed pods have a place", self.counts.placed, self.min)),
            State::Lost => Some("its nodes no longer answer".to_owned()),
            State::Empty
            | State::Pending
            | State::Starting
            | State::Running
            | State::Partly
            | State::Leaving
            | State::Done => None,
        }
    }

    /// `train (50)`, or the bare number.
    pub(super) fn priority(&self) -> String {
        if self.class.is_empty() {
            self.priority.to_string()
        } else {
            format!("{} ({})", self.class, self.priority)
        }
    }
}

/// All groups that the scheduler sees, by namespace and name.
pub(super) fn all(moment: &Moment) -> Vec<Facts<'_>> {
    let verdicts: BTreeMap<&Key, &GroupVerdict> =
        moment.outcome.verdicts.iter().map(|verdict| (&verdict.group, verdict)).collect();
    let mut losses = losses(&moment.outcome);
    let groups = moment.store.objects().pod_groups.iter();
    groups
        .filter_map(|(key, object)| {
            let group = moment.cluster.group(key)?;
            let class = object.spec.priority_class_name.as_str();
            let loses = losses.remove(key).unwrap_or_default();
            Some(facts(moment, key, group, class, verdicts.get(key).copied(), loses))
        })
        .collect()
}

/// One group, if the scheduler sees it.
pub(super) fn one<'a>(moment: &'a Moment, key: &Key) -> Option<Facts<'a>> {
    let object = moment.store.objects().pod_groups.get(key)?;
    let group = moment.cluster.group(key)?;
    let loses = losses(&moment.outcome).remove(key).unwrap_or_default();
    let class = object.spec.priority_class_name.as_str();
    Some(facts(moment, key, group, class, moment.verdict(key), loses))
}

fn facts<'a>(
    moment: &'a Moment,
    key: &Key,
    group: GroupIdx,
    class: &'a str,
    verdict: Option<&'a GroupVerdict>,
    loses: Vec<String>,
) -> Facts<'a> {
    let group = &moment.cluster.groups[group];
    let counts = Counts::of(&moment.cluster, group);
    let min = min(group, Group::root());
    Facts {
        key: key.clone(),
        queue: moment.cluster.text(group.queue_name),
        priority: group.priority,
        class,
        preemptible: group.preemptible,
        created: group.created,
        counts,
        min,
        state: counts.state(min),
        verdict,
        loses,
    }
}

/// The fewest pods with which a member has what it needs.
fn min(group: &Group, member: MemberIdx) -> u32 {
    match &group.members[member].kind {
        MemberKind::Pods(pods) => pods.min,
        MemberKind::Set { children, .. } => {
            let mut each: Vec<u32> = children.iter().map(|child| min(group, *child)).collect();
            each.sort_unstable();
            each.into_iter().take(group.needed(member) as usize).sum()
        }
    }
}

/// What a cycle would take from each group, in words.
fn losses(outcome: &Outcome) -> BTreeMap<Key, Vec<String>> {
    let mut all: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for story in stories(outcome) {
        let whom = story.preemptor.map_or_else(String::new, |group| format!(" for `{group}`"));
        for batch in &story.batches {
            let Some(group) = batch.group else { continue };
            let pods = match batch.pods.len() {
                1 => "1 pod".to_owned(),
                count => format!("{count} pods"),
            };
            let rule = kai_engine::explain::rule(batch.why);
            let text = format!("a cycle would evict {pods} ({}{whom}): {rule}", story.action);
            all.entry(group.clone()).or_default().push(text);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(statuses: &[Status], min: u32) -> State {
        let mut counts = Counts::default();
        for status in statuses {
            counts.add(*status);
        }
        counts.state(min)
    }

    #[test]
    fn a_state_follows_from_the_pods() {
        use Status::{Binding, Bound, Gated, Pending, Releasing, Running, Succeeded, Unknown};
        for (statuses, min, expected) in [
            (&[][..], 1, State::Empty),
            (&[Pending, Gated], 1, State::Pending),
            (&[Gated], 1, State::Gated),
            (&[Pending, Releasing], 1, State::Pending),
            (&[Binding, Running], 2, State::Starting),
            (&[Bound], 1, State::Starting),
            (&[Running, Succeeded], 2, State::Running),
            (&[Running, Pending], 1, State::Partly),
            (&[Running, Pending], 2, State::Stale),
            (&[Releasing], 1, State::Leaving),
            (&[Unknown], 1, State::Lost),
            (&[Succeeded, Succeeded], 2, State::Done),
        ] {
            assert_eq!(state(statuses, min), expected, "{statuses:?}");
        }
    }
}
