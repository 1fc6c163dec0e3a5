//! The operand of a shard: one scheduler with its configuration.

mod budgets;
mod configuration;
mod flags;
mod leader;
mod plugins;
mod usage;

use crate::operand::{LIMITED_BY_FLAGS, client_limits, limits_of, prometheus};
use crate::settings::{Settings, enabled, owner};
use crate::workload::{Port, Workload, metadata, service};
use crate::{Facts, Object, ObjectKey, Operand, resources};
use kai_api::SchedulingShard;
use kai_api::well_known::{annotation, env, label_value};
use kai_units::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAME: &str = "SchedulerForShard";
const IMPLICIT_GROUPS: &str = "implicit-groups";
const METRICS_PORT: i64 = 8080;
const METRICS_PORT_NAME: &str = "http-metrics";
const GOGC: i64 = 400;
const MEMORY_RATIO: f64 = 0.9;
/// Also with one replica: while another pod takes over, there are two.
const LEADER_ELECTION: &str = "--leader-elect=true";
const CONFIGURATION_FILE: &str = "/etc/config/config.yaml";
const CONFIGURATION_KEY: &str = "config.yaml";

pub(crate) fn name(shard: &SchedulingShard) -> String {
    shard.metadata.name.clone().unwrap_or_default()
}

/// The operand of a shard while there is no `Config`: what is deployed stays.
pub(crate) fn without_config() -> Operand {
    let error = "there is no Config `kai-config`; hint: install the chart, or create the object".to_owned();
    Operand { name: NAME, error: Some(error), ..Operand::default() }
}

pub(crate) fn operand(
    settings: &Settings,
    shard: &SchedulingShard,
    shards: &[SchedulingShard],
    facts: &Facts,
) -> Operand {
    let mut operand = Operand { name: NAME, ..Operand::default() };
    if !enabled(settings.scheduler.service.as_ref()) {
        return operand;
    }
    match objects(settings, shard, shards, facts, &mut operand) {
        Ok(()) => operand,
        Err(error) => {
            Operand { name: NAME, error: Some(error), notices: operand.notices, ..Operand::default() }
        }
    }
}

fn objects(
    settings: &Settings,
    shard: &SchedulingShard,
    shards: &[SchedulingShard],
    facts: &Facts,
    operand: &mut Operand,
) -> Result<(), String> {
    first_of_its_partition(shard, shards)?;
    let scheduler = &settings.scheduler;
    let name = workload_name(settings, shard);
    let owner =
        owner("SchedulingShard", &self::name(shard), shard.metadata.uid.as_deref().unwrap_or_default());
    let configuration = configuration::yaml(settings, shard)?;
    let replicas = settings.replicas(scheduler.replicas);
    let ports = scheduler.scheduler_service.clone().unwrap_or_default();
    let target = metrics_target(settings);
    let port = Port { name: METRICS_PORT_NAME, number: ports.port.unwrap_or(METRICS_PORT), target };
    let (extra, notices) = further_arguments(settings, shard);
    operand.notices.extend(notices);
    let workload = Workload {
        name: &name,
        owner: owner.clone(),
        account: "scheduler",
        service: scheduler.service.as_ref(),
        image: "scheduler",
        defaults: resources::SCHEDULER,
        args: arguments(settings, shard, &name, target, extra),
        replicas,
        strategy: Some(strategy(&name, settings, facts)),
        container: json!({
            "env": environment(settings, shard)?,
            "volumeMounts": [
                {"name": "config", "mountPath": CONFIGURATION_FILE, "subPath": CONFIGURATION_KEY},
            ],
        }),
        volumes: vec![json!({"name": "config", "configMap": {"name": name}})],
        template: json!({"metadata": {"name": name}}),
    };
    operand.objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": metadata(&name, &settings.namespace, &owner),
        "data": {CONFIGURATION_KEY: configuration},
    }));
    operand.objects.push(workload.deployment(settings, facts));
    operand.objects.extend(workload.disruption_budget(settings));
    let kind = ports.type_.as_deref().unwrap_or("ClusterIP");
    operand.objects.push(metrics_service(settings, &name, &owner, &port, kind, replicas));
    if replicas > 1 {
        let lease = leader::lease_name(settings, shard);
        let endpoint = facts.leaders.get(&lease);
        operand.objects.push(leader::endpoint_slice(settings, &name, &owner, target, endpoint));
    }
    workload.scale(settings, scheduler.vpa.as_ref(), facts, operand);
    Ok(())
}

/// Name of the Deployment of a shard, its ConfigMap and its Service.
pub(crate) fn workload_name(settings: &Settings, shard: &SchedulingShard) -> String {
    format!("{}-{}", settings.scheduler_name, name(shard))
}

