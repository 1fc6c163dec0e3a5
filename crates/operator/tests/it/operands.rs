//! Settings of components.

use crate::{arguments, deployed, desired, facts, find, get};
use kai_operator::{Apis, Desired, Facts};
use serde_json::{Value, json};

#[test]
fn selector_arguments_have_one_order() {
    let config = json!({"global": {"namespaceLabelSelector": {"b": "2", "a": "1"}}});
    let args = arguments(&desired(&config, &[], &facts()), "Deployment", "pod-grouper");
    assert!(args.windows(2).any(|pair| pair == ["--namespace-label-selector", "a=1,b=2"]), "{args:?}");
}

#[test]
fn webhook_ports_reach_service_process_and_configuration() {
    let ports = json!({"webhook": {"port": 8443, "targetPort": 9444}});
    let config = json!({
        "queueController": {"controllerService": ports},
        "admission": {"webhook": {"port": 8443}},
    });
    let desired = desired(&config, &[], &facts());
    let args = arguments(&desired, "Deployment", "queue-controller");
    assert!(args.windows(2).any(|pair| pair == ["--webhook-bind-address", ":9444"]), "{args:?}");
    for (name, webhooks) in [("kai-queue-validation-v2", 1), ("validating-kai-admission", 2)] {
        let configuration = get(&desired, "ValidatingWebhookConfiguration", name);
        for webhook in 0..webhooks {
            assert_eq!(configuration["webhooks"][webhook]["clientConfig"]["service"]["port"], 8443, "{name}");
        }
    }
    assert_eq!(get(&desired, "Service", "queue-controller")["spec"]["ports"][0]["targetPort"], 9444);
}

#[test]
fn processes_listen_on_the_port_that_their_service_forwards_to() {
    let config = json!({
        "queueController": {"controllerService": {"metrics": {"port": 9000, "targetPort": 9001}}},
        "scheduler": {"schedulerService": {"port": 9090}},
    });
    let desired = desired(&config, &[("default", json!({}))], &facts());
    let args = arguments(&desired, "Deployment", "queue-controller");
    assert!(args.windows(2).any(|pair| pair == ["--metrics-listen-address", ":9001"]), "{args:?}");
    let args = arguments(&desired, "Deployment", "kai-scheduler-default");
    assert!(args.contains(&"--listen-address=:9090".to_owned()), "{args:?}");
    let port = &get(&desired, "Service", "kai-scheduler-default")["spec"]["ports"][0];
    assert_eq!((&port["port"], &port["targetPort"]), (&json!(9090), &json!(9090)));
}

#[test]
fn autoscaler_without_its_crd_is_a_missing_dependency() {
    let config = json!({"global": {"vpa": {"enabled": true}}});
    let desired = desired(&config, &[], &facts());
    assert!(find(&desired, "VerticalPodAutoscaler", "binder").is_none());
    assert!(find(&desired, "Deployment", "binder").is_some());
    let missing: Vec<&String> = desired.config.iter().flat_map(|operand| &operand.missing).collect();
    assert_eq!(missing.len(), 6, "one for each Deployment: {missing:?}");
}

#[test]
fn client_limits_reach_every_component_that_has_them() {
    let limits = json!({"service": {"k8sClientConfig": {"qps": 7, "burst": 9}}});
    let config = json!({"scheduler": limits, "nodeScaleAdjuster": limits, "podGrouper": limits});
    let desired = desired(&config, &[("default", json!({}))], &facts());
    for name in ["kai-scheduler-default", "node-scale-adjuster", "pod-grouper"] {
        assert_eq!(limits_of(&desired, name), ["--qps=7", "--burst=9"], "{name}");
    }
}

fn limits_of(desired: &Desired, name: &str) -> Vec<String> {
    let args = arguments(desired, "Deployment", name);
    args.into_iter().filter(|arg| arg.starts_with("--qps") || arg.starts_with("--burst")).collect()
}

#[test]
fn component_without_client_limits_in_the_config_has_those_of_kai() {
    let shards =
        [("default", json!({})), ("own", json!({"partitionLabelValue": "b", "args": {"burst": "9"}}))];
    let components = ["binder", "queue-controller", "podgroup-controller", "admission"];
    let of_flags = ["kai-scheduler-default", "pod-grouper", "node-scale-adjuster"];
    let unset = desired(&json!({}), &shards, &facts());
    for name in components {
        assert_eq!(limits_of(&unset, name), ["--qps=20", "--burst=100"], "{name}");
    }
    for name in of_flags {
        assert_eq!(limits_of(&unset, name), [""; 0], "{name}: the flags have defaults");
    }
    assert_eq!(limits_of(&unset, "kai-scheduler-own"), ["--burst=9"], "the shard limits its scheduler");
    // One of both: KAI's value of the other.
    let limits = json!({"service": {"k8sClientConfig": {"burst": 9}}});
    let config = json!({
        "binder": limits, "queueController": limits, "podGroupController": limits, "admission": limits,
        "scheduler": limits, "podGrouper": limits, "nodeScaleAdjuster": limits,
    });
    let set = desired(&config, &shards, &facts());
    for name in components {
        assert_eq!(limits_of(&set, name), ["--qps=20", "--burst=9"], "{name}");
    }
    for name in of_flags {
        assert_eq!(limits_of(&set, name), ["--burst=9"], "{name}: the flag has a default");
    }
}

