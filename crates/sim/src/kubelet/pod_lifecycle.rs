//! Derives the lifecycle stage of a pod from its status.

use crate::controllers::{annotation, int_at, time};
use crate::well_known;
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::backoff::BackoffPolicy;
use serde_json::Value;
use std::time::Duration;

/// Backoff of the second restart; doubles with each further one.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(10), Duration::from_mins(5));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not admitted yet.
    New,
    /// Containers are being created.
    Starting {
        since: Timestamp,
    },
    Running {
        since: Timestamp,
    },
    /// Containers have exited and are restarted after the backoff.
    BackOff {
        since: Timestamp,
        restarts: i64,
    },
}

/// Exit code and reason of terminated containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContainerExit {
    pub(super) code: i64,
    pub(super) reason: &'static str,
}

/// The stage of a pod; all its containers share it.
pub(super) fn stage(pod: &Value) -> Stage {
    let Some(admitted) = time::at(pod, "/status/startTime") else { return Stage::New };
    let container = pod.pointer("/status/containerStatuses/0").unwrap_or(&Value::Null);
    if let Some(since) = time::at(container, "/state/running/startedAt") {
        return Stage::Running { since };
    }
    match time::at(container, "/lastState/terminated/finishedAt") {
        Some(since) => Stage::BackOff { since, restarts: int_at(container, "/restartCount", 0) },
        None => Stage::Starting { since: admitted },
    }
}

/// The exit of the current run, from the pod's annotation.
pub(super) fn scheduled_exit(pod: &Value) -> ContainerExit {
    let run = int_at(pod, "/status/containerStatuses/0/restartCount", 0);
    let codes: Vec<i64> = annotation(pod, well_known::EXIT_CODE)
        .split(',')
        .filter_map(|code| code.trim().parse().ok())
        .collect();
    let at = usize::try_from(run).unwrap_or(0).min(codes.len().saturating_sub(1));
    let code = codes.get(at).copied().unwrap_or(0);
    ContainerExit { code, reason: if code == 0 { "Completed" } else { "Error" } }
}

/// Whether the restart policy restarts the containers after this exit.
pub(super) fn restarts_after(pod: &Value, exit: ContainerExit) -> bool {
    match object::str_at(pod, "/spec/restartPolicy") {
        "Never" => false,
        "OnFailure" => exit.code != 0,
        _ => true,
    }
}

pub(super) fn backoff(restarts: i64) -> Duration {
    match u32::try_from(restarts).unwrap_or(0) {
        0 => Duration::from_secs(1),
        restarts => BACKOFF.delay(restarts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exit_codes_apply_to_consecutive_runs() {
        let pod = |restarts: i64| {
            json!({
                "metadata": {"annotations": {well_known::EXIT_CODE: "3,1,0"}},
                "status": {"containerStatuses": [{"restartCount": restarts}]},
            })
        };
        assert_eq!([0, 1, 2, 9].map(|restarts| scheduled_exit(&pod(restarts)).code), [3, 1, 0, 0]);
        assert_eq!(scheduled_exit(&json!({})).code, 0);
    }

    #[test]
    fn restart_backoff_doubles_up_to_its_maximum() {
        assert_eq!([0, 1, 2, 3, 20].map(|count| backoff(count).as_secs()), [1, 10, 20, 40, 300]);
    }
}
