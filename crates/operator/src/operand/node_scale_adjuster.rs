//! The node scale adjuster, and the service account of the scaling pods that it creates.

use super::{LIMITED_BY_FLAGS, client_limits, flag, limits_of, log_format, without_budget};
use crate::settings::{Settings, enabled, image, unusual_pull_policy};
use crate::workload::{Workload, secret_references, service_account};
use crate::{Facts, Operand, resources};
use kai_api::config::NodeScaleAdjuster;
use kai_api::well_known::name;
use serde_json::{Value, json};

const NAME: &str = "node-scale-adjuster";

pub(super) fn operand(settings: &Settings, facts: &Facts) -> Operand {
    let NodeScaleAdjuster { service, vpa, args } = &settings.node_scale_adjuster;
    let mut operand = Operand { name: "NodeScaleAdjuster", ..Operand::default() };
    if !enabled(service.as_ref()) {
        return operand;
    }
    let what = args.clone().unwrap_or_default();
    let namespace = what.node_scale_namespace.unwrap_or_else(|| name::SCALE_ADJUST.to_owned());
    let account = what.node_scale_service_account.unwrap_or_else(|| name::SCALE_ADJUST.to_owned());
    let mut args = Vec::new();
    flag(&mut args, "--scheduler-name", &settings.scheduler_name);
    flag(&mut args, "--scaling-pod-service-account", &account);
    let scaling_image = image(what.scaling_pod_image.as_ref(), "scalingpod", &facts.images);
    flag(&mut args, "--scaling-pod-image", &scaling_image);
    if let Some(policy) = unusual_pull_policy(what.scaling_pod_image.as_ref()) {
        flag(&mut args, "--scaling-pod-image-pull-policy", &policy);
    }
    flag(&mut args, "--scale-adjust-namespace", &namespace);
    if let Some(ratio) = what.gpu_memory_to_fraction_ratio {
        flag(&mut args, "--gpu-memory-to-fraction-ratio", &format!("{ratio:.6}"));
    }
    args.extend(client_limits(&limits_of(service.as_ref()), LIMITED_BY_FLAGS));
    log_format(&mut args, settings);
    let workload = Workload {
        name: NAME,
        owner: settings.owner(),
        account: NAME,
        service: service.as_ref(),
        image: "nodescaleadjuster",
        defaults: resources::COMPONENT,
        args,
        // It has no leader election: two of them would both create scaling pods.
        replicas: 1,
        strategy: None,
        container: json!({}),
        volumes: Vec::new(),
        template: json!({}),
    };
    let mut scaling = service_account(&account, &namespace, &settings.owner());
    let secrets = secret_references(&settings.pull_secrets());
    if !secrets.is_empty() {
        kai_object::set(&mut scaling, &["imagePullSecrets"], Value::from(secrets));
    }
    operand.objects.extend([
        workload.deployment(settings, facts),
        service_account(NAME, &settings.namespace, &settings.owner()),
        scaling,
    ]);
    operand.notices.extend(without_budget("nodeScaleAdjuster", service.as_ref(), "it has one replica"));
    workload.scale(settings, vpa.as_ref(), facts, &mut operand);
    operand
}
