//! The pod grouper, with its selectors and the arguments of its flags.

use super::{flag, leader_election, log_format};
use crate::settings::{Settings, enabled};
use crate::workload::{Workload, service_account};
use crate::{Facts, Operand, resources};
use kai_api::config::PodGrouper;
use serde_json::json;
use std::collections::BTreeMap;

const NAME: &str = "pod-grouper";

pub(super) fn operand(settings: &Settings, facts: &Facts) -> Operand {
    let PodGrouper { service, vpa, replicas, .. } = &settings.pod_grouper;
    let mut operand = Operand { name: "PodGrouper", ..Operand::default() };
    if !enabled(service.as_ref()) {
        return operand;
    }
    let replicas = settings.replicas(*replicas);
    let workload = Workload {
        name: NAME,
        owner: settings.owner(),
        account: NAME,
        service: service.as_ref(),
        image: "podgrouper",
        defaults: resources::COMPONENT,
        args: arguments(settings, replicas),
        replicas,
        strategy: None,
        container: json!({}),
        volumes: Vec::new(),
        template: json!({}),
    };
    operand.objects.push(workload.deployment(settings, facts));
    operand.objects.extend(workload.disruption_budget(settings));
    operand.objects.push(service_account(NAME, &settings.namespace, &settings.owner()));
    workload.scale(settings, vpa.as_ref(), facts, &mut operand);
    operand
}

fn arguments(settings: &Settings, replicas: i32) -> Vec<String> {
    let PodGrouper { service, args: what, k8s_client_config, max_concurrent_reconciles, .. } =
        &settings.pod_grouper;
    let what = what.clone().unwrap_or_default();
    let mut args = Vec::new();
    flag(&mut args, "--scheduler-name", &settings.scheduler_name);
    flag(&mut args, "--queue-label-key", &settings.queue_label_key);
    flag(&mut args, "--nodepool-label-key", &settings.node_pool_label_key);
    if let Some(gang) = what.gang_schedule_knative {
        args.push(format!("--knative-gang-schedule={gang}"));
    }
    args.push(format!("--generic-karta-fallback={}", what.generic_karta_fallback.unwrap_or(true)));
    let of_service = service.as_ref().and_then(|service| service.k8s_client_config.as_ref());
    let qps = k8s_client_config.as_ref().and_then(|own| own.qps).or(of_service.and_then(|own| own.qps));
    let burst = k8s_client_config.as_ref().and_then(|own| own.burst).or(of_service.and_then(|own| own.burst));
    if let Some(qps) = qps {
        flag(&mut args, "--qps", &qps);
    }
    if let Some(burst) = burst {
        flag(&mut args, "--burst", &burst);
    }
    if let Some(count) = max_concurrent_reconciles {
        flag(&mut args, "--max-concurrent-reconciles", &count);
    }
    leader_election(&mut args, replicas);
    let map = (what.default_priorities_config_map_name, what.default_priorities_config_map_namespace);
    if let (Some(name), Some(namespace)) = map {
        flag(&mut args, "--default-priorities-configmap-name", &name);
        flag(&mut args, "--default-priorities-configmap-namespace", &namespace);
    }
    if !settings.namespace_labels.is_empty() {
        flag(&mut args, "--namespace-label-selector", &selector(&settings.namespace_labels));
    }
    if !settings.pod_labels.is_empty() {
        flag(&mut args, "--pod-label-selector", &selector(&settings.pod_labels));
    }
    log_format(&mut args, settings);
    args
}

/// Labels in the order of their keys, so that the arguments are the same in every reconcile.
fn selector(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
