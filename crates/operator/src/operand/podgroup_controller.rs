//! The pod group controller.

use super::certificate::Webhook;
use super::queue_controller::{webhook_address, webhook_port};
use super::webhook::{Endpoint, Rule, validating, webhook};
use super::{LIMITED_BY_KAI, client_limits, flag, leader_election, limits_of, log_format};
use crate::settings::{Settings, enabled};
use crate::workload::{Workload, service, service_account};
use crate::{Facts, Operand, resources};
use kai_api::config::PodGroupController;
use serde_json::json;

pub(super) const WEBHOOK: Webhook = Webhook { service: NAME, secret: "podgroup-webhook-tls-secret" };
const NAME: &str = "podgroup-controller";

pub(super) fn operand(settings: &Settings, facts: &Facts) -> Operand {
    let PodGroupController { service: deployed, vpa, replicas, controller_service, webhooks, .. } =
        &settings.pod_group_controller;
    let mut operand = Operand { name: "PodGroupController", ..Operand::default() };
    if !enabled(deployed.as_ref()) {
        return operand;
    }
    let (secret, trusted) = match WEBHOOK.secret(settings, facts) {
        Ok(secret) => secret,
        Err(error) => return Operand { error: Some(error), ..operand },
    };
    let ports = controller_service.clone().unwrap_or_default();
    let calls = webhook_port(ports.webhook.as_ref());
    let replicas = settings.replicas(*replicas);
    let owner = settings.owner();
    let workload = Workload {
        name: NAME,
        owner: owner.clone(),
        account: NAME,
        service: deployed.as_ref(),
        image: "podgroupcontroller",
        defaults: resources::COMPONENT,
        args: arguments(settings, replicas, calls.target),
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
        service(NAME, &settings.namespace, &owner, &[calls]),
    ]);
    let webhooks = webhooks.clone().unwrap_or_default();
    if webhooks.enable_validation.unwrap_or(true) {
        let prefix = webhooks.webhook_configuration_name_prefix;
        let prefix = prefix.as_deref().unwrap_or("kai-podgroup-validation-");
        let path = "/validate-scheduling-run-ai-v2alpha2-podgroup";
        let rule = Rule {
            operations: &["CREATE", "UPDATE"],
            group: "scheduling.run.ai",
            version: "v2alpha2",
            resource: "podgroups",
            scope: "Namespaced",
        };
        let endpoint = Endpoint { service: NAME, path, port: called, trusted: &trusted };
        let webhook = webhook(settings, "podgroup-validation.kai.scheduler", &endpoint, &rule);
        operand.objects.push(validating(settings, &format!("{prefix}v2alpha2"), NAME, &[webhook]));
    }
    operand.objects.extend(workload.disruption_budget(settings));
    workload.scale(settings, vpa.as_ref(), facts, &mut operand);
    operand
}

fn arguments(settings: &Settings, replicas: i32, webhook_port: i64) -> Vec<String> {
    let PodGroupController { service, max_concurrent_reconciles, .. } = &settings.pod_group_controller;
    let mut args = Vec::new();
    flag(&mut args, "--scheduler-name", &settings.scheduler_name);
    args.extend(client_limits(&limits_of(service.as_ref()), LIMITED_BY_KAI));
    if let Some(count) = max_concurrent_reconciles {
        flag(&mut args, "--max-concurrent-reconciles", &count);
    }
    leader_election(&mut args, replicas);
    log_format(&mut args, settings);
    webhook_address(&mut args, webhook_port);
    args
}
