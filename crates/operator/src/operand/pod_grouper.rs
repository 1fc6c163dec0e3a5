//! The pod grouper, with its selectors and the arguments of its flags.

use super::{LIMITED_BY_FLAGS, client_limits, flag, leader_election, limits_of, log_format};
use crate::settings::{Settings, enabled};
use crate::workload::{Workload, service_account};
use crate::{Facts, Operand, resources, shard};
use kai_api::SchedulingShard;
use kai_api::config::PodGrouper;
use kai_api::config::service::{ClientConfig, Service};
use serde_json::json;
use std::collections::BTreeMap;

const NAME: &str = "pod-grouper";
const IMAGE: &str = "podgrouper";

pub(super) fn operand(settings: &Settings, shards: &[SchedulingShard], facts: &Facts) -> Operand {
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
        image: IMAGE,
        defaults: resources::COMPONENT,
        args: arguments(settings, shards, facts, replicas),
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

fn arguments(settings: &Settings, shards: &[SchedulingShard], facts: &Facts, replicas: i32) -> Vec<String> {
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
    let (own, of_service) = (k8s_client_config.clone().unwrap_or_default(), limits_of(service.as_ref()));
    let limits = ClientConfig { qps: own.qps.or(of_service.qps), burst: own.burst.or(of_service.burst) };
    args.extend(client_limits(&limits, LIMITED_BY_FLAGS));
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
    if assigns_at_once(settings, shards, facts) {
        args.push("--assign-at-binding=false".to_owned());
    }
    let implicit = shard::implicit_groups(settings, shards);
    if !implicit.is_empty() && is_own_image(service.as_ref(), IMAGE, facts) {
        flag(&mut args, "--implicit-groups", &implicit);
    }
    args
}

/// Whether a scheduler does not name the group of a pod in its Binding: with bind requests for all pods, or where it has an
/// image with a name or tag of its own, which may be KAI's or of another version; a repository of its own is a mirror. Such
/// an image of the pod grouper need not know the flag.
fn assigns_at_once(settings: &Settings, shards: &[SchedulingShard], facts: &Facts) -> bool {
    let bind_directly = is_own_image(settings.scheduler.service.as_ref(), "scheduler", facts)
        && shards.iter().all(|shard| shard::binds_directly(settings, shard));
    is_own_image(settings.pod_grouper.service.as_ref(), IMAGE, facts) && !bind_directly
}

/// Whether a component has no image with a name or tag of its own.
pub(super) fn is_own_image(service: Option<&Service>, name: &str, facts: &Facts) -> bool {
    let image = service.and_then(|service| service.image.as_ref());
    let is = |set: Option<&String>, default: &str| set.is_none_or(|set| set == default);
    image.is_none_or(|image| is(image.name.as_ref(), name) && is(image.tag.as_ref(), &facts.images.tag))
}

/// Labels in the order of their keys, so that the arguments are the same in every reconcile.
fn selector(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
