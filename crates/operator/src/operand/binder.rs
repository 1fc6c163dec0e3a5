//! The binder, and the service account of the reservation pods that it creates.

use super::{LIMITED_BY_KAI, client_limits, flag, leader_election, limits_of, log_format};
use crate::settings::{Settings, enabled, image, unusual_pull_policy};
use crate::workload::{Port, Workload, secret_references, service, service_account};
use crate::{Facts, Object, ObjectKey, Operand, resources};
use kai_api::config::component::{BinderPlugin, ResourceReservation};
use kai_api::well_known::{label_value, name};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NAME: &str = "binder";
const VOLUME_BINDING: &str = "volumebinding";
const DYNAMIC_RESOURCES: &str = "dynamicresources";
const HAMI_CORE: &str = "hamicore";
const GPU_SHARING: &str = "gpusharing";
const VOLUME_BINDING_TIMEOUT_SECONDS: i64 = 120;
const METRICS_PORT: i64 = 8080;
const PROBE_PORT: i64 = 8081;

pub(super) fn operand(settings: &Settings, facts: &Facts) -> Operand {
    let binder = &settings.binder;
    let mut operand = Operand { name: "Binder", ..Operand::default() };
    if !enabled(binder.service.as_ref()) {
        return operand;
    }
    let replicas = settings.replicas(binder.replicas);
    let workload = Workload {
        name: NAME,
        owner: settings.owner(),
        account: NAME,
        service: binder.service.as_ref(),
        image: NAME,
        defaults: resources::BINDER,
        args: arguments(settings, facts, replicas),
        replicas,
        strategy: Some(json!({"type": "Recreate"})),
        container: json!({}),
        volumes: Vec::new(),
        template: json!({}),
    };
    let owner = settings.owner();
    let port = binder.metrics_port.unwrap_or(METRICS_PORT);
    let metrics = Port { name: "http-metrics", number: port, target: port };
    operand.objects.extend([
        workload.deployment(settings, facts),
        service_account(NAME, &settings.namespace, &owner),
        service(NAME, &settings.namespace, &owner, &[metrics]),
        reservation_account(settings, facts),
    ]);
    operand.objects.extend(workload.disruption_budget(settings));
    workload.scale(settings, binder.vpa.as_ref(), facts, &mut operand);
    operand
}

/// Whether a plugin that is not built in runs, which has to see every pod before it is bound.
pub(crate) fn binder_sees_every_pod(settings: &Settings) -> bool {
    let is_own = |name: &str| ![VOLUME_BINDING, DYNAMIC_RESOURCES, GPU_SHARING, HAMI_CORE].contains(&name);
    let mut plugins = settings.binder.plugins.iter().flatten();
    plugins.any(|(name, plugin)| is_own(name) && plugin.enabled != Some(false))
}

/// Whether containers get the memory limit that HAMi-core enforces; admission has to add the variable.
pub(super) fn hami_core(settings: &Settings) -> bool {
    let plugins = settings.binder.plugins.as_ref();
    plugins.and_then(|plugins| plugins.get(HAMI_CORE)).and_then(|plugin| plugin.enabled).unwrap_or(false)
}

fn arguments(settings: &Settings, facts: &Facts, replicas: i32) -> Vec<String> {
    let binder = &settings.binder;
    let reservation = Reservation::new(settings);
    let scale = settings.node_scale_adjuster.args.as_ref();
    let scale_namespace = scale.and_then(|args| args.node_scale_namespace.as_deref());
    let mut args = Vec::new();
    flag(&mut args, "--scheduler-name", &settings.scheduler_name);
    flag(&mut args, "--resource-reservation-namespace", &reservation.namespace);
    flag(&mut args, "--resource-reservation-service-account", &reservation.account);
    flag(&mut args, "--resource-reservation-app-label", &app_label(settings));
    let pod_image = image(reservation.settings.image.as_ref(), "resource-reservation", &facts.images);
    flag(&mut args, "--resource-reservation-pod-image", &pod_image);
    flag(&mut args, "--scale-adjust-namespace", &scale_namespace.unwrap_or(name::SCALE_ADJUST));
    let probes = binder.probe_port.unwrap_or(PROBE_PORT);
    flag(&mut args, "--health-probe-bind-address", &format!(":{probes}"));
    let metrics = binder.metrics_port.unwrap_or(METRICS_PORT);
    flag(&mut args, "--metrics-bind-address", &format!(":{metrics}"));
    if let Some(count) = binder.max_concurrent_reconciles {
        args.push(format!("--max-concurrent-reconciles={count}"));
    }
    if let Some(policy) = unusual_pull_policy(reservation.settings.image.as_ref()) {
        flag(&mut args, "--resource-reservation-pod-image-pull-policy", &policy);
    }
    if let Some(seconds) = reservation.settings.allocation_timeout {
        args.push(format!("--resource-reservation-allocation-timeout={seconds}"));
    }
    flag(&mut args, "--plugins", &plugins(settings, facts));
    if facts.fake_gpu_nodes {
        args.push("--fake-gpu-nodes".to_owned());
    }
    leader_election(&mut args, replicas);
    args.extend(client_limits(&limits_of(binder.service.as_ref()), LIMITED_BY_KAI));
    log_format(&mut args, settings);
    reservation.pod_arguments(settings, &mut args);
    args
}

