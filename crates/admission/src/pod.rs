//! Mutation and validation of pods, by plugins in KAI's order: `gpusharing`, `hamicore`, `deviceaccess`,
//! `runtimeenforcement`. The first refusal ends a review. Pods of other schedulers are never touched.

mod device_access;
mod fields;
mod gpu_sharing;
mod hami_core;
mod runtime_class;

pub use fields::same_request;
pub use gpu_sharing::has_unusable_prefix;

use crate::review::{self, Answer, Cause, Operation, Request, Verdict};
use axum::Router;
use k8s_openapi::api::core::v1::Pod;
use kai_api::spelling;
use kai_api::well_known::name;
use serde_json::Value;
use std::sync::Arc;

/// The paths of KAI's webhooks.
pub const MUTATE_PATH: &str = "/mutate--v1-pod";
pub const VALIDATE_PATH: &str = "/validate--v1-pod";

/// Runtime class of pods that request a part of a GPU, unless configured.
pub const DEFAULT_RUNTIME_CLASS: &str = "nvidia";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Pods with this `schedulerName` are reviewed.
    pub scheduler_name: String,
    /// Whether parts of GPUs may be requested.
    pub gpu_sharing: bool,
    /// Whether containers get a variable with their limit of GPU memory.
    pub hami_core: bool,
    /// Whether devices are hidden from containers that request none.
    pub block_visible_devices: bool,
    /// Runtime class of pods that request a part of a GPU; empty to set none.
    pub runtime_class: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            gpu_sharing: false,
            hami_core: false,
            block_visible_devices: false,
            runtime_class: DEFAULT_RUNTIME_CLASS.to_owned(),
        }
    }
}

/// The runtime class that `--gpu-fraction-runtime-class-name` and its older name `--gpu-pod-runtime-class-name` give.
pub fn runtime_class(given: Option<&str>, by_older_name: Option<&str>) -> String {
    given.or(by_older_name).unwrap_or(DEFAULT_RUNTIME_CLASS).to_owned()
}

pub fn router(options: Options) -> Router {
    let options = Arc::new(options);
    let for_validation = Arc::clone(&options);
    review::route(MUTATE_PATH, move |request| std::future::ready(mutate(&request, &options))).merge(
        review::route(VALIDATE_PATH, move |request| std::future::ready(validate(&request, &for_validation))),
    )
}

/// Answers a request of the mutating webhook.
pub fn mutate(request: &Request, options: &Options) -> Answer {
    if request.operation != Operation::Create {
        return Answer::default();
    }
    if let Err(verdict) = decode(&request.object) {
        return verdict.into();
    }
    if fields::scheduler_name(&request.object) != options.scheduler_name {
        return Answer::default();
    }
    let mut pod = request.object.clone();
    match prepare(&mut pod, request, options) {
        Ok(()) => Answer::changed(&request.object, &pod),
        Err(problem) => Verdict::denied(problem).into(),
    }
}

fn prepare(pod: &mut Value, request: &Request, options: &Options) -> Result<(), String> {
    match (kai_object::namespace(pod), request.namespace.as_str()) {
        ("", "") => {}
        ("", namespace) => kai_object::set_meta(pod, "namespace", Some(Value::from(namespace))),
        (own, namespace) if own == namespace || namespace.is_empty() => {}
        (own, namespace) => {
            return Err(format!(
                "{}: the namespace `{own}` of the pod is not `{namespace}`, that of the request; hint: remove it from the \
                 pod's metadata",
                fields::display_name(pod)
            ));
        }
    }
    // Where sharing is disabled the pod will be refused, so there is nothing to prepare.
    if options.gpu_sharing {
        gpu_sharing::mutate(pod, &request.uid)?;
        if options.hami_core {
            hami_core::mutate(pod)?;
        }
    }
    if options.block_visible_devices {
        device_access::mutate(pod)?;
    }
    if options.gpu_sharing {
        runtime_class::mutate(pod, options);
    }
    Ok(())
}

/// Answers a request of the validating webhook.
pub fn validate(request: &Request, options: &Options) -> Verdict {
    match request.operation {
        Operation::Create | Operation::Update => {}
        Operation::Delete | Operation::Connect => return Verdict::default(),
    }
    let new = &request.object;
    if let Err(verdict) = decode(new) {
        return verdict;
    }
    let old =
        Some(&request.old_object).filter(|old| request.operation == Operation::Update && decode(old).is_ok());
    if let (Some(old), true) = (old, fields::scheduler_name(new) == options.scheduler_name)
        && let Err(problem) = gpu_sharing::validate_update(old, new)
    {
        return Verdict::denied(problem);
    }
    match check(new, options) {
        Ok(()) => Verdict { warnings: warnings(request, options), ..Verdict::default() },
        // Otherwise no finalizer of a pod could be removed that was created under other rules, and it would be
        // terminating for ever. Problems are not compared: only the first is known, so it could hide a new one.
        Err(_) if old.is_some_and(|old| same_request(old, new) && check(old, options).is_err()) => {
            Verdict::default()
        }
        Err(problem) => Verdict::denied(problem),
    }
}

/// Keys that are probably misspelt. An update repeats no warning: controllers update pods many times.
fn warnings(request: &Request, options: &Options) -> Vec<String> {
    let is_own = fields::scheduler_name(&request.object) == options.scheduler_name;
    if request.operation == Operation::Create && is_own {
        spelling::check(&request.object)
    } else {
        Vec::new()
    }
}

/// The rules for a pod. Pods of other schedulers follow none.
pub fn check(pod: &Value, options: &Options) -> Result<(), String> {
    if fields::scheduler_name(pod) != options.scheduler_name {
        return Ok(());
    }
    gpu_sharing::validate(pod, options)?;
    if options.block_visible_devices {
        device_access::validate(pod)?;
    }
    Ok(())
}

/// Whether an object is a pod: of the types that the API declares, quantities included.
fn decode(object: &Value) -> Result<(), Verdict> {
    review::decode::<Pod>("pod", object)?;
    let quantities = fields::all_containers(object).flat_map(|(_, container)| {
        ["requests", "limits"]
            .into_iter()
            .filter_map(|part| container.get("resources")?.get(part)?.as_object())
    });
    for (name, amount) in quantities.flatten() {
        if let Err(error) = fields::quantity(amount) {
            let problem = format!("{}: resource `{name}`: {error}", fields::display_name(object));
            return Err(Verdict::refused(Cause::Undecodable, problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
