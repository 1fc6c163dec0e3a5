//! Future events of simulated objects, by time.

use kai_engine::input::Key;
use kai_units::Timestamp;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    SubmitGroup(Key),
    SubmitPod(Key),
    /// A pod reaches a stage; ignored when the pod has been recreated since (the number is its incarnation).
    Pod(Key, u32, Stage),
}

/// A stage in the lifecycle of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Started,
    Completed,
    Terminated,
}

/// Events by time; those of the same time in insertion order.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventQueue {
    events: BTreeMap<(Timestamp, u64), Event>,
    count: u64,
}

impl EventQueue {
    pub(crate) fn add(&mut self, at: Timestamp, event: Event) {
        self.events.insert((at, self.count), event);
        self.count += 1;
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes the next event that is due at `now`.
    pub(crate) fn pop_until(&mut self, now: Timestamp) -> Option<(Timestamp, Event)> {
        let next = self.events.first_entry()?;
        let at = next.key().0;
        (at <= now).then(|| (at, next.remove()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_and_insertion() {
        let mut events = EventQueue::default();
        let event = |name: &str| Event::SubmitPod(Key::new("ns", name));
        for (at, name) in [(5, "c"), (1, "a"), (1, "b")] {
            events.add(Timestamp(at), event(name));
        }
        assert_eq!(events.next_at(), Some(Timestamp(1)));
        assert_eq!(events.pop_until(Timestamp(2)), Some((Timestamp(1), event("a"))));
        assert_eq!(events.pop_until(Timestamp(2)), Some((Timestamp(1), event("b"))));
        assert_eq!(events.pop_until(Timestamp(2)), None);
        assert_eq!(events.next_at(), Some(Timestamp(5)));
    }
}
