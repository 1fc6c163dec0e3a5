//! The operands of the `Config`: one module for each component.

mod admission;
mod binder;
pub(crate) use binder::{app_label, binder_sees_every_pod};
mod certificate;
mod node_scale_adjuster;
mod numa_placement_exporter;
mod pod_grouper;
mod podgroup_controller;
pub(crate) mod prometheus;
mod queue_controller;
mod webhook;

use crate::settings::{Settings, enabled};
use crate::workload::service_account;
use crate::{CertificateRequest, Facts, Operand};
use kai_api::SchedulingShard;
use kai_api::config::service::{ClientConfig, Service};

/// A component that KAI's operator limits although the `Config` does not: requests per second and burst.
const LIMITED_BY_KAI: [Option<i64>; 2] = [Some(20), Some(100)];
/// A component that has the limits of its flags there.
pub(crate) const LIMITED_BY_FLAGS: [Option<i64>; 2] = [None, None];

/// All operands, in the order of KAI's operator, which conditions show.
pub(crate) fn all(settings: &Settings, shards: &[SchedulingShard], facts: &Facts) -> Vec<Operand> {
    vec![
        pod_grouper::operand(settings, shards, facts),
        binder::operand(settings, facts),
        queue_controller::operand(settings, shards, facts),
        podgroup_controller::operand(settings, facts),
        node_scale_adjuster::operand(settings, facts),
        admission::operand(settings, facts),
        prometheus::operand(settings, facts),
        scheduler(settings),
        numa_placement_exporter::operand(settings, shards, facts),
    ]
}

/// The certificates of enabled operands with webhooks.
pub(crate) fn certificates(settings: &Settings) -> Vec<CertificateRequest> {
    let operands = [
        (settings.queue_controller.service.as_ref(), queue_controller::WEBHOOK),
        (settings.pod_group_controller.service.as_ref(), podgroup_controller::WEBHOOK),
        (settings.admission.service.as_ref(), admission::WEBHOOK),
    ];
    let enabled = operands.into_iter().filter(|(service, _)| enabled(*service));
    enabled.map(|(_, webhook)| webhook.certificate(&settings.namespace)).collect()
}

/// The service account that the schedulers of all shards share.
fn scheduler(settings: &Settings) -> Operand {
    let mut operand = Operand { name: "Scheduler", ..Operand::default() };
    if enabled(settings.scheduler.service.as_ref()) {
        operand.objects.push(service_account("scheduler", &settings.namespace, &settings.owner()));
    }
    operand
}

/// The client limits that a `Config` sets for a service.
pub(crate) fn limits_of(service: Option<&Service>) -> ClientConfig {
    service.and_then(|service| service.k8s_client_config.clone()).unwrap_or_default()
}

/// `--qps` and `--burst`; `defaults` fills in what the `Config` does not name, as KAI's operator does.
pub(crate) fn client_limits(set: &ClientConfig, defaults: [Option<i64>; 2]) -> Vec<String> {
    let [qps, burst] = defaults;
    let limits = [("--qps", set.qps.or(qps)), ("--burst", set.burst.or(burst))];
    limits.into_iter().filter_map(|(flag, limit)| Some(format!("{flag}={}", limit?))).collect()
}

/// The notice about a disruption budget that a component cannot have.
fn without_budget(component: &str, service: Option<&Service>, why: &str) -> Option<String> {
    let budget = service.and_then(|service| service.pod_disruption_budget.as_ref())?;
    (budget.enabled == Some(true)).then(|| {
        format!("spec.{component}.service.podDisruptionBudget has no effect: {why}; hint: leave it out")
    })
}

/// The port that a component's webhooks listen on, where the `Config` has one.
pub(crate) fn webhook_port_of(settings: &Settings, component: &str) -> Option<i64> {
    match component {
        "admission" => settings.admission.webhook.as_ref()?.target_port,
        "queue-controller" => {
            settings.queue_controller.controller_service.as_ref()?.webhook.as_ref()?.target_port
        }
        "podgroup-controller" => {
            settings.pod_group_controller.controller_service.as_ref()?.webhook.as_ref()?.target_port
        }
        _ => None,
    }
}

/// Adds two arguments: a flag and its value.
fn flag(args: &mut Vec<String>, name: &str, value: &impl ToString) {
    args.extend([name.to_owned(), value.to_string()]);
}

/// What the log format and several replicas add to a component's arguments.
fn leader_election(args: &mut Vec<String>, replicas: i32) {
    if replicas > 1 {
        args.push("--leader-elect".to_owned());
    }
}

fn log_format(args: &mut Vec<String>, settings: &Settings) {
    if settings.json_log {
        args.push("--zap-devel=false".to_owned());
    }
}