#[test]
fn grouper_assigns_at_once_where_a_scheduler_does_not_name_the_group_in_the_binding() {
    let at_once = |config: Value, args: Value| {
        let shards = [("default", json!({})), ("b", json!({"partitionLabelValue": "b", "args": args}))];
        let args = arguments(&desired(&config, &shards, &facts()), "Deployment", "pod-grouper");
        args.contains(&"--assign-at-binding=false".to_owned())
    };
    assert!(!at_once(json!({}), json!({})));
    assert!(!at_once(json!({"scheduler": {"service": {"image": {"repository": "mirror"}}}}), json!({})));
    assert!(at_once(json!({"scheduler": {"service": {"image": {"tag": "v0.17.0"}}}}), json!({})));
    let bind_requests = json!({"direct-binding": "false"});
    let other = json!({"podGrouper": {"service": {"image": {"name": "other"}}}});
    assert!(!at_once(other, bind_requests.clone()), "an image of another version need not know the flag");
    assert!(at_once(json!({}), bind_requests), "one shard uses bind requests");
    let plugin = json!({"binder": {"plugins": {"own": {"enabled": true}}}});
    assert!(at_once(plugin, json!({})), "the default shard uses bind requests");
}

#[test]
fn node_pools_with_implicit_groups_are_known_to_all_that_count_or_create_groups() {
    let args_of = |config: Value, name: &str| {
        let on = json!({"implicit-groups": "true"});
        let shards = [
            ("default", json!({"args": on})),
            ("gold", json!({"partitionLabelValue": "gold", "args": on})),
            ("silver", json!({"partitionLabelValue": "silver", "args": {"implicit-groups": "false"}})),
        ];
        arguments(&desired(&config, &shards, &facts()), "Deployment", name)
    };
    let has = |config: Value, name: &str, arg: &str| args_of(config, name).join(" ").contains(arg);
    let pools = "--implicit-groups default,gold";
    assert!(has(json!({}), "pod-grouper", pools) && has(json!({}), "queue-controller", pools));
    assert!(has(json!({}), "queue-controller", "--scheduler-name kai-scheduler"));
    assert!(has(json!({}), "kai-scheduler-gold", "--implicit-groups=true"));
    let kai = json!({"podGrouper": {"service": {"image": {"tag": "v0.17.0"}}}});
    assert!(!has(kai, "pod-grouper", pools), "an image of another version need not know the flag");
    let selected = json!({"global": {"namespaceLabelSelector": {"team": "a"}}});
    for name in ["pod-grouper", "queue-controller", "kai-scheduler-gold"] {
        let args = args_of(selected.clone(), name);
        assert!(!args.iter().any(|arg| arg.starts_with("--implicit-groups")), "{name}: {args:?}");
    }
}

