//! Decides when a scheduling cycle starts and whether it may evict.
//!
//! Events are debounced: a cycle starts when a burst pauses, at the latest [`DEBOUNCE_MAX`] after its first event. But a pod
//! that needs no other one starts a cycle at once when none ran for [`LEADING_PAUSE`]: nothing else may follow it.
//! Evictions wait longer, since capacity that the next event frees needs no victims, and happen at most once a period.
//! Under constant load they are not delayed beyond one period. Without a change since the last cycle that could evict,
//! another one would decide the same, so none starts until a timer reports that time alone changes a decision.

use std::time::Duration;
use tokio::time::Instant;

/// A burst of events is over when none has arrived for this long.
const DEBOUNCE: Duration = Duration::from_millis(5);
/// The longest that a burst delays a cycle.
const DEBOUNCE_MAX: Duration = Duration::from_millis(50);
/// How long no cycle must have run before a pod starts one at once: so often a burst costs one cycle more.
const LEADING_PAUSE: Duration = Duration::from_millis(20);
/// How long no capacity must have been freed before a cycle evicts.
const EVICTION_QUIET_PERIOD: Duration = Duration::from_millis(100);

/// The actions that a cycle runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Only `allocate`: places pods on free capacity.
    AllocateOnly,
    /// Every configured action.
    AllActions,
}

/// What an event can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Impact {
    /// No decision.
    None,
    /// Reports on a pod whose group has not arrived; the arrival of the group changes decisions.
    AwaitsGroup,
    /// Some decision.
    Replan,
    /// A pending pod can be placed that waits for no other pod of its group.
    AddsPod,
    /// It may free capacity for pending pods.
    FreesCapacity,
}

#[derive(Debug)]
pub(crate) struct CycleTrigger {
    period: Duration,
    /// First and last event of the burst that no cycle has planned for.
    burst: Option<(Instant, Instant)>,
    /// The first pod without a group that no cycle has seen. It is no part of a burst: its group mostly follows at once.
    awaiting_group: Option<Instant>,
    /// Whether the burst began with a pod for which a cycle starts at once.
    is_leading: bool,
    /// The last event that started a cycle at once.
    last_leading: Option<Instant>,
    last_cycle: Option<Instant>,
    capacity_freed: Option<Instant>,
    /// The last cycle that ran all actions.
    last_full_cycle: Option<Instant>,
    changed_since_full_cycle: bool,
    /// Some pending group may cause evictions.
    has_preemptors: bool,
    /// Since when a change and a possible preemptor coincide.
    eviction_due_since: Option<Instant>,
    timer: Option<Instant>,
}

