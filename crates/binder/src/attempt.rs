//! Decides what an attempt means for its bind request: what is written to the status and whether to try again.
//!
//! A scheduler regards a request as failed when its phase is `Failed` and it has no limit or has reached it; it may
//! then give the pod to another node at any time. So a request is tried exactly as long as no scheduler regards it as
//! failed, and every failure is counted in the object, where it outlives the process.

use kai_api::BindRequestStatus;
use std::time::Duration;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The pod is on a node.
    Bound,
    /// It is not, for this reason.
    Failed(&'a str),
}

/// What follows from an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// What the request says from then on.
    pub status: BindRequestStatus,
    /// How long to wait before the next attempt, if there is one.
    pub retry: Option<Duration>,
}

/// Whether the request is still to be tried. Until then it keeps the GPU groups that it names.
pub fn is_open(status: &BindRequestStatus, limit: Option<i32>) -> bool {
    match status.phase.as_str() {
        BindRequestStatus::SUCCEEDED => false,
        BindRequestStatus::FAILED => limit.is_some_and(|limit| failures(status) < limit),
        _ => true,
    }
}

/// What an attempt means for the request.
pub fn after(
    status: &BindRequestStatus,
    limit: Option<i32>,
    outcome: Outcome<'_>,
    longest: Duration,
) -> After {
    let reason = match outcome {
        Outcome::Bound => {
            let status = BindRequestStatus {
                phase: BindRequestStatus::SUCCEEDED.to_owned(),
                reason: String::new(),
                failed_attempts: status.failed_attempts,
            };
            return After { status, retry: None };
        }
        Outcome::Failed(reason) => reason.to_owned(),
    };
    let phase = BindRequestStatus::FAILED.to_owned();
    let before = failures(status);
    let Some(limit) = limit.filter(|limit| *limit > before) else {
        return After {
            status: BindRequestStatus { phase, reason, failed_attempts: status.failed_attempts },
            retry: None,
        };
    };
    let failed = before + 1;
    let status = BindRequestStatus { phase, reason, failed_attempts: Some(failed) };
    After { status, retry: (failed < limit).then(|| delay(before).min(longest)) }
}

/// How long to wait after so many earlier failures: a second, doubled by each.
fn delay(failures: i32) -> Duration {
    Duration::from_secs(1 << failures.clamp(0, 30))
}

fn failures(status: &BindRequestStatus) -> i32 {
    status.failed_attempts.unwrap_or(0).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_mins(1);

    fn status(phase: &str, failed: Option<i32>) -> BindRequestStatus {
        BindRequestStatus { phase: phase.to_owned(), reason: String::new(), failed_attempts: failed }
    }

    #[test]
    fn a_request_is_tried_until_a_scheduler_gives_it_up() {
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
    fn failures_are_counted_against_the_limit_and_the_wait_doubles() {
        // Stored failures, limit; then failures after one more, and the wait in seconds.
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
        for (before, limit, counted, wait) in table {
            let after = after(&status("", before), limit, Outcome::Failed("no"), LONGEST);
            assert_eq!(after.status.failed_attempts, counted, "{before:?} {limit:?}");
            assert_eq!(after.retry.map(|wait| wait.as_secs()), wait, "{before:?} {limit:?}");
            assert_eq!((after.status.phase.as_str(), after.status.reason.as_str()), ("Failed", "no"));
        }
    }

    #[test]
    fn every_failure_of_a_request_is_written_down() {
        let mut known = status("", None);
        let mut waits = Vec::new();
        while is_open(&known, Some(4)) {
            let after = after(&known, Some(4), Outcome::Failed("again"), LONGEST);
            assert_ne!(after.status, known, "each attempt leaves a mark");
            known = after.status;
            waits.extend(after.retry.map(|wait| wait.as_secs()));
        }
        assert_eq!((known.failed_attempts, waits), (Some(4), vec![1, 2, 4]));
    }

    #[test]
    fn success_keeps_the_count_and_drops_the_reason() {
        let known = BindRequestStatus { reason: "once".to_owned(), ..status("Failed", Some(2)) };
        let after = after(&known, Some(5), Outcome::Bound, LONGEST);
        assert_eq!(after.status, status("Succeeded", Some(2)));
        assert_eq!(after.retry, None);
    }
}
