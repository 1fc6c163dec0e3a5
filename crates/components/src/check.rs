//! Whether a process would start with the arguments and the configuration that the operator is about to give it.
//!
//! The operator asks before it replaces a component that works by one that would exit at once.

use crate::command::{first_line, parse};
use crate::{COMPONENTS, Extensions};
use kai_cache::config_file::{self, ConfigError};
use kai_scheduler::usage::Source;
use serde_json::Value;

/// The key of a scheduler's configuration in its ConfigMap.
const CONFIGURATION: &str = "/data/config.yaml";

/// Why the process of a Deployment or DaemonSet would not start, or why a scheduler would refuse its ConfigMap.
pub fn check(object: &Value, extensions: &Extensions) -> Result<(), String> {
    match kai_object::kind(object) {
        "Deployment" | "DaemonSet" => arguments(object, extensions),
        "ConfigMap" => object
            .pointer(CONFIGURATION)
            .and_then(Value::as_str)
            .map_or(Ok(()), |text| configuration(text, extensions)),
        _ => Ok(()),
    }
}

fn arguments(object: &Value, extensions: &Extensions) -> Result<(), String> {
    let account = kai_object::str_at(object, "/spec/template/spec/serviceAccountName");
    let Some(spec) = COMPONENTS.iter().find(|spec| spec.service_account.name == account) else {
        return Ok(());
    };
    let args = object.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    let args = args.into_iter().flatten().filter_map(Value::as_str);
    let program = parse(spec, args).map_err(|error| first_line(&error))?;
    program.check(extensions).map_err(|error| format!("{error:#}"))
}

fn configuration(text: &str, extensions: &Extensions) -> Result<(), String> {
    let config = config_file::read(text, &extensions.scheduler).map_err(|error| {
        if let ConfigError::UnknownAction { name, known } = &error {
            let known = known.join(", ");
            return format!("spec.actions: `{name}` is not an action; hint: the actions are {known}");
        }
        format!("{:#}", anyhow::Error::new(error))
    })?;
    let usage = config.usage_db.as_ref().map(Source::read).transpose();
    usage.map(drop).map_err(|error| format!("spec.usageDBConfig: {:#}", anyhow::Error::new(error)))
}
