//! The `log` subresource of pods: a substitute, since no containers run.
//!
//! The log reports the state of the container. The annotation [`LOG_ANNOTATION`] overrides it.

use super::{Call, find, served};
use crate::object;
use crate::server::Core;
use crate::status_error::StatusError;
use serde_json::Value;
use std::fmt::Write as _;

/// The log text of the containers of a pod, for tests and demonstrations.
pub const LOG_ANNOTATION: &str = "apiserver.local/log";

#[derive(Debug)]
pub struct Log {
    pub text: String,
    /// Whether the log is complete.
    pub complete: bool,
}

/// The log of the container that the call names, or of the only one; `None` if the pod is not bound.
pub fn read(core: &Core, call: &Call) -> Result<Option<Log>, StatusError> {
    let record = find(core, call)?;
    let pod = served(&call.resource, &record);
    let container = choose(call, &pod)?;
    let node = object::str_at(&pod, "/spec/nodeName");
    if node.is_empty() {
        return Ok(None);
    }
    let status = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
        .find(|status| status["name"] == container);
    let state = status.map_or(&Value::Null, |status| &status["state"]);
    let started =
        ["/running/startedAt", "/terminated/startedAt"].iter().find_map(|at| state.pointer(at)?.as_str());
    let Some(started) = started else {
        let reason = object::str_at(state, "/waiting/reason");
        let reason = if reason.is_empty() { "ContainerCreating" } else { reason };
        let message =
            format!("container \"{container}\" in pod \"{}\" is waiting to start: {reason}", call.name);
        return Err(StatusError::bad_request(message));
    };
    let mut text = String::new();
    let printed = object::meta(&pod, "annotations").and_then(|annotations| annotations.get(LOG_ANNOTATION));
    if let Some(printed) = printed.and_then(Value::as_str) {
        text.push_str(printed);
        if !printed.ends_with('\n') {
            text.push('\n');
        }
    } else {
        let _ = writeln!(
            text,
            "{started} container {container} started on simulated node {node}, which runs no containers"
        );
        if let Some(exit) = state.pointer("/terminated/exitCode").and_then(Value::as_i64) {
            let at = object::str_at(state, "/terminated/finishedAt");
            let _ = writeln!(text, "{at} container {container} ended with exit code {exit}");
        }
    }
    let complete = state.get("terminated").is_some() || object::is_terminal(&pod);
    Ok(Some(Log { text: tail(call, text)?, complete }))
}

fn tail(call: &Call, text: String) -> Result<String, StatusError> {
    let Some(lines) = call.query.number("tailLines")? else { return Ok(text) };
    let count = text.lines().count();
    let skip = count.saturating_sub(usize::try_from(lines).unwrap_or(0));
    Ok(text.lines().skip(skip).flat_map(|line| [line, "\n"]).collect())
}

fn choose(call: &Call, pod: &Value) -> Result<String, StatusError> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| object::str_at(container, "/name").to_owned()).collect()
    };
    let (own, init) = (names("containers"), names("initContainers"));
    match call.query.get("container").filter(|name| !name.is_empty()) {
        Some(name) => {
            let known =
                own.iter().chain(&init).chain(&names("ephemeralContainers")).any(|known| known == name);
            if known {
                return Ok(name.to_owned());
            }
            Err(StatusError::bad_request(format!("container {name} is not valid for pod {}", call.name)))
        }
        None if own.len() == 1 => Ok(own[0].clone()),
        None => {
            let mut message = format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                call.name,
                own.join(" ")
            );
            if !init.is_empty() {
                let _ = write!(message, " or one of the init containers: [{}]", init.join(" "));
            }
            Err(StatusError::bad_request(message))
        }
    }
}
