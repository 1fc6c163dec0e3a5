//! Admission: the webhooks of pods and topologies.

use super::certificate::Webhook;
use super::queue_controller::WEBHOOK_PORTS;
use super::webhook::{Endpoint, Rule, mutating, validating, webhook};
use super::{LIMITED_BY_KAI, binder, client_limits, flag, leader_election, limits_of, log_format};
use crate::settings::{Settings, enabled};
use crate::workload::{Port, Workload, service, service_account};
use crate::{Facts, Object, Operand, resources};
use kai_api::config::Admission;
use kai_api::well_known::label;
use serde_json::{Value, json};

pub(super) const WEBHOOK: Webhook = Webhook { service: NAME, secret: "kai-admission-webhook-tls-secret" };
const NAME: &str = "admission";
const METRICS_PORT: i64 = 8080;
const PROBE_PORT: i64 = 8081;
const RUNTIME_CLASS: &str = "nvidia";

pub(super) fn operand(settings: &Settings, facts: &Facts) -> Operand {
    let admission = &settings.admission;
    let mut operand = Operand { name: "KAIAdmission", ..Operand::default() };
    if !enabled(admission.service.as_ref()) {
        return operand;
    }
    let (secret, trusted) = match WEBHOOK.secret(settings, facts) {
        Ok(secret) => secret,
        Err(error) => return Operand { error: Some(error), ..operand },
    };
    let ports = Ports::new(admission);
    let replicas = settings.replicas(admission.replicas);
    let owner = settings.owner();
    let workload = Workload {
        name: NAME,
        owner: owner.clone(),
        account: NAME,
        service: admission.service.as_ref(),
        image: NAME,
        defaults: resources::COMPONENT,
        args: arguments(settings, &ports, replicas),
        replicas,
        strategy: Some(json!({"type": "Recreate"})),
        container: json!({
            "ports": [{"name": "webhook", "containerPort": ports.target, "protocol": "TCP"}],
            "volumeMounts": [Webhook::mount()],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": ports.probe}, "initialDelaySeconds": 5},
        }),
        volumes: vec![WEBHOOK.volume()],
        template: json!({}),
    };
    let calls = Port { name: "webhook", number: ports.service, target: ports.target };
    let metrics = Port { name: "http-metrics", number: ports.metrics, target: ports.metrics };
    operand.objects.extend([secret, workload.deployment(settings, facts)]);
    operand.objects.extend(workload.disruption_budget(settings));
    operand.objects.extend([
        service_account(NAME, &settings.namespace, &owner),
        service(NAME, &settings.namespace, &owner, &[calls, metrics]),
    ]);
    operand.objects.extend(webhooks(settings, &ports, &trusted));
    workload.scale(settings, admission.vpa.as_ref(), facts, &mut operand);
    operand
}

struct Ports {
    service: i64,
    target: i64,
    probe: i64,
    metrics: i64,
}

impl Ports {
    fn new(admission: &Admission) -> Self {
        let own = admission.webhook.clone().unwrap_or_default();
        Self {
            service: own.port.unwrap_or(WEBHOOK_PORTS.0),
            target: own.target_port.unwrap_or(WEBHOOK_PORTS.1),
            probe: own.probe_port.unwrap_or(PROBE_PORT),
            metrics: own.metrics_port.unwrap_or(METRICS_PORT),
        }
    }
}

