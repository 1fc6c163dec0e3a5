//! The period of which usage counts.

use croner::Cron;
use jiff::tz::TimeZone;
use kai_units::{Span, Timestamp};

/// Where the length of a window cannot be computed.
const WEEK: Span = Span::from_secs(7 * 24 * 3_600);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Window {
    /// The last period of this length; `text` is its PromQL duration.
    Sliding { text: String, length: Span },
    /// Since the last multiple of `length` after `start`.
    Tumbling { start: Timestamp, length: Span },
    /// Since the last occurrence of the schedule, in UTC.
    Cron(Box<Cron>),
}

impl Window {
    /// When the window that contains `now` began; `None` if the first one is in the future.
    pub(super) fn begin(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Sliding { length, .. } => Some(Timestamp(now.0.saturating_sub(length.0))),
            Self::Tumbling { start, length } => {
                let since = now.0.saturating_sub(start.0);
                // On the boundary the new window is empty, so the previous one counts.
                let into = since.rem_euclid(length.0);
                (since > 0).then(|| Timestamp(now.0 - if into == 0 { length.0 } else { into }))
            }
            Self::Cron(schedule) => {
                let now = jiff::Timestamp::from_microsecond(now.0).ok()?.to_zoned(TimeZone::UTC);
                let before = schedule.find_previous_occurrence(&now, false).ok()?;
                Some(Timestamp(before.timestamp().as_microsecond()))
            }
        }
    }

    pub(super) fn length(&self, now: Timestamp) -> Span {
        match self {
            Self::Sliding { length, .. } | Self::Tumbling { length, .. } => *length,
            Self::Cron(schedule) => {
                let next = |now: Timestamp| {
                    let now = jiff::Timestamp::from_microsecond(now.0).ok()?.to_zoned(TimeZone::UTC);
                    schedule.find_next_occurrence(&now, false).ok()
                };
                let end = next(now).map(|end| Timestamp(end.timestamp().as_microsecond()));
                let length = self.begin(now).zip(end).map(|(begin, end)| end - begin);
                length.filter(|length| length.0 > 0).unwrap_or(WEEK)
            }
        }
    }

    /// Whether usage starts at zero when the window begins.
    pub(super) fn is_reset(&self) -> bool {
        !matches!(self, Self::Sliding { .. })
    }
}
