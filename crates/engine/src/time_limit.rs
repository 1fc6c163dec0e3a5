//! Maximum run times: the limits of a group, and when each of them takes effect.
//!
//! A group has up to two limits that act independently: its own, and the nearest one on the path from its queue to the
//! root. A group cannot lift the limit of its queue. Both count from the group's last start, as minimum run times do.
//! Not here: the notices and evictions of a cycle (see `actions::time_limit`).

use crate::cluster::{Changes, Cluster};
use crate::ids::{GroupIdx, QueueIdx};
use crate::input::{LimitAction, TimeLimit};
use crate::outcome::LimitNotice;
use kai_units::{Span, Timestamp};

/// Users are warned this part of a limit before it is reached …
const WARNING_PART: i64 = 10;
/// … and at most this long before.
const WARNING_MAX: Span = Span::from_secs(600);
const SECOND: i64 = 1_000_000;

impl TimeLimit {
    /// Time from the start until users are warned. In whole seconds: the annotation that records it has no fractions.
    pub fn warning_after(&self) -> Span {
        let lead = (self.limit.0 / WARNING_PART).min(WARNING_MAX.0);
        Span((self.limit.0 - lead).div_euclid(SECOND) * SECOND)
    }

    /// Time from the start until the action.
    pub fn effective_after(&self) -> Span {
        Span(self.limit.0.saturating_add(self.grace.0))
    }

    /// Times from the start at which this limit changes a decision.
    pub fn deadlines(&self) -> [Span; 2] {
        [self.warning_after(), self.effective_after()]
    }
}

/// A limit of a group that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLimit {
    /// The limit.
    pub limit: TimeLimit,
    /// The queue that has it; `None` for the group's own.
    pub queue: Option<QueueIdx>,
    /// When the group started.
    pub start: Timestamp,
}

impl RunningLimit {
    /// When the limit is reached and its grace period begins.
    pub fn reached_at(&self) -> Timestamp {
        self.start + self.limit.limit
    }

    /// When the action follows.
    pub fn effective_at(&self) -> Timestamp {
        self.start + self.limit.effective_after()
    }

    /// When users are warned.
    pub fn warning_at(&self) -> Timestamp {
        Timestamp((self.start + self.limit.warning_after()).0.div_euclid(SECOND) * SECOND)
    }

    /// The limit with names.
    pub(crate) fn notice(&self, cluster: &Cluster, group: GroupIdx) -> LimitNotice {
        LimitNotice {
            group: cluster.group_key(group),
            queue: self.queue.map(|queue| cluster.text(cluster.queues[queue].name).to_owned()),
            limit: self.limit,
            reached: self.reached_at(),
        }
    }
}

impl Cluster {
    /// The limits of a group, running or not: its own, then that of its queue or the nearest ancestor with one.
    pub fn time_limits(
        &self,
        group: GroupIdx,
    ) -> impl Iterator<Item = (TimeLimit, Option<QueueIdx>)> + use<'_> {
        let g = &self.groups[group];
        let mut path = std::iter::successors(g.queue, |queue| self.queues[*queue].parent);
        let of_queue = path.find_map(|queue| Some((self.queues[queue].time_limit?, Some(queue))));
        g.time_limit.map(|limit| (limit, None)).into_iter().chain(of_queue)
    }

    /// The limits of a group that runs and whose start is recorded.
    pub fn running_limits(&self, group: GroupIdx) -> impl Iterator<Item = RunningLimit> + use<'_> {
        let g = &self.groups[group];
        let start = g.last_start.filter(|_| g.present && g.active_allocated() > 0);
        start.into_iter().flat_map(move |start| {
            self.time_limits(group).map(move |(limit, queue)| RunningLimit { limit, queue, start })
        })
    }

    /// The limit of a running group that takes effect first, of those that have not yet; else the last one that has.
    pub fn next_limit(&self, group: GroupIdx) -> Option<RunningLimit> {
        let now = self.refreshed_at();
        let order = |limit: &RunningLimit| limit.effective_at();
        let all = || self.running_limits(group);
        all().filter(|limit| limit.effective_at() > now).min_by_key(order).or_else(|| all().max_by_key(order))
    }

    /// Groups that time limits can concern: all where a queue has a limit, else those with one of their own.
    pub(crate) fn limited_groups(&self) -> Vec<GroupIdx> {
        let of_queues = self.queues_by_rank.iter().any(|queue| self.queues[*queue].time_limit.is_some());
        if of_queues { self.groups.indices().collect() } else { self.limited.iter().copied().collect() }
    }

    /// Whether some group or queue has a time limit.
    pub fn has_time_limits(&self) -> bool {
        !self.limited.is_empty()
            || self.queues_by_rank.iter().any(|queue| self.queues[*queue].time_limit.is_some())
    }

    /// Marks groups that a limit makes preemptible, or no longer does, since the last cycle.
    pub(crate) fn note_time_limits(&self, now: Timestamp, changes: &mut Changes) {
        for group in self.limited_groups() {
            if self.exceeds_time_limit(group, now) != self.groups[group].exceeds_time_limit {
                changes.groups.push(group);
            }
        }
    }

    /// Derives the preemptibility of a group whose pods are counted.
    pub(crate) fn refresh_time_limit(&mut self, group: GroupIdx) {
        let exceeds = self.exceeds_time_limit(group, self.refreshed_at());
        let g = &mut self.groups[group];
        g.exceeds_time_limit = exceeds;
        g.preemptible = g.declared_preemptible || exceeds;
        if g.present && (g.time_limit.is_some() || g.ended.is_some()) {
            self.limited.insert(group);
        } else {
            self.limited.remove(&group);
        }
    }

    fn exceeds_time_limit(&self, group: GroupIdx, now: Timestamp) -> bool {
        self.running_limits(group).any(|limit| limit.effective_at() <= now)
    }
}

/// Whether a limit ends groups.
pub(crate) fn ends(limit: &RunningLimit) -> bool {
    limit.limit.action == LimitAction::End
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(seconds: i64, grace: i64) -> TimeLimit {
        TimeLimit {
            limit: Span::from_secs(seconds),
            grace: Span::from_secs(grace),
            action: LimitAction::default(),
        }
    }

    #[test]
    fn warning_precedes_the_limit_by_a_tenth_and_at_most_ten_minutes() {
        assert_eq!(limit(100, 0).warning_after(), Span::from_secs(90));
        assert_eq!(limit(86_400, 0).warning_after(), Span::from_secs(85_800));
        assert_eq!(limit(25, 0).warning_after(), Span::from_secs(22), "in whole seconds");
        assert_eq!(limit(100, 30).deadlines(), [Span::from_secs(90), Span::from_secs(130)]);
    }

    #[test]
    fn largest_limits_do_not_overflow() {
        let longest = TimeLimit { limit: Span(i64::MAX), grace: Span(i64::MAX), action: LimitAction::End };
        assert_eq!(longest.effective_after(), Span(i64::MAX));
        let running = RunningLimit { limit: longest, queue: None, start: Timestamp(i64::MAX) };
        assert_eq!(running.effective_at(), Timestamp(i64::MAX));
        assert!(running.warning_at() <= running.reached_at());
    }
}