fn arguments(settings: &Settings, ports: &Ports, replicas: i32) -> Vec<String> {
    let admission = &settings.admission;
    let mut args = Vec::new();
    flag(&mut args, "--scheduler-name", &settings.scheduler_name);
    flag(&mut args, "--webhook-addr", &ports.target);
    flag(&mut args, "--health-probe-bind-address", &format!(":{}", ports.probe));
    flag(&mut args, "--metrics-bind-address", &format!(":{}", ports.metrics));
    let switches = [
        ("--gpu-sharing-enabled", admission.gpu_sharing.unwrap_or(false)),
        ("--hami-core-enabled", binder::hami_core(settings)),
        ("--block-nvidia-visible-devices", admission.block_nvidia_visible_devices.unwrap_or(false)),
    ];
    args.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| format!("{name}=true")));
    leader_election(&mut args, replicas);
    // The deprecated setting replaces the default, not the setting that succeeded it.
    let deprecated = admission.gpu_pod_runtime_class_name.as_ref();
    let class = admission.gpu_fraction_runtime_class_name.clone();
    let class = class.or_else(|| deprecated.is_none().then(|| RUNTIME_CLASS.to_owned()));
    if let Some(class) = class {
        flag(&mut args, "--gpu-fraction-runtime-class-name", &class);
    }
    if let Some(class) = deprecated {
        flag(&mut args, "--gpu-pod-runtime-class-name", &class);
    }
    args.extend(client_limits(&limits_of(admission.service.as_ref()), LIMITED_BY_KAI));
    log_format(&mut args, settings);
    args
}

fn webhooks(settings: &Settings, ports: &Ports, trusted: &str) -> [Object; 2] {
    let admission = &settings.admission;
    let endpoint = |path| Endpoint { service: NAME, path, port: ports.service, trusted };
    let name = format!("{NAME}.{}.svc", settings.namespace);
    let pods =
        |operations| Rule { operations, group: "", version: "v1", resource: "pods", scope: "Namespaced" };
    let topologies = Rule {
        operations: &["CREATE", "UPDATE"],
        group: "kai.scheduler",
        version: "v1alpha1",
        resource: "topologies",
        scope: "Cluster",
    };
    let mut mutate = webhook(settings, &name, &endpoint("/mutate--v1-pod"), &pods(&["CREATE"]));
    kai_object::set(&mut mutate, &["reinvocationPolicy"], Value::from("IfNeeded"));
    let mut validate = webhook(settings, &name, &endpoint("/validate--v1-pod"), &pods(&["CREATE", "UPDATE"]));
    for webhook in [&mut mutate, &mut validate] {
        select_pods(settings, webhook);
    }
    let topology = webhook(
        settings,
        &format!("topology.{name}"),
        &endpoint("/validate-kai-scheduler-v1alpha1-topology"),
        &topologies,
    );
    let named = |own: Option<&String>, default: &str| own.cloned().unwrap_or_else(|| default.to_owned());
    let mutating_name =
        named(admission.mutating_webhook_configuration_name.as_ref(), "mutating-kai-admission");
    let validating_name =
        named(admission.validating_webhook_configuration_name.as_ref(), "validating-kai-admission");
    [
        mutating(settings, &mutating_name, NAME, &[mutate]),
        validating(settings, &validating_name, NAME, &[validate, topology]),
    ]
}

/// Restricts a webhook to pods that KAI schedules; the namespaces that it needs itself stay out.
fn select_pods(settings: &Settings, webhook: &mut Value) {
    let mut expressions = vec![json!({
        "key": label::NAMESPACE_NAME,
        "operator": "NotIn",
        "values": ["kube-system", settings.namespace],
    })];
    if settings.admission.queue_label_selector.unwrap_or(false) {
        expressions.push(json!({"key": settings.queue_label_key, "operator": "Exists"}));
    }
    let mut selector = json!({"matchExpressions": expressions});
    if !settings.namespace_labels.is_empty() {
        kai_object::set(&mut selector, &["matchLabels"], json!(settings.namespace_labels));
    }
    kai_object::set(webhook, &["namespaceSelector"], selector);
    if !settings.pod_labels.is_empty() {
        kai_object::set(webhook, &["objectSelector"], json!({"matchLabels": settings.pod_labels}));
    }
    // A quote in the name would end the text of the expression.
    let scheduler = settings.scheduler_name.replace('\\', "\\\\").replace('\'', "\\'");
    kai_object::set(
        webhook,
        &["matchConditions"],
        json!([{
            "name": "scheduler-name-match",
            "expression": format!("object.spec.schedulerName == '{scheduler}'"),
        }]),
    );
}