/// The port of metrics that the process listens on: the target port, which is the port itself when only that is set.
pub(crate) fn metrics_target(settings: &Settings) -> i64 {
    let ports = settings.scheduler.scheduler_service.as_ref();
    ports.and_then(|ports| ports.target_port.or(ports.port)).unwrap_or(METRICS_PORT)
}

/// The arguments of a shard's scheduler in a process with others. It reads its configuration from the ConfigMap.
pub(crate) fn arguments_of(settings: &Settings, shard: &SchedulingShard) -> Vec<String> {
    let name = workload_name(settings, shard);
    let (extra, _) = further_arguments(settings, shard);
    let mut args = arguments(settings, shard, &name, metrics_target(settings), extra);
    args.retain(|arg| !arg.starts_with("--scheduler-conf="));
    args
}

/// The arguments that a shard sets, and notices about those without an effect.
fn further_arguments(settings: &Settings, shard: &SchedulingShard) -> (Vec<String>, Vec<String>) {
    let (mut extra, mut notices) = flags::of(shard);
    let implicit = format!("--{IMPLICIT_GROUPS}=");
    if selects_pods(settings) && extra.iter().any(|arg| arg.starts_with(&implicit)) {
        extra.retain(|arg| !arg.starts_with(&implicit));
        notices.push(format!(
            "spec.args: `{IMPLICIT_GROUPS}` is ignored, since the Config selects pods or namespaces by labels, which only the pod \
             grouper reads; hint: remove `global.namespaceLabelSelector` and `global.podLabelSelector`"
        ));
    }
    (extra, notices)
}

/// Two schedulers of one node pool would place pods on the same nodes and share a lease. The first by name is deployed.
pub(crate) fn first_of_its_partition(
    shard: &SchedulingShard,
    shards: &[SchedulingShard],
) -> Result<(), String> {
    let partition = |shard: &SchedulingShard| shard.spec.partition_label_value.clone().unwrap_or_default();
    let own = partition(shard);
    let first = shards.iter().filter(|other| partition(other) == own).map(self::name).min();
    match first {
        Some(first) if first != self::name(shard) => Err(format!(
            "spec.partitionLabelValue: shard `{first}` already schedules node pool `{own}`; hint: delete one of both, or \
             give them different node pools"
        )),
        _ => Ok(()),
    }
}

/// How pods are replaced: the old one schedules until the new one runs, and gives it the lease. But one that takes no lease, as
/// KAI's single scheduler, is gone before a new one starts, beside which it would schedule.
fn strategy(name: &str, settings: &Settings, facts: &Facts) -> Value {
    if takes_no_lease(name, settings, facts) {
        json!({"type": "Recreate"})
    } else {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}})
    }
}

/// Whether a pod may be running that takes no lease.
pub(crate) fn takes_no_lease(name: &str, settings: &Settings, facts: &Facts) -> bool {
    let key = ObjectKey::new("Deployment", &settings.namespace, name);
    let Some(current) = facts.objects.get(&key) else { return false };
    if kai_object::str_at(current, "/spec/strategy/type") != "Recreate" {
        return false;
    }
    let args = current.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    let elects = args.is_some_and(|args| args.iter().any(|arg| arg == LEADER_ELECTION));
    let number = |pointer: &str| current.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    // Every pod has these arguments.
    let is_rolled_out = number("/status/observedGeneration") == number("/metadata/generation")
        && number("/status/updatedReplicas") == number("/status/replicas");
    !(elects && is_rolled_out)
}

fn arguments(
    settings: &Settings,
    shard: &SchedulingShard,
    name: &str,
    port: i64,
    extra: Vec<String>,
) -> Vec<String> {
    let partition = shard.spec.partition_label_value.as_deref().unwrap_or_default();
    let mut args = vec![
        format!("--scheduler-conf={CONFIGURATION_FILE}"),
        // The scheduler takes over a changed configuration; nothing in its pod tells of it.
        format!("--scheduler-conf-map={name}"),
        format!("--scheduler-name={}", settings.scheduler_name),
        format!("--namespace={}", settings.namespace),
        format!("--nodepool-label-key={}", settings.node_pool_label_key),
        format!("--partition-label-value={partition}"),
        format!("--resource-reservation-app-label={}", crate::operand::app_label(settings)),
        format!("--queue-label-key={}", settings.queue_label_key),
        format!("--listen-address=:{port}"),
    ];
    if crate::operand::binder_sees_every_pod(settings) {
        args.push("--direct-binding=false".to_owned());
    }
    if let Some(prefix) = &settings.queue_controller.metrics_namespace {
        args.push(format!("--metrics-namespace={prefix}"));
    }
    args.extend(client_limits(&limits_of(settings.scheduler.service.as_ref()), LIMITED_BY_FLAGS));
    args.extend(extra);
    args.push(LEADER_ELECTION.to_owned());
    if settings.json_log {
        args.push("--log-json".to_owned());
    }
    args
}

