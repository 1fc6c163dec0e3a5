//! Computes the status of a BindRequest after a bind attempt, and whether and when the attempt is repeated.
//!
//! A scheduler regards a request as failed when its phase is `Failed` and it has no backoff limit or has reached it; from
//! then on the scheduler may place the pod elsewhere. Attempts therefore stop exactly there. Failures are counted in the
//! status, which survives a restart of the binder.

use kai_api::BindRequestStatus;
use kai_runtime::backoff::BackoffPolicy;
use std::time::Duration;

/// Delay after the first failed attempt; each further one doubles it.
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    Bound,
    /// Failed for this reason.
    Failed(&'a str),
}

/// The status after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    pub status: BindRequestStatus,
    /// The delay before the next attempt, if there is one.
    pub retry: Option<Duration>,
}

/// Whether further attempts follow. An open request keeps the reservations of its GPU groups.
pub fn is_open(status: &BindRequestStatus, limit: Option<i32>) -> bool {
    match status.phase.as_str() {
        BindRequestStatus::SUCCEEDED => false,
        BindRequestStatus::FAILED => limit.is_some_and(|limit| failures(status) < limit),
        _ => true,
    }
}

/// The status after an attempt, given the status before it and `spec.backoffLimit`.
pub fn next(
    status: &BindRequestStatus,
    limit: Option<i32>,
    outcome: Outcome<'_>,
    delay_max: Duration,
) -> Next {
    let reason = match outcome {
        Outcome::Bound => {
            let status = BindRequestStatus {
                phase: BindRequestStatus::SUCCEEDED.to_owned(),
                reason: String::new(),
                failed_attempts: status.failed_attempts,
            };
            return Next { status, retry: None };
        }
        Outcome::Failed(reason) => reason.to_owned(),
    };
    let phase = BindRequestStatus::FAILED.to_owned();
    let before = failures(status);
    let Some(limit) = limit.filter(|limit| *limit > before) else {
        return Next {
            status: BindRequestStatus { phase, reason, failed_attempts: status.failed_attempts },
            retry: None,
        };
    };
    let failed = before + 1;
    let status = BindRequestStatus { phase, reason, failed_attempts: Some(failed) };
    let delay = BackoffPolicy::new(RETRY_DELAY, delay_max).delay(failed.unsigned_abs());
    Next { status, retry: (failed < limit).then_some(delay) }
}

fn failures(status: &BindRequestStatus) -> i32 {
    status.failed_attempts.unwrap_or(0).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_MAX: Duration = Duration::from_mins(1);

    fn status(phase: &str, failed: Option<i32>) -> BindRequestStatus {
        BindRequestStatus { phase: phase.to_owned(), reason: String::new(), failed_attempts: failed }
    }

    #[test]
    fn request_is_open_until_the_scheduler_regards_it_as_failed() {
        let table = [
            ("", None, None, true),
            ("Pending", Some(7), Some(3), true),
            ("Succeeded", None, Some(3), false),
            ("Failed", None, None, false),
            ("Failed", Some(1), None, false),
            ("Failed", Some(0), Some(0), false),
            ("Failed", Some(1), Some(2), true),
            ("Failed", Some(2), Some(2), false),
        ];
        for (phase, failed, limit, open) in table {
            assert_eq!(is_open(&status(phase, failed), limit), open, "{phase} {failed:?} {limit:?}");
        }
    }

    #[test]
    fn failures_count_against_the_limit_and_the_delay_doubles() {
        // Stored failures, limit; then failures after one more, and the delay in seconds.
        let table = [
            (None, None, None, None),
            (Some(4), None, Some(4), None),
            (None, Some(0), None, None),
            (None, Some(1), Some(1), None),
            (None, Some(2), Some(1), Some(1)),
            (Some(1), Some(3), Some(2), Some(2)),
            (Some(2), Some(2), Some(2), None),
            (Some(3), Some(5), Some(4), Some(8)),
            (Some(10), Some(90), Some(11), Some(60)),
        ];
        for (before, limit, counted, delay) in table {
            let next = next(&status("", before), limit, Outcome::Failed("no"), DELAY_MAX);
            assert_eq!(next.status.failed_attempts, counted, "{before:?} {limit:?}");
            assert_eq!(next.retry.map(|delay| delay.as_secs()), delay, "{before:?} {limit:?}");
            assert_eq!((next.status.phase.as_str(), next.status.reason.as_str()), ("Failed", "no"));
        }
    }

    #[test]
    fn every_failed_attempt_changes_the_status() {
        let mut known = status("", None);
        let mut delays = Vec::new();
        while is_open(&known, Some(4)) {
            let next = next(&known, Some(4), Outcome::Failed("again"), DELAY_MAX);
            assert_ne!(next.status, known, "the count increases");
            known = next.status;
            delays.extend(next.retry.map(|delay| delay.as_secs()));
        }
        assert_eq!((known.failed_attempts, delays), (Some(4), vec![1, 2, 4]));
    }

    #[test]
    fn success_keeps_the_count_and_drops_the_reason() {
        let known = BindRequestStatus { reason: "once".to_owned(), ..status("Failed", Some(2)) };
        let next = next(&known, Some(5), Outcome::Bound, DELAY_MAX);
        assert_eq!(next.status, status("Succeeded", Some(2)));
        assert_eq!(next.retry, None);
    }
}
