//! Lifecycle of simulated groups: submission, waiting for the minimum, completion.

use super::SimulatedCluster;
use crate::event_queue::Event;
use crate::gang::{self, PodCounts};
use crate::report::GroupResult;
use crate::script::Script;
use kai_engine::Delta;
use kai_engine::input::{GroupInput, Key};
use kai_units::{Span, Timestamp};

pub(super) struct SimulatedGroup {
    pub(super) input: GroupInput,
    /// Time of submission, for groups that do not exist from the start.
    pub(super) submit_at: Option<Timestamp>,
    pub(super) pods: Vec<Key>,
    /// Pods that are neither completed nor deleted.
    open_pods: usize,
    /// Running and completed pods.
    running: PodCounts,
    /// When it and its first pod existed.
    submitted: Option<Timestamp>,
    /// Since when it is below its minimum.
    waits_since: Option<Timestamp>,
    ran_before: bool,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    waited_again: Span,
    evictions: usize,
}

impl SimulatedGroup {
    fn exists_at(&self, now: Timestamp) -> bool {
        self.finished.is_none() && self.submit_at.is_none_or(|at| at <= now)
    }
}

impl SimulatedCluster {
    pub(super) fn load_group(&mut self, input: GroupInput, script: &Script, start: Timestamp) {
        let submit_at = script.groups.get(&input.key).map(|after| start + *after).filter(|at| *at > start);
        match submit_at {
            Some(at) => self.events.add(at, Event::SubmitGroup(input.key.clone())),
            None => self.cluster.apply(Delta::Group(Box::new(input.clone()))),
        }
        let group = SimulatedGroup {
            submit_at,
            pods: Vec::new(),
            open_pods: 0,
            running: PodCounts::new(),
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

    /// Initialises the counts of groups after all pods are loaded.
    pub(super) fn initialise_groups(&mut self, start: Timestamp) {
        for group in self.groups.values_mut() {
            let pods = group.pods.iter().filter_map(|key| self.pods.get(key));
            group.open_pods = pods.clone().filter(|pod| pod.is_open()).count();
            for pod in pods.filter(|pod| pod.present) {
                group.submitted = Some(start);
                if pod.counts_for_gang() {
                    *group.running.entry(pod.sub_group().to_owned()).or_default() += 1;
                }
            }
            if gang::is_complete(&group.input, &group.running) {
                (group.ran_before, group.started) = (true, Some(start));
            } else if group.submitted.is_some() {
                group.waits_since = Some(start);
            }
        }
    }

    pub(super) fn submit_group(&mut self, key: &Key, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.input.created = now;
        self.cluster.apply(Delta::Group(Box::new(group.input.clone())));
    }

    pub(super) fn group_pod_submitted(&mut self, key: &Key, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.submitted.is_none()) else { return };
        group.submitted = Some(now);
        group.waits_since = Some(now);
    }

    pub(super) fn group_pod_started(&mut self, key: &Key, sub_group: &str, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        *group.running.entry(sub_group.to_owned()).or_default() += 1;
        let Some(since) = group.waits_since.filter(|_| gang::is_complete(&group.input, &group.running))
        else {
            return;
        };
        group.waits_since = None;
        if group.started.is_none() {
            group.started = Some(now);
        } else {
            group.waited_again = Span(group.waited_again.0.saturating_add((now - since).0));
        }
    }

    /// `ran_in` is the sub-group of a pod that was running.
    pub(super) fn group_pod_evicted(&mut self, key: &Key, ran_in: Option<&String>, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.evictions += 1;
        let Some(count) = ran_in.and_then(|sub_group| group.running.get_mut(sub_group)) else { return };
        *count = count.saturating_sub(1);
        if group.waits_since.is_none() && !gang::is_complete(&group.input, &group.running) {
            group.waits_since = Some(now);
        }
    }

    /// A pod of the group is completed or deleted; with the last one the group is deleted.
    pub(super) fn close_pod(&mut self, key: &Key, now: Timestamp) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.open_pods = group.open_pods.saturating_sub(1);
        if group.open_pods > 0 {
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

    /// Changes the timestamps of a group, as the scheduler does by annotations.
    pub(super) fn annotate(&mut self, key: &Key, change: impl FnOnce(&mut GroupInput)) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.finished.is_none()) else { return };
        change(&mut group.input);
        self.cluster.apply(Delta::Group(Box::new(group.input.clone())));
    }

    /// The next deadline of a staleness grace period, a preemption delay, a minimum or a maximum run time.
    pub(crate) fn next_timer(&self, now: Timestamp, staleness_grace: Span) -> Option<Timestamp> {
        let of_group = |group: &SimulatedGroup| {
            let input = &group.input;
            let grace = Some(input.staleness_grace.unwrap_or(staleness_grace)).filter(|grace| grace.0 >= 0);
            let stale = input.stale_since.zip(grace).map(|(since, grace)| since + grace);
            let from = input.last_eviction.map_or(input.created, |at| at.max(input.created));
            let delay = input.preemption_delay.map(|delay| from + delay);
            let own = input.time_limit.into_iter().flat_map(|limit| limit.deadlines());
            let run_times = || own.clone().chain(self.run_times.iter().copied());
            let ends = input.last_start.into_iter().flat_map(|at| run_times().map(move |span| at + span));
            ends.chain(stale).chain(delay).filter(|at| *at > now).min()
        };
        self.groups.values().filter(|group| group.exists_at(now)).filter_map(of_group).min()
    }

    pub(crate) fn queue_of(&self, group: &Key) -> Option<&str> {
        self.groups.get(group).map(|group| group.input.queue.as_str())
    }

    /// Groups below their minimum.
    pub(crate) fn waiting(&self) -> usize {
        self.groups.values().filter(|group| group.waits_since.is_some()).count()
    }

    /// The results of all groups that were submitted.
    pub(crate) fn results(&self, end: Timestamp) -> Vec<GroupResult> {
        let result = |group: &SimulatedGroup| {
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