/// Settings of reservation pods with their defaults.
struct Reservation {
    namespace: String,
    account: String,
    settings: ResourceReservation,
}

impl Reservation {
    fn new(settings: &Settings) -> Self {
        let settings = settings.binder.resource_reservation.clone().unwrap_or_default();
        let or_default =
            |set: &Option<String>| set.clone().unwrap_or_else(|| name::RESOURCE_RESERVATION.to_owned());
        Self {
            namespace: or_default(&settings.namespace),
            account: or_default(&settings.service_account_name),
            settings,
        }
    }

    fn pod_arguments(&self, settings: &Settings, args: &mut Vec<String>) {
        let own = &self.settings;
        if let Some(class) = own.runtime_class_name.as_ref().filter(|class| !class.is_empty()) {
            args.push(format!("--runtime-class-name={class}"));
        }
        if let Some(resources) = &own.pod_resources {
            flag(args, "--resource-reservation-pod-resources", &json!(resources));
        }
        if let Some(context) = &own.reservation_pod_security_context {
            flag(args, "--resource-reservation-pod-security-context", &json!(context));
        }
        let context = match &own.reservation_container_security_context {
            Some(context) => Some(json!(context)),
            None => settings.security_context(),
        };
        if let Some(context) = context {
            flag(args, "--resource-reservation-container-security-context", &context);
        }
    }
}

/// The label by which the scheduler, too, knows reservation pods.
pub(crate) fn app_label(settings: &Settings) -> String {
    let reservation = settings.binder.resource_reservation.as_ref();
    let own = reservation.and_then(|reservation| reservation.app_label.clone());
    own.unwrap_or_else(|| label_value::RESOURCE_RESERVATION.to_owned())
}

/// The account of reservation pods. Pull secrets that it already has stay: the chart or a user may have added them.
fn reservation_account(settings: &Settings, facts: &Facts) -> Object {
    let reservation = Reservation::new(settings);
    let mut account = service_account(&reservation.account, &reservation.namespace, &settings.owner());
    kai_object::set_meta(&mut account, "labels", None);
    let key = ObjectKey::new("ServiceAccount", &reservation.namespace, &reservation.account);
    let existing = facts.objects.get(&key).and_then(|account| account.get("imagePullSecrets"));
    let existing = existing.and_then(Value::as_array).into_iter().flatten();
    let mut secrets: Vec<String> =
        existing.filter_map(|secret| secret.get("name")?.as_str().map(str::to_owned)).collect();
    for secret in settings.pull_secrets() {
        if !secrets.contains(&secret) {
            secrets.push(secret);
        }
    }
    if !secrets.is_empty() {
        kai_object::set(&mut account, &["imagePullSecrets"], Value::from(secret_references(&secrets)));
    }
    account
}

/// All plugins with their settings, as the binder's flag takes them.
fn plugins(settings: &Settings, facts: &Facts) -> Value {
    let timeout = settings.binder.volume_binding_timeout_seconds.unwrap_or(VOLUME_BINDING_TIMEOUT_SECONDS);
    let timeout = || BTreeMap::from([("bindTimeoutSeconds".to_owned(), timeout.to_string())]);
    let plugin = |enabled: bool, priority: i64, arguments: BTreeMap<String, String>| BinderPlugin {
        enabled: Some(enabled),
        priority: Some(priority),
        arguments: Some(arguments),
    };
    let mut plugins = BTreeMap::from([
        (VOLUME_BINDING.to_owned(), plugin(true, 300, timeout())),
        (DYNAMIC_RESOURCES.to_owned(), plugin(true, 200, timeout())),
        (GPU_SHARING.to_owned(), plugin(true, 100, BTreeMap::new())),
        (HAMI_CORE.to_owned(), plugin(false, 50, BTreeMap::new())),
    ]);
    for (name, own) in settings.binder.plugins.iter().flatten() {
        let merged = plugins.entry(name.clone()).or_default();
        merged.enabled = own.enabled.or(merged.enabled).or(Some(true));
        merged.priority = own.priority.or(merged.priority);
        merged.arguments = own.arguments.clone().or_else(|| merged.arguments.take());
    }
    if let Some(sharing) = plugins.get_mut(GPU_SHARING) {
        let cdi = settings.binder.cdi_enabled.unwrap_or(facts.cdi);
        let arguments = sharing.arguments.get_or_insert_default();
        arguments.entry("cdiEnabled".to_owned()).or_insert_with(|| cdi.to_string());
    }
    for plugin in plugins.values_mut() {
        plugin.arguments = plugin.arguments.take().filter(|arguments| !arguments.is_empty());
    }
    json!(plugins)
}
