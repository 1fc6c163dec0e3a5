//! What is going to happen, by time.

use kai_engine::input::Key;
use kai_units::Timestamp;
use std::collections::BTreeMap;

/// Something that is going to happen to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A group is submitted.
    SubmitGroup(Key),
    /// A pod is submitted.
    SubmitPod(Key),
    /// A pod in the given life gets to a new stage of it.
    Pod(Key, u32, Stage),
}

/// A stage in the life of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It runs.
    Start,
    /// It has done its work.
    End,
    /// It is gone from its node.
    Leave,
}

/// Events by time; those of the same time in the order in which they were put in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    events: BTreeMap<(Timestamp, u64), Event>,
    count: u64,
}

impl Agenda {
    /// Puts an event in.
    pub(crate) fn add(&mut self, at: Timestamp, event: Event) {
        self.events.insert((at, self.count), event);
        self.count += 1;
    }

    /// When the next event is due.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next event out that is due.
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
    fn events_come_by_time_and_then_as_they_were_put_in() {
        let mut agenda = Agenda::default();
        let event = |name: &str| Event::SubmitPod(Key::new("ns", name));
        for (at, name) in [(5, "c"), (1, "a"), (1, "b")] {
            agenda.add(Timestamp(at), event(name));
        }
        assert_eq!(agenda.next_at(), Some(Timestamp(1)));
        assert_eq!(agenda.pop_until(Timestamp(2)), Some((Timestamp(1), event("a"))));
        assert_eq!(agenda.pop_until(Timestamp(2)), Some((Timestamp(1), event("b"))));
        assert_eq!(agenda.pop_until(Timestamp(2)), None);
        assert_eq!(agenda.next_at(), Some(Timestamp(5)));
    }
}
