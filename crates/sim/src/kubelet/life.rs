//! Where a pod is in its life, as its status tells it.

use crate::controllers::{annotation, int_at, time};
use crate::well_known;
use jiff::Timestamp;
use kai_object as object;
use serde_json::Value;
use std::time::Duration;

/// How long the second restart waits; the wait doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(10);
/// The longest wait.
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The node has not taken it in.
    New,
    /// Its containers are being made.
    Starting { since: Timestamp },
    /// Its containers run.
    Running { since: Timestamp },
    /// Its containers ended and will be started again.
    Resting { since: Timestamp, restarts: i64 },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) code: i64,
    pub(super) reason: &'static str,
}

/// Where the pod is in its life. All its containers share it.
pub(super) fn stage(pod: &Value) -> Stage {
    let Some(taken) = time::at(pod, "/status/startTime") else { return Stage::New };
    let container = pod.pointer("/status/containerStatuses/0").unwrap_or(&Value::Null);
    if let Some(since) = time::at(container, "/state/running/startedAt") {
        return Stage::Running { since };
    }
    match time::at(container, "/lastState/terminated/finishedAt") {
        Some(since) => Stage::Resting { since, restarts: int_at(container, "/restartCount", 0) },
        None => Stage::Starting { since: taken },
    }
}

/// How the current run ends when its time is over: as the pod's annotation says for this run.
pub(super) fn ending(pod: &Value) -> Ending {
    let run = int_at(pod, "/status/containerStatuses/0/restartCount", 0);
    let codes: Vec<i64> = annotation(pod, well_known::EXIT_CODE)
        .split(',')
        .filter_map(|code| code.trim().parse().ok())
        .collect();
    let at = usize::try_from(run).unwrap_or(0).min(codes.len().saturating_sub(1));
    let code = codes.get(at).copied().unwrap_or(0);
    Ending { code, reason: if code == 0 { "Completed" } else { "Error" } }
}

/// Whether the pod's containers are started again after this ending.
pub(super) fn restarts_after(pod: &Value, ending: Ending) -> bool {
    match object::str_at(pod, "/spec/restartPolicy") {
        "Never" => false,
        "OnFailure" => ending.code != 0,
        _ => true,
    }
}

/// How long a pod rests before it is started again.
pub(super) fn backoff(restarts: i64) -> Duration {
    match u32::try_from(restarts).unwrap_or(0) {
        0 => Duration::from_secs(1),
        restarts => BACKOFF.saturating_mul(1 << (restarts - 1).min(10)).min(BACKOFF_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exit_codes_are_taken_run_by_run() {
        let pod = |restarts: i64| {
            json!({
                "metadata": {"annotations": {well_known::EXIT_CODE: "3,1,0"}},
                "status": {"containerStatuses": [{"restartCount": restarts}]},
            })
        };
        assert_eq!([0, 1, 2, 9].map(|restarts| ending(&pod(restarts)).code), [3, 1, 0, 0]);
        assert_eq!(ending(&json!({})).code, 0);
    }

    #[test]
    fn restarts_wait_longer_and_longer() {
        assert_eq!([0, 1, 2, 3, 20].map(|count| backoff(count).as_secs()), [1, 10, 20, 40, 300]);
    }
}
