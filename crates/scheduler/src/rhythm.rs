//! When a cycle begins, and whether it may evict.
//!
//! Changes come in bursts: a cycle waits until a burst is over, but not for long. Evicting waits longer, because what
//! the next event frees need not be taken from anybody, and it happens at most once a period; but where something always
//! happens it does not wait longer than that. When nothing has changed
//! since the last cycle that could evict, another one would decide the same, so there is none until a timer says that
//! time itself has changed something.

use std::time::Duration;
use tokio::time::Instant;

/// A burst is over when nothing came for this long,
const PAUSE: Duration = Duration::from_millis(5);
/// or after this time.
const BURST_MAX: Duration = Duration::from_millis(50);
/// How long nothing may have come that placing could use before somebody is evicted.
const QUIET: Duration = Duration::from_millis(100);

/// What a cycle may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Place pods where there is room.
    Placing,
    /// Everything that is configured.
    Everything,
}

/// How much a change matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// It changes no decision.
    Nothing,
    /// It may change a decision.
    Matters,
    /// It may give room to those who wait.
    MakesRoom,
}

/// Keeps the time.
#[derive(Debug)]
pub(crate) struct Rhythm {
    period: Duration,
    /// The burst that has not been planned for.
    burst: Option<(Instant, Instant)>,
    room_made: Option<Instant>,
    /// When somebody could last be evicted.
    evicted: Option<Instant>,
    /// Something has changed since then.
    unsettled: bool,
    /// There are groups for which somebody might be evicted.
    wanting: bool,
    /// Since when both are so.
    asked: Option<Instant>,
    timer: Option<Instant>,
}

impl Rhythm {
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            period,
            burst: None,
            room_made: None,
            evicted: None,
            unsettled: true,
            wanting: false,
            asked: None,
            timer: None,
        }
    }

    /// Something changed.
    pub(crate) fn changed(&mut self, now: Instant, weight: Weight) {
        match weight {
            Weight::Nothing => return,
            Weight::Matters => {}
            Weight::MakesRoom => self.room_made = Some(now),
        }
        self.unsettled = true;
        self.note_asked(now);
        self.burst = Some(self.burst.map_or((now, now), |(first, _)| (first, now)));
    }

    /// Time alone changes something then.
    pub(crate) fn set_timer(&mut self, at: Option<Instant>) {
        self.timer = at;
    }

    /// When the next cycle begins, if nothing else happens, and what it may do.
    pub(crate) fn next(&self) -> Option<(Instant, Scope)> {
        let placing = self.burst.map(|(first, last)| (last + PAUSE).min(first + BURST_MAX));
        let evicting = (self.unsettled && self.wanting).then(|| self.evicting_at(placing));
        let evicting = [evicting, self.timer.map(|at| at.max(self.earliest()))].into_iter().flatten().min();
        match (placing, evicting) {
            (Some(placing), Some(evicting)) if placing < evicting => Some((placing, Scope::Placing)),
            (_, Some(evicting)) => Some((evicting, Scope::Everything)),
            (Some(placing), None) => Some((placing, Scope::Placing)),
            (None, None) => None,
        }
    }

    /// A cycle is over; `wanting` says whether there are groups for which somebody might be evicted.
    pub(crate) fn planned(&mut self, now: Instant, scope: Scope, wanting: bool) {
        self.burst = None;
        self.wanting = wanting;
        match scope {
            Scope::Placing => {}
            Scope::Everything => {
                self.evicted = Some(now);
                self.unsettled = false;
                self.timer = None;
            }
        }
        self.note_asked(now);
    }

    fn note_asked(&mut self, now: Instant) {
        self.asked = (self.wanting && self.unsettled).then(|| self.asked.unwrap_or(now));
    }

    fn earliest(&self) -> Instant {
        self.evicted.map_or_else(Instant::now, |evicted| evicted + self.period)
    }

    fn evicting_at(&self, placing: Option<Instant>) -> Instant {
        // Whatever has just come is placed first.
        let after_placing = placing.map(|at| at + QUIET);
        let after_quiet = self.room_made.map(|at| at + QUIET);
        let after_period = self.evicted.map(|at| at + self.period);
        // There may be no quiet moment.
        let latest = self.asked.map(|at| at + self.period);
        let quiet = after_placing.max(after_quiet);
        let quiet = quiet.zip(latest).map_or(quiet, |(quiet, latest)| Some(quiet.min(latest)));
        quiet.max(after_period).unwrap_or_else(Instant::now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_planned_for_when_it_pauses_or_lasts_too_long() {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(Duration::from_secs(1));
        assert_eq!(rhythm.next(), None, "an idle cluster costs nothing");
        rhythm.changed(start, Weight::Matters);
        assert_eq!(rhythm.next(), Some((start + 5 * MS, Scope::Placing)));
        for step in 1..20 {
            rhythm.changed(start + 4 * step * MS, Weight::Matters);
        }
        assert_eq!(rhythm.next(), Some((start + 50 * MS, Scope::Placing)));
        rhythm.planned(start + 50 * MS, Scope::Placing, false);
        assert_eq!(rhythm.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_is_evicted_only_when_no_room_comes_by_itself() {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(Duration::from_secs(1));
        rhythm.changed(start, Weight::MakesRoom);
        rhythm.planned(start + 5 * MS, Scope::Placing, true);
        assert_eq!(rhythm.next(), Some((start + 100 * MS, Scope::Everything)));
        rhythm.changed(start + 60 * MS, Weight::MakesRoom);
        assert_eq!(rhythm.next(), Some((start + 65 * MS, Scope::Placing)));
        rhythm.planned(start + 65 * MS, Scope::Placing, true);
        assert_eq!(rhythm.next(), Some((start + 160 * MS, Scope::Everything)));
        rhythm.planned(start + 160 * MS, Scope::Everything, true);
        assert_eq!(rhythm.next(), None, "nothing changed: the answer would be the same");
        rhythm.changed(start + 200 * MS, Weight::Matters);
        rhythm.planned(start + 205 * MS, Scope::Placing, true);
        assert_eq!(rhythm.next(), Some((start + 1160 * MS, Scope::Everything)), "once a period");
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_is_evicted_where_there_is_never_quiet() {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(Duration::from_secs(1));
        let mut evicting = Vec::new();
        for step in 0..150 {
            let now = start + 20 * step * MS;
            rhythm.changed(now, Weight::MakesRoom);
            while let Some((at, scope)) = rhythm.next().filter(|(at, _)| *at <= now + 19 * MS) {
                let at = at.max(now);
                rhythm.planned(at, scope, true);
                evicting.extend((scope == Scope::Everything).then(|| at - start));
            }
        }
        assert_eq!(evicting.len(), 2, "{evicting:?}");
        assert!(evicting[0] <= 1_020 * MS, "{evicting:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_starts_a_cycle_that_may_evict() {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(Duration::from_secs(1));
        rhythm.planned(start, Scope::Everything, true);
        rhythm.set_timer(Some(start + 60_000 * MS));
        assert_eq!(rhythm.next(), Some((start + 60_000 * MS, Scope::Everything)));
        rhythm.set_timer(Some(start + 10 * MS));
        assert_eq!(rhythm.next(), Some((start + 1_000 * MS, Scope::Everything)));
    }
}