impl CycleTrigger {
    /// `period` is the least time between two cycles that may evict.
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            period,
            burst: None,
            awaiting_group: None,
            is_leading: false,
            last_leading: None,
            last_cycle: None,
            capacity_freed: None,
            last_full_cycle: None,
            changed_since_full_cycle: true,
            has_preemptors: false,
            eviction_due_since: None,
            timer: None,
        }
    }

    pub(crate) fn record_event(&mut self, now: Instant, impact: Impact) {
        match impact {
            Impact::None => return,
            Impact::AwaitsGroup => {
                self.awaiting_group.get_or_insert(now);
                self.changed_since_full_cycle = true;
                self.update_eviction_due(now);
                return;
            }
            Impact::Replan => {}
            Impact::AddsPod => {
                let is_idle = self.last_cycle.is_none_or(|last| now.duration_since(last) >= LEADING_PAUSE);
                if is_idle && self.burst.is_none() {
                    self.is_leading = true;
                    self.last_leading = Some(now);
                }
            }
            Impact::FreesCapacity => self.capacity_freed = Some(now),
        }
        self.changed_since_full_cycle = true;
        self.update_eviction_due(now);
        self.burst = Some(self.burst.map_or((now, now), |(first, _)| (first, now)));
    }

    /// Sets when time alone changes a decision.
    pub(crate) fn set_timer(&mut self, at: Option<Instant>) {
        self.timer = at;
    }

    /// When the next cycle starts if no event arrives before, and its scope.
    pub(crate) fn next(&self) -> Option<(Instant, Scope)> {
        let allocate =
            self.burst.map(
                |(first, last)| {
                    if self.is_leading { first } else { (last + DEBOUNCE).min(first + DEBOUNCE_MAX) }
                },
            );
        let awaited = self.awaiting_group.map(|since| since + DEBOUNCE_MAX);
        let allocate = [allocate, awaited].into_iter().flatten().min();
        let evict =
            (self.changed_since_full_cycle && self.has_preemptors).then(|| self.eviction_at(allocate));
        let evict =
            [evict, self.timer.map(|at| at.max(self.earliest_full_cycle()))].into_iter().flatten().min();
        match (allocate, evict) {
            (Some(allocate), Some(evict)) if allocate < evict => Some((allocate, Scope::AllocateOnly)),
            (_, Some(evict)) => Some((evict, Scope::AllActions)),
            (Some(allocate), None) => Some((allocate, Scope::AllocateOnly)),
            (None, None) => None,
        }
    }

    /// A cycle has ended; `has_preemptors` is whether some pending group may cause evictions.
    pub(crate) fn record_cycle(&mut self, now: Instant, scope: Scope, has_preemptors: bool) {
        self.burst = None;
        self.awaiting_group = None;
        self.is_leading = false;
        self.last_cycle = Some(now);
        self.has_preemptors = has_preemptors;
        match scope {
            Scope::AllocateOnly => {}
            Scope::AllActions => {
                self.last_full_cycle = Some(now);
                self.changed_since_full_cycle = false;
                self.timer = None;
            }
        }
        self.update_eviction_due(now);
    }

    fn update_eviction_due(&mut self, now: Instant) {
        let is_due = self.has_preemptors && self.changed_since_full_cycle;
        self.eviction_due_since = is_due.then(|| self.eviction_due_since.unwrap_or(now));
    }

    fn earliest_full_cycle(&self) -> Instant {
        self.last_full_cycle.map_or_else(Instant::now, |last| last + self.period)
    }

    fn eviction_at(&self, allocate: Option<Instant>) -> Instant {
        // Pods that have just arrived are placed on free capacity first.
        let after_allocate = allocate.map(|at| at + EVICTION_QUIET_PERIOD);
        // The cycle of a pod that began a burst must not hasten evictions: the burst may bring pods that go first.
        let after_leading = self.last_leading.map(|at| at + DEBOUNCE);
        let after_freed = self.capacity_freed.map(|at| at + EVICTION_QUIET_PERIOD);
        let after_period = self.last_full_cycle.map(|at| at + self.period);
        // Under constant load there is no quiet period.
        let latest = self.eviction_due_since.map(|at| at + self.period);
        let quiet = after_allocate.max(after_freed);
        let quiet = quiet.zip(latest).map_or(quiet, |(quiet, latest)| Some(quiet.min(latest)));
        quiet.max(after_period).max(after_leading).unwrap_or_else(Instant::now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn burst_of_events_is_debounced_up_to_a_maximum() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        assert_eq!(trigger.next(), None, "an idle cluster starts no cycles");
        trigger.record_event(start, Impact::Replan);
        assert_eq!(trigger.next(), Some((start + 5 * MS, Scope::AllocateOnly)));
        for step in 1..20 {
            trigger.record_event(start + 4 * step * MS, Impact::Replan);
        }
        assert_eq!(trigger.next(), Some((start + 50 * MS, Scope::AllocateOnly)));
        trigger.record_cycle(start + 50 * MS, Scope::AllocateOnly, false);
        assert_eq!(trigger.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_on_an_idle_cluster_starts_a_cycle_at_once_and_the_rest_of_a_burst_does_not() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        trigger.record_event(start, Impact::AddsPod);
        trigger.record_event(start, Impact::AddsPod);
        assert_eq!(trigger.next(), Some((start, Scope::AllocateOnly)));
        trigger.record_cycle(start, Scope::AllocateOnly, false);
        assert_eq!(trigger.next(), None);
        // One every 3 ms.
        let mut cycles = Vec::new();
        for step in 1..=100 {
            let now = start + 3 * step * MS;
            while let Some((at, scope)) = trigger.next().filter(|(at, _)| *at <= now) {
                cycles.push(at - start);
                trigger.record_cycle(at, scope, false);
            }
            trigger.record_event(now, Impact::AddsPod);
        }
        assert_eq!(cycles, [53, 104, 155, 206, 257].map(|at| at * MS), "as without the first");
    }

    #[tokio::test(start_paused = true)]
    async fn pod_in_a_burst_or_soon_after_a_cycle_is_debounced() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        trigger.record_event(start, Impact::Replan);
        trigger.record_event(start + MS, Impact::AddsPod);
        assert_eq!(trigger.next(), Some((start + 6 * MS, Scope::AllocateOnly)), "a burst has begun");
        trigger.record_cycle(start + 6 * MS, Scope::AllocateOnly, false);
        trigger.record_event(start + 25 * MS, Impact::AddsPod);
        assert_eq!(trigger.next(), Some((start + 30 * MS, Scope::AllocateOnly)), "19 ms after a cycle");
        trigger.record_cycle(start + 30 * MS, Scope::AllocateOnly, false);
        trigger.record_event(start + 50 * MS, Impact::AddsPod);
        assert_eq!(trigger.next(), Some((start + 50 * MS, Scope::AllocateOnly)));
    }

    #[tokio::test(start_paused = true)]
    async fn group_that_follows_its_pod_starts_the_cycle_of_both() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        trigger.record_event(start, Impact::AwaitsGroup);
        assert_eq!(trigger.next(), Some((start + 50 * MS, Scope::AllocateOnly)), "if no group comes");
        trigger.record_event(start + 4 * MS, Impact::AddsPod);
        assert_eq!(trigger.next(), Some((start + 4 * MS, Scope::AllocateOnly)));
        trigger.record_cycle(start + 4 * MS, Scope::AllocateOnly, false);
        assert_eq!(trigger.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cycle_at_once_does_not_hasten_evictions() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        trigger.record_event(start, Impact::AddsPod);
        trigger.record_cycle(start, Scope::AllocateOnly, true);
        assert_eq!(trigger.next(), Some((start + 5 * MS, Scope::AllActions)));
        trigger.record_event(start + 3 * MS, Impact::AddsPod);
        assert_eq!(trigger.next(), Some((start + 8 * MS, Scope::AllocateOnly)), "it goes before evictions");
    }

    #[tokio::test(start_paused = true)]
    async fn eviction_waits_while_capacity_is_being_freed() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        trigger.record_event(start, Impact::FreesCapacity);
        trigger.record_cycle(start + 5 * MS, Scope::AllocateOnly, true);
        assert_eq!(trigger.next(), Some((start + 100 * MS, Scope::AllActions)));
        trigger.record_event(start + 60 * MS, Impact::FreesCapacity);
        assert_eq!(trigger.next(), Some((start + 65 * MS, Scope::AllocateOnly)));
        trigger.record_cycle(start + 65 * MS, Scope::AllocateOnly, true);
        assert_eq!(trigger.next(), Some((start + 160 * MS, Scope::AllActions)));
        trigger.record_cycle(start + 160 * MS, Scope::AllActions, true);
        assert_eq!(trigger.next(), None, "without a change another cycle would decide the same");
        trigger.record_event(start + 200 * MS, Impact::Replan);
        trigger.record_cycle(start + 205 * MS, Scope::AllocateOnly, true);
        assert_eq!(trigger.next(), Some((start + 1160 * MS, Scope::AllActions)), "once a period");
    }

    #[tokio::test(start_paused = true)]
    async fn eviction_is_not_delayed_beyond_a_period_under_constant_load() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        let mut full_cycles = Vec::new();
        for step in 0..150 {
            let now = start + 20 * step * MS;
            trigger.record_event(now, Impact::FreesCapacity);
            while let Some((at, scope)) = trigger.next().filter(|(at, _)| *at <= now + 19 * MS) {
                let at = at.max(now);
                trigger.record_cycle(at, scope, true);
                full_cycles.extend((scope == Scope::AllActions).then(|| at - start));
            }
        }
        assert_eq!(full_cycles.len(), 2, "{full_cycles:?}");
        assert!(full_cycles[0] <= 1_020 * MS, "{full_cycles:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn timer_starts_a_cycle_with_all_actions() {
        let start = Instant::now();
        let mut trigger = CycleTrigger::new(Duration::from_secs(1));
        trigger.record_cycle(start, Scope::AllActions, true);
        trigger.set_timer(Some(start + 60_000 * MS));
        assert_eq!(trigger.next(), Some((start + 60_000 * MS, Scope::AllActions)));
        trigger.set_timer(Some(start + 10 * MS));
        assert_eq!(trigger.next(), Some((start + 1_000 * MS, Scope::AllActions)));
    }
}
