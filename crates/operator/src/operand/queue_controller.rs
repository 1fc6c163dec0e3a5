//! The queue controller.

use super::certificate::Webhook;
use super::pod_grouper::is_own_image;
use super::webhook::{Endpoint, Rule, validating, webhook};
use super::{LIMITED_BY_KAI, client_limits, flag, leader_election, limits_of, log_format};
use crate::settings::{Settings, enabled};
use crate::workload::{Port, Workload, service, service_account};
use crate::{Facts, Operand, resources, shard};
use kai_api::SchedulingShard;
use kai_api::config::QueueController;
use kai_api::config::service::PortMapping;
use serde_json::json;

pub(super) const WEBHOOK: Webhook = Webhook { service: NAME, secret: "queue-webhook-tls-secret" };
const NAME: &str = "queue-controller";
const IMAGE: &str = "queuecontroller";
const METRICS_PORT: i64 = 8080;

/// Ports of a Service in front of webhooks: the one that the API server calls, and the one that the process listens on.
pub(super) const WEBHOOK_PORTS: (i64, i64) = (443, 9443);

pub(super) fn operand(settings: &Settings, shards: &[SchedulingShard], facts: &Facts) -> Operand {
    let QueueController { service: deployed, vpa, replicas, controller_service, webhooks, .. } =
        &settings.queue_controller;
    let mut operand = Operand { name: "QueueController", ..Operand::default() };
    if !enabled(deployed.as_ref()) {
        return operand;
    }
    let (secret, trusted) = match WEBHOOK.secret(settings, facts) {
        Ok(secret) => secret,
        Err(error) => return Operand { error: Some(error), ..operand },
    };
    let ports = controller_service.clone().unwrap_or_default();
    let metrics = metrics_port(ports.metrics.as_ref());
    let calls = webhook_port(ports.webhook.as_ref());
    let replicas = settings.replicas(*replicas);
    let owner = settings.owner();
    let workload = Workload {
        name: NAME,
        owner: owner.clone(),
        account: NAME,
        service: deployed.as_ref(),
        image: IMAGE,
        defaults: resources::COMPONENT,
        args: [
            arguments(settings, replicas, metrics.target, calls.target),
            implicit_groups(settings, shards, facts),
        ]
        .concat(),
        replicas,
        strategy: None,
        container: json!({"volumeMounts": [Webhook::mount()]}),
        volumes: vec![WEBHOOK.volume()],
        template: json!({}),
    };
    let called = calls.number;
    operand.objects.extend([
        secret,
        workload.deployment(settings, facts),
        service_account(NAME, &settings.namespace, &owner),
        service(NAME, &settings.namespace, &owner, &[calls, metrics]),
    ]);
    let webhooks = webhooks.clone().unwrap_or_default();
    if webhooks.enable_validation.unwrap_or(true) {
        let prefix = webhooks.webhook_configuration_name_prefix;
        let prefix = prefix.as_deref().unwrap_or("kai-queue-validation-");
        let path = "/validate-scheduling-run-ai-v2-queue";
        let rule = Rule {
            operations: &["CREATE", "UPDATE"],
            group: "scheduling.run.ai",
            version: "v2",
            resource: "queues",
            scope: "Cluster",
        };
        let endpoint = Endpoint { service: NAME, path, port: called, trusted: &trusted };
        let webhook = webhook(settings, "queue-validation.kai.scheduler", &endpoint, &rule);
        operand.objects.push(validating(settings, &format!("{prefix}v2"), NAME, &[webhook]));
    }
    operand.objects.extend(workload.disruption_budget(settings));
    workload.scale(settings, vpa.as_ref(), facts, &mut operand);
    operand
}

/// What it needs to count pods without a PodGroup, where a shard has some. An image of another version need not know it.
fn implicit_groups(settings: &Settings, shards: &[SchedulingShard], facts: &Facts) -> Vec<String> {
    let pools = shard::implicit_groups(settings, shards);
    let service = settings.queue_controller.service.as_ref();
    let mut args = Vec::new();
    if !pools.is_empty() && is_own_image(service, IMAGE, facts) {
        flag(&mut args, "--implicit-groups", &pools);
        flag(&mut args, "--scheduler-name", &settings.scheduler_name);
        flag(&mut args, "--queue-label-key", &settings.queue_label_key);
        flag(&mut args, "--nodepool-label-key", &settings.node_pool_label_key);
    }
    args
}

/// The port of metrics. The process listens on the target port, which is the port itself when only that is set.
fn metrics_port(mapping: Option<&PortMapping>) -> Port<'_> {
    let port = mapping.and_then(|mapping| mapping.port);
    Port {
        name: mapping.and_then(|mapping| mapping.name.as_deref()).unwrap_or("metrics"),
        number: port.unwrap_or(METRICS_PORT),
        target: mapping.and_then(|mapping| mapping.target_port).or(port).unwrap_or(METRICS_PORT),
    }
}

pub(super) fn webhook_port(mapping: Option<&PortMapping>) -> Port<'_> {
    Port {
        name: mapping.and_then(|mapping| mapping.name.as_deref()).unwrap_or("webhook"),
        number: mapping.and_then(|mapping| mapping.port).unwrap_or(WEBHOOK_PORTS.0),
        target: mapping.and_then(|mapping| mapping.target_port).unwrap_or(WEBHOOK_PORTS.1),
    }
}

/// `--webhook-bind-address`, where the process does not listen on its default port.
pub(super) fn webhook_address(args: &mut Vec<String>, port: i64) {
    if port != WEBHOOK_PORTS.1 {
        flag(args, "--webhook-bind-address", &format!(":{port}"));
    }
}

fn arguments(settings: &Settings, replicas: i32, metrics_port: i64, webhook_port: i64) -> Vec<String> {
    let QueueController {
        service,
        metrics_namespace,
        queue_label_to_metric_label,
        queue_label_to_default_metric_value,
        ..
    } = &settings.queue_controller;
    let mut args = Vec::new();
    flag(&mut args, "--metrics-listen-address", &format!(":{metrics_port}"));
    leader_election(&mut args, replicas);
    let optional = [
        ("--metrics-namespace", metrics_namespace),
        ("--queue-label-to-metric-label", queue_label_to_metric_label),
        ("--queue-label-to-default-metric-value", queue_label_to_default_metric_value),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            flag(&mut args, name, &value);
        }
    }
    args.extend(client_limits(&limits_of(service.as_ref()), LIMITED_BY_KAI));
    log_format(&mut args, settings);
    webhook_address(&mut args, webhook_port);
    args
}
