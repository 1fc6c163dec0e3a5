//! Groups: when they are submitted, how long they wait for their minimum, and when they are done.

use super::World;
use crate::agenda::Event;
use crate::gang::{self, Up};
use crate::report::GroupResult;
use crate::script::Script;
use kai_engine::Delta;
use kai_engine::input::{GroupInput, Key};
use kai_units::{Span, Timestamp};

/// A group and how far it got.
pub(super) struct GroupLife {
    pub(super) input: GroupInput,
    /// When it is submitted, if it is not there from the beginning.
    pub(super) submit_at: Option<Timestamp>,
    /// Its pods.
    pub(super) pods: Vec<Key>,
    /// How many of its pods something is still to come from.
    open: usize,
    /// Its pods that run or have done their work.
    up: Up,
    /// When it and its first pod were there.
    submitted: Option<Timestamp>,
    /// Since when it lacks pods that it cannot do without.
    waits_since: Option<Timestamp>,
    ran_before: bool,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    waited_again: Span,
    evictions: usize,
}

impl GroupLife {
    fn is_there(&self, now: Timestamp) -> bool {
        self.finished.is_none() && self.submit_at.is_none_or(|at| at <= now)
    }
}

impl World {
    /// Takes a group in, at once or later.
    pub(super) fn load_group(&mut self, input: GroupInput, script: &Script, start: Timestamp) {
        let submit_at = script.groups.get(&input.key).map(|after| start + *after).filter(|at| *at > start);
        match submit_at {
            Some(at) => self.agenda.add(at, Event::SubmitGroup(input.key.clone())),
            None => self.cluster.apply(Delta::Group(Box::new(input.clone()))),
        }
        let group = GroupLife {
            submit_at,
            pods: Vec::new(),
            open: 0,
            up: Up::new(),
            submitted: None,
            waits_since: None,
            ran_before: false,
            started: None,
            finished: None,
            waited_again: Span(0),
            evictions: 0,
            input,
        };
        self.groups.insert(group.input.key.clone(), group);
    }

    /// Sees how groups stand at the beginning, all pods loaded.
    pub(super) fn open_groups(&mut self, start: Timestamp) {
        for group in self.groups.values_mut() {
            let pods = group.pods.iter().filter_map(|key| self.pods.get(key));
            group.open = pods.clone().filter(|pod| pod.is_open()).count();
            for pod in pods.filter(|pod| pod.present) {
                group.submitted = Some(start);
                if pod.is_up() {
                    *group.up.entry(pod.sub_group().to_owned()).or_default() += 1;
                }
            }
            if gang::is_complete(&group.input, &group.up) {
                (group.ran_before, group.started) = (true, Some(start));
            } else if group.submitted.is_some() {
                group.waits_since = Some(start);
            }
        }
    }

    /// A group is submitted.
    pub(super) fn submit_group(&mut self, key: &Key, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.input.created = now;
        self.cluster.apply(Delta::Group(Box::new(group.input.clone())));
    }

    /// A pod of the group was submitted.
    pub(super) fn group_has_pods(&mut self, key: &Key, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.submitted.is_none()) else { return };
        group.submitted = Some(now);
        group.waits_since = Some(now);
    }

    /// A pod of the group started.
    pub(super) fn group_gains(&mut self, key: &Key, sub_group: &str, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        *group.up.entry(sub_group.to_owned()).or_default() += 1;
        let Some(since) = group.waits_since.filter(|_| gang::is_complete(&group.input, &group.up)) else {
            return;
        };
        group.waits_since = None;
        if group.started.is_none() {
            group.started = Some(now);
        } else {
            group.waited_again = Span(group.waited_again.0.saturating_add((now - since).0));
        }
    }

    /// A pod of the group was evicted; with a sub-group where it ran there.
    pub(super) fn group_loses(&mut self, key: &Key, ran_in: Option<&String>, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.evictions += 1;
        let Some(count) = ran_in.and_then(|sub_group| group.up.get_mut(sub_group)) else { return };
        *count = count.saturating_sub(1);
        if group.waits_since.is_none() && !gang::is_complete(&group.input, &group.up) {
            group.waits_since = Some(now);
        }
    }

    /// Nothing more is to come from a pod of the group; when that holds for all, the group is taken away.
    pub(super) fn close_pod(&mut self, key: &Key, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.open = group.open.saturating_sub(1);
        if group.open > 0 {
            return;
        }
        group.finished = Some(now);
        group.waits_since = None;
        for pod in &group.pods {
            if self.pods.remove(pod).is_some() {
                self.cluster.apply(Delta::PodGone(pod.clone()));
            }
        }
        self.cluster.apply(Delta::GroupGone(key.clone()));
    }

    /// Writes a mark on a group.
    pub(super) fn stamp(&mut self, key: &Key, mark: impl FnOnce(&mut GroupInput)) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.finished.is_none()) else { return };
        mark(&mut group.input);
        self.cluster.apply(Delta::Group(Box::new(group.input.clone())));
    }

    /// When the mere passing of time next changes what is allowed: a grace, a delay or a protection ends.
    pub(crate) fn next_timer(&self, now: Timestamp, staleness_grace: Span) -> Option<Timestamp> {
        let of_group = |group: &GroupLife| {
            let input = &group.input;
            let grace = Some(input.staleness_grace.unwrap_or(staleness_grace)).filter(|grace| grace.0 >= 0);
            let stale = input.stale_since.zip(grace).map(|(since, grace)| since + grace);
            let from = input.last_eviction.map_or(input.created, |at| at.max(input.created));
            let delay = input.preemption_delay.map(|delay| from + delay);
            let protected = input
                .last_start
                .into_iter()
                .flat_map(|at| self.protections.iter().map(move |span| at + *span));
            protected.chain(stale).chain(delay).filter(|at| *at > now).min()
        };
        self.groups.values().filter(|group| group.is_there(now)).filter_map(of_group).min()
    }

    /// The queue of a group.
    pub(crate) fn queue_of(&self, group: &Key) -> Option<&str> {
        self.groups.get(group).map(|group| group.input.queue.as_str())
    }

    /// Groups that lack pods which they cannot do without.
    pub(crate) fn waiting(&self) -> usize {
        self.groups.values().filter(|group| group.waits_since.is_some()).count()
    }

    /// What became of all groups that were submitted.
    pub(crate) fn results(&self, end: Timestamp) -> Vec<GroupResult> {
        let result = |group: &GroupLife| {
            let submitted = group.submitted?;
            let again = group.waits_since.filter(|_| group.started.is_some()).map_or(0, |at| (end - at).0);
            Some(GroupResult {
                group: group.input.key.clone(),
                queue: group.input.queue.clone(),
                submitted,
                ran_before: group.ran_before,
                started: group.started,
                finished: group.finished,
                waited_again: Span(group.waited_again.0.saturating_add(again)),
                waits: group.waits_since.is_some(),
                evictions: group.evictions,
                pods: group.pods.len(),
            })
        };
        self.groups.values().filter_map(result).collect()
    }
}