#[test]
fn required_anti_affinity_needs_no_other_affinity() {
    let affinity = |config: Value| {
        let desired = desired(&config, &[], &facts());
        get(&desired, "Deployment", "binder").pointer("/spec/template/spec/affinity").cloned()
    };
    let required = affinity(json!({"global": {"requireDefaultPodAntiAffinityTerm": true}})).unwrap();
    let term = &required["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(term["labelSelector"]["matchLabels"]["app"], "binder");
    assert_eq!(affinity(json!({})), None);
}

#[test]
fn exporter_runs_where_a_shard_has_the_numa_plugin() {
    let exporter = |plugin: Value| {
        let desired = desired(&json!({}), &[("default", json!({"plugins": {"numa": plugin}}))], &facts());
        find(&desired, "DaemonSet", "numa-placement-exporter").is_some()
    };
    assert!(exporter(json!({})), "an entry without `enabled` is enabled");
    assert!(!exporter(json!({"enabled": false})));
}

fn with_prometheus() -> Facts {
    Facts { apis: Apis { prometheus: true, service_monitor: true, ..Apis::default() }, ..facts() }
}

#[test]
fn own_prometheus_is_kept_for_its_retention_when_an_external_one_replaces_it() {
    let own = desired(&json!({"prometheus": {"enabled": true}}), &[], &with_prometheus());
    let mut facts = deployed(&own, &with_prometheus());
    facts.now = "2025-01-01T00:00:00Z".parse().unwrap();
    let external = json!({"prometheus": {"enabled": true, "externalPrometheusUrl": "http://other:9090"}});
    let kept = desired(&external, &[], &facts);
    let instance = get(&kept, "Prometheus", "prometheus");
    assert_eq!(instance["metadata"]["annotations"]["kai/deprecation-timestamp"], "2025-01-01T00:00:00Z");
    assert!(find(&kept, "Service", "usage-prometheus").is_none());
    let mut later = deployed(&kept, &facts);
    later.now = "2025-01-16T00:00:00Z".parse().unwrap();
    assert!(
        find(&desired(&external, &[], &later), "Prometheus", "prometheus").is_none(),
        "two weeks are over"
    );
}

#[test]
fn prometheus_without_our_owner_is_left_alone() {
    let mut facts = with_prometheus();
    let foreign =
        json!({"kind": "Prometheus", "metadata": {"name": "prometheus", "namespace": "kai-scheduler"}});
    facts.objects.insert(kai_operator::ObjectKey::of(&foreign), foreign);
    assert!(find(&desired(&json!({}), &[], &facts), "Prometheus", "prometheus").is_none());
}

#[test]
fn pull_secrets_of_the_reservation_account_stay() {
    let mut facts = facts();
    let account = json!({
        "kind": "ServiceAccount", "imagePullSecrets": [{"name": "old"}],
        "metadata": {"name": "kai-resource-reservation", "namespace": "kai-resource-reservation"},
    });
    facts.objects.insert(kai_operator::ObjectKey::of(&account), account);
    let config = json!({"global": {"additionalImagePullSecrets": ["new", "old"]}});
    let desired = desired(&config, &[], &facts);
    let account = get(&desired, "ServiceAccount", "kai-resource-reservation");
    assert_eq!(account["imagePullSecrets"], json!([{"name": "old"}, {"name": "new"}]));
}

#[test]
fn every_component_with_several_replicas_may_have_a_budget() {
    let budget = json!({"service": {"podDisruptionBudget": {"enabled": true, "maxUnavailable": 2}}});
    let components = ["podGrouper", "binder", "admission", "queueController", "podGroupController"];
    let mut config = json!({"global": {"replicaCount": 3}});
    for component in components.iter().chain(&["nodeScaleAdjuster", "numaPlacementExporter"]) {
        config[component] = budget.clone();
    }
    config["numaPlacementExporter"]["service"]["enabled"] = json!(true);
    let desired = desired(&config, &[], &facts());
    for name in ["pod-grouper", "binder", "admission", "queue-controller", "podgroup-controller"] {
        assert_eq!(get(&desired, "PodDisruptionBudget", name)["spec"]["maxUnavailable"], 2, "{name}");
    }
    let notices: Vec<&String> = desired.config.iter().flat_map(|operand| &operand.notices).collect();
    for component in ["nodeScaleAdjuster", "numaPlacementExporter"] {
        let setting = format!("spec.{component}.service.podDisruptionBudget has no effect");
        assert!(notices.iter().any(|notice| notice.starts_with(&setting)), "{notices:?}");
    }
}

#[test]
fn pull_policies_of_pods_that_components_make_are_passed_on() {
    let config = |policy: &str| {
        json!({
            "binder": {"resourceReservation": {"image": {"pullPolicy": policy}}},
            "nodeScaleAdjuster": {"args": {"scalingPodImage": {"pullPolicy": policy}}},
        })
    };
    for (name, flag) in [
        ("binder", "--resource-reservation-pod-image-pull-policy"),
        ("node-scale-adjuster", "--scaling-pod-image-pull-policy"),
    ] {
        let args = arguments(&desired(&config("Always"), &[], &facts()), "Deployment", name);
        assert!(args.windows(2).any(|pair| pair == [flag, "Always"]), "{args:?}");
        let args = arguments(&desired(&config("IfNotPresent"), &[], &facts()), "Deployment", name);
        assert!(!args.iter().any(|arg| arg == flag), "the default needs no flag: {args:?}");
    }
}

#[test]
fn sample_interval_is_said_to_have_no_effect() {
    let config = json!({"prometheus": {"enabled": true, "sampleInterval": "5m"}});
    let desired = desired(&config, &[], &with_prometheus());
    let notices: Vec<&String> = desired.config.iter().flat_map(|operand| &operand.notices).collect();
    assert!(notices.iter().any(|notice| notice.contains("spec.prometheus.sampleInterval")), "{notices:?}");
}