/// Whether the scheduler of a shard binds pods that need nothing of the binder. The process reads booleans as Go does.
pub(crate) fn binds_directly(settings: &Settings, shard: &SchedulingShard) -> bool {
    let mut args = shard.spec.args.iter().flatten();
    let own = args.find(|(name, _)| *name == "direct-binding").map(|(_, value)| value.as_str());
    own.map_or_else(|| !crate::operand::binder_sees_every_pod(settings), is_true)
}

/// The node pools whose scheduler places pods without a PodGroup, as a value of `--implicit-groups`. Selectors of pods and
/// namespaces are known to the pod grouper alone: what they leave out would be scheduled.
pub(crate) fn implicit_groups(settings: &Settings, shards: &[SchedulingShard]) -> String {
    if selects_pods(settings) {
        return String::new();
    }
    let is_on = |shard: &&SchedulingShard| {
        let value = shard.spec.args.iter().flatten().find(|(name, _)| *name == IMPLICIT_GROUPS);
        value.is_some_and(|(_, value)| is_true(value))
    };
    let pool = |shard: &SchedulingShard| {
        let pool = shard.spec.partition_label_value.clone().filter(|pool| !pool.is_empty());
        pool.unwrap_or_else(|| label_value::DEFAULT_NODE_POOL.to_owned())
    };
    let pools: BTreeSet<String> = shards.iter().filter(is_on).map(pool).collect();
    Vec::from_iter(pools).join(",")
}

fn selects_pods(settings: &Settings) -> bool {
    !settings.namespace_labels.is_empty() || !settings.pod_labels.is_empty()
}

/// As Go parses booleans.
fn is_true(value: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True"].contains(&value)
}

fn environment(settings: &Settings, shard: &SchedulingShard) -> Result<Vec<Value>, String> {
    let ratio = shard.spec.go_mem_limit_ratio.unwrap_or(MEMORY_RATIO);
    let namespace = json!({"fieldRef": {"fieldPath": "metadata.namespace"}});
    let mut variables = vec![
        json!({"name": env::GOGC, "value": settings.scheduler.gogc.unwrap_or(GOGC).to_string()}),
        json!({"name": env::GO_MEM_LIMIT_RATIO, "value": ratio.to_string()}),
        json!({"name": env::NAMESPACE, "valueFrom": namespace}),
    ];
    if let Some(limit) = &shard.spec.go_mem_limit {
        let amount: Quantity = limit.0.parse().map_err(|error| format!("spec.goMemLimit: {error}"))?;
        let bytes = amount.units();
        if bytes <= 0 {
            return Err(format!("spec.goMemLimit: `{}` is not above 0; hint: leave the field out", limit.0));
        }
        variables.push(json!({"name": env::GO_MEM_LIMIT, "value": bytes.to_string()}));
    }
    Ok(variables)
}

/// The Service of the metrics. With several replicas it has no selector: its EndpointSlice names the leader.
fn metrics_service(
    settings: &Settings,
    name: &str,
    owner: &Value,
    port: &Port<'_>,
    kind: &str,
    replicas: i32,
) -> Object {
    let port = Port { name: port.name, number: port.number, target: port.target };
    let mut service = service(name, &settings.namespace, owner, &[port]);
    kai_object::set(
        &mut service,
        &["metadata", "annotations"],
        json!({annotation::PROMETHEUS_SCRAPE: "true"}),
    );
    kai_object::set(&mut service, &["spec", "type"], Value::from(kind));
    if kind == "ClusterIP" {
        kai_object::set(&mut service, &["spec", "clusterIP"], Value::from("None"));
    }
    // Without it the API server chooses `RequireDualStack` for a headless Service without a selector, and then refuses
    // the selector on a cluster with one address family.
    kai_object::set(&mut service, &["spec", "ipFamilyPolicy"], Value::from("PreferDualStack"));
    if replicas > 1 {
        kai_object::map_mut(&mut service, "spec").remove("selector");
    }
    service
}

/// The lease of the scheduler of a shard.
pub(crate) fn lease_name(scheduler_name: &str, partition: &str) -> String {
    match partition {
        "" => scheduler_name.to_owned(),
        partition => format!("{scheduler_name}-{partition}"),
    }
}

/// Address of the Prometheus that the operator deploys.
fn own_prometheus(settings: &Settings) -> String {
    format!("http://{}.{}.svc.cluster.local:{}", prometheus::SERVICE, settings.namespace, prometheus::PORT)
}
