//! Converts flags to component options. A malformed value is an error that names the flag.

use crate::flags::{
    AdmissionFlags, BinderFlags, NodeScaleAdjusterFlags, NumaExporterFlags, PodGroupControllerFlags,
    PodGrouperFlags, QueueControllerFlags, SchedulerFlags,
};
use anyhow::{Context, Result, bail};
use kai_admission::certificate::Lifetime;
use kai_admission::registration::{Endpoint, PodScope};
use kai_api::implicit_group::NodePools;
use kai_api::well_known::env;
use kai_binder::plugin::BinderPlugins;
use kai_cache::{ImplicitGroups, Settings};
use kai_engine::Params;
use kai_engine::plugin::PluginSet;
use kai_podgrouper::OwnRules;
use kai_runtime::Key;
use kai_scheduler::{Binding, Eviction};
use kai_units::{Quantity, Span, duration};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) fn scheduler(flags: &SchedulerFlags, plugins: &PluginSet) -> Result<kai_scheduler::Options> {
    check_metric_prefix(&flags.metrics_namespace)?;
    let settings = Settings {
        scheduler_name: flags.scheduler_name.clone(),
        node_pool_key: flags.nodepool_label_key.clone(),
        node_pool_value: flags.partition_label_value.clone(),
        queue_label_key: flags.queue_label_key.clone(),
        reservation_app: flags.resource_reservation_app_label.clone(),
        cpu_worker_label: flags.cpu_worker_node_label_key.clone(),
        gpu_worker_label: flags.gpu_worker_node_label_key.clone(),
        mig_label: flags.mig_worker_node_label_key.clone(),
        restrict_nodes: flags.restrict_node_scheduling,
        full_hierarchy_fairness: flags.full_hierarchy_fairness,
        implicit_groups: if flags.implicit_groups {
            ImplicitGroups::OfAllPods
        } else {
            ImplicitGroups::OfPlacedPods
        },
        ..Settings::default()
    };
    let pool = match flags.partition_label_value.as_str() {
        "" => "default",
        pool => pool,
    };
    let params = Params {
        restrict_nodes: flags.restrict_node_scheduling,
        max_consolidation_victims: u32::try_from(flags.max_consolidation_preemptees).ok(),
        use_signatures: flags.use_scheduling_signatures,
        allow_consolidating_reclaim: flags.allow_consolidating_reclaim,
        staleness_grace: span("default-staleness-grace-period", &flags.default_staleness_grace_period)?,
        stuck_threshold: span("stuck-in-releasing-threshold", &flags.stuck_in_releasing_threshold)?,
        csi_storage: flags.schedule_csi_storage,
        device_claims: true,
        node_pool: pool.to_owned(),
    };
    let mut config = match &flags.scheduler_conf {
        Some(path) => crate::config::read(path, plugins)?,
        None => kai_cache::config_file::SchedulerConfig::default(),
    };
    let usage = kai_scheduler::configuration::usage_source(&mut config);
    let usage = usage.context("invalid `usageDBConfig` in the scheduler configuration")?;
    let period = span("schedule-period", &flags.schedule_period)?;
    Ok(kai_scheduler::Options {
        settings,
        config,
        config_map: flags.scheduler_conf_map.as_ref().map(|name| Key::new(&flags.namespace, name)),
        params,
        period: Duration::from_micros(u64::try_from(period.0).context("`--schedule-period` is negative")?),
        eviction: if flags.update_pod_eviction_condition {
            Eviction::DeleteWithCondition
        } else {
            Eviction::Api
        },
        binding: if flags.direct_binding { Binding::Direct } else { Binding::Requests },
        detailed_fit_errors: flags.detailed_fit_errors,
        condition_hints: flags.condition_hints,
        metrics_namespace: flags.metrics_namespace.clone(),
        usage,
        ..kai_scheduler::Options::default()
    })
}

pub(crate) fn binder(flags: &BinderFlags, own: &BinderPlugins) -> Result<kai_binder::Options> {
    let changes: BTreeMap<String, kai_api::config::component::BinderPlugin> = match flags.plugins.as_str() {
        "" => BTreeMap::new(),
        text => serde_json::from_str(text).context("`--plugins` is not a JSON map of plugins")?,
    };
    let seconds = |given: Option<i64>, default: u64| {
        Duration::from_secs(given.and_then(|given| u64::try_from(given).ok()).unwrap_or(default))
    };
    Ok(kai_binder::Options {
        reservation_namespace: flags.resource_reservation_namespace.clone(),
        reservation_service_account: flags.resource_reservation_service_account.clone(),
        reservation_app_label: flags.resource_reservation_app_label.clone(),
        reservation_image: flags.resource_reservation_pod_image.clone(),
        reservation_image_pull_policy: flags.resource_reservation_pod_image_pull_policy.clone(),
        reservation_timeout: Duration::from_secs(flags.resource_reservation_allocation_timeout),
        reservation_resources: json(
            "resource-reservation-pod-resources",
            &flags.resource_reservation_pod_resources,
        )?,
        reservation_pod_security_context: json(
            "resource-reservation-pod-security-context",
            &flags.resource_reservation_pod_security_context,
        )?,
        reservation_container_security_context: json(
            "resource-reservation-container-security-context",
            &flags.resource_reservation_container_security_context,
        )?,
        runtime_class_name: flags.runtime_class_name.clone(),
        fake_gpu_nodes: flags.fake_gpu_nodes,
        scale_adjust_namespace: flags.scale_adjust_namespace.clone(),
        concurrent_max: flags.max_concurrent_reconciles.max(1),
        retry_delay: seconds(flags.rate_limiter_base_delay, 1),
        retry_delay_max: seconds(flags.rate_limiter_max_delay, 60),
        plugins: kai_binder::plugin::resolve_with(&changes, own).context("invalid `--plugins`")?,
        kai_events: flags.kai_events,
        ..kai_binder::Options::default()
    })
}

pub(crate) fn pod_grouper(flags: &PodGrouperFlags, own: &OwnRules) -> kai_podgrouper::Options {
    let (name, namespace) =
        (&flags.default_priorities_configmap_name, &flags.default_priorities_configmap_namespace);
    let both = !name.is_empty() && !namespace.is_empty();
    kai_podgrouper::Options {
        scheduler_name: flags.scheduler_name.clone(),
        queue_label_key: flags.queue_label_key.clone(),
        node_pool_label_key: flags.nodepool_label_key.clone(),
        pod_label_selector: kai_podgrouper::parse_selector(&flags.pod_label_selector),
        namespace_label_selector: kai_podgrouper::parse_selector(&flags.namespace_label_selector),
        search_legacy_groups: flags.search_legacy_pg,
        knative_gang_schedule: flags.knative_gang_schedule,
        generic_karta_fallback: flags.generic_karta_fallback,
        default_priorities: both.then(|| Key::new(namespace, name)),
        max_concurrent_reconciles: flags.max_concurrent_reconciles.max(1),
        assign_at_binding: flags.assign_at_binding,
        implicit_groups: NodePools::parse(&flags.implicit_groups),
        own_rules: own.clone(),
    }
}

pub(crate) fn admission(flags: &AdmissionFlags) -> kai_admission::pod::Options {
    kai_admission::pod::Options {
        scheduler_name: flags.scheduler_name.clone(),
        gpu_sharing: flags.gpu_sharing_enabled,
        hami_core: flags.hami_core_enabled,
        block_visible_devices: flags.block_nvidia_visible_devices,
        runtime_class: kai_admission::pod::runtime_class(
            flags.gpu_fraction_runtime_class_name.as_deref(),
            flags.gpu_pod_runtime_class_name.as_deref(),
        ),
    }
}

/// What the leader of `kai admission` maintains in a namespace.
pub(crate) fn managed_webhooks(
    flags: &AdmissionFlags,
    namespace: &str,
) -> Result<kai_admission::managed::Options> {
    let (host, endpoint) = if let Some(given) = &flags.webhook_host {
        Endpoint::at(given, flags.webhook_addr).with_context(|| {
            format!("`--webhook-host` is `{given}`, which is no host or address with an optional port")
        })?
    } else {
        let service = crate::name::ADMISSION;
        let endpoint = Endpoint::Service { namespace: namespace.to_owned(), name: service.to_owned() };
        (format!("{service}.{namespace}.svc"), endpoint)
    };
    Ok(kai_admission::managed::Options {
        // The name of KAI's.
        secret: Key::new(namespace, "kai-admission-webhook-tls-secret"),
        host,
        endpoint,
        scope: PodScope {
            scheduler_name: flags.scheduler_name.clone(),
            namespace: namespace.to_owned(),
            ..PodScope::default()
        },
        lifetime: lifetime(&flags.webhook_certificate_validity)?,
    })
}

fn lifetime(text: &str) -> Result<Lifetime> {
    const FLAG: &str = "webhook-certificate-validity";
    let validity = u64::try_from(span(FLAG, text)?.0).ok().map(Duration::from_micros);
    validity.and_then(Lifetime::new).with_context(|| {
        format!(
            "`--{FLAG}` is `{text}`, which is too short to replace a certificate; hint: {:?} at least",
            Lifetime::MIN
        )
    })
}

pub(crate) fn pod_group_controller(flags: &PodGroupControllerFlags) -> kai_controllers::podgroup::Options {
    kai_controllers::podgroup::Options {
        scheduler_name: flags.scheduler_name.clone(),
        enable_webhook: flags.enable_podgroup_webhook,
    }
}

pub(crate) fn queue_controller(flags: &QueueControllerFlags) -> Result<kai_controllers::queue::Options> {
    check_metric_prefix(&flags.metrics_namespace)?;
    let options = kai_controllers::queue::Options {
        enable_webhook: flags.enable_webhook,
        enable_quota_validation: flags.enable_quota_validation,
        metrics_namespace: flags.metrics_namespace.clone(),
        metric_labels: pairs("queue-label-to-metric-label", &flags.queue_label_to_metric_label)?,
        metric_label_defaults: pairs(
            "queue-label-to-default-metric-value",
            &flags.queue_label_to_default_metric_value,
        )?,
        implicit_groups: kai_controllers::queue::implicit::Options {
            node_pools: NodePools::parse(&flags.implicit_groups),
            scheduler_name: flags.scheduler_name.clone(),
            queue_label_key: flags.queue_label_key.clone(),
            node_pool_label_key: flags.nodepool_label_key.clone(),
        },
    };
    kai_controllers::queue::check(&options)?;
    Ok(options)
}

pub(crate) fn node_scale_adjuster(
    flags: &NodeScaleAdjusterFlags,
) -> Result<kai_controllers::node_scale::Options> {
    let ratio = flags.gpu_memory_to_fraction_ratio;
    if !(ratio > 0.0 && ratio <= 1.0) {
        bail!("`--gpu-memory-to-fraction-ratio` is `{ratio}`, which is not above 0 and up to 1");
    }
    let quantity = |flag: &str, text: &str| {
        text.parse::<Quantity>()
            .with_context(|| format!("`--{flag}` is not a quantity such as 32 or 128Gi: `{text}`"))
    };
    Ok(kai_controllers::node_scale::Options {
        scheduler_name: flags.scheduler_name.clone(),
        namespace: flags.scale_adjust_namespace.clone(),
        service_account: flags.scaling_pod_service_account.clone(),
        app_label: flags.scaling_pod_app_label.clone(),
        image: flags.scaling_pod_image.clone(),
        image_pull_policy: flags.scaling_pod_image_pull_policy.clone(),
        limits: kai_controllers::node_scale::plan::Limits {
            memory_ratio: ratio,
            scaling_pods_max: flags.max_scaling_pods,
            cpu_milli_max: quantity("max-scaling-pod-cpu", &flags.max_scaling_pod_cpu)?.milli(),
            memory_max: quantity("max-scaling-pod-memory", &flags.max_scaling_pod_memory)?.units(),
            with_claims: flags.scale_for_resource_claims,
        },
    })
}

pub(crate) fn numa_exporter(flags: &NumaExporterFlags) -> Result<kai_numa_exporter::Options> {
    let node = flags.node_name.clone().or_else(|| std::env::var(env::NODE_NAME).ok());
    let node = node.filter(|name| !name.is_empty()).with_context(|| {
        format!(
            "the node is not known; hint: give --node-name, or set `{}` from the downward API",
            env::NODE_NAME
        )
    })?;
    let interval = |flag: &str, text: &str| -> Result<Option<Duration>> {
        let micros = u64::try_from(span(flag, text)?.0).unwrap_or(0);
        Ok((micros > 0).then(|| Duration::from_micros(micros)))
    };
    Ok(kai_numa_exporter::Options {
        node,
        socket: flags.podresources_socket.clone(),
        sysfs: flags.sysfs_root.clone(),
        poll_interval: interval("poll-interval", &flags.poll_interval)?
            .context("`--poll-interval` is not above 0")?,
        resync_interval: interval("drift-resync-interval", &flags.drift_resync_interval)?,
    })
}

/// Metric names begin with a letter, `_` or `:`, and digits may follow.
fn check_metric_prefix(prefix: &str) -> Result<()> {
    let is_valid = |(at, letter): (usize, char)| {
        letter.is_ascii_alphabetic() || matches!(letter, '_' | ':') || (at > 0 && letter.is_ascii_digit())
    };
    if !prefix.char_indices().all(is_valid) {
        bail!("`--metrics-namespace` is `{prefix}`, which is not a prefix of metric names such as `kai`");
    }
    Ok(())
}

fn span(flag: &str, text: &str) -> Result<Span> {
    duration::parse_go(text)
        .with_context(|| format!("`--{flag}` is not a duration such as 90s or 5m: `{text}`"))
}

fn json<T: DeserializeOwned>(flag: &str, text: &str) -> Result<Option<T>> {
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).with_context(|| format!("`--{flag}` cannot be parsed: `{text}`"))
}

fn pairs(flag: &str, text: &str) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            bail!("`--{flag}` has `{part}`, which is not `key=value`");
        };
        pairs.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_of_certificates_leaves_time_to_replace_them() {
        assert_eq!(lifetime("8760h").unwrap(), Lifetime::default());
        for invalid in ["1s", "-1h", "soon", ""] {
            assert!(lifetime(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn prefix_that_makes_no_metric_names_is_an_error() {
        for valid in ["kai", "", "_a1:b"] {
            assert!(check_metric_prefix(valid).is_ok(), "{valid}");
        }
        for invalid in ["1a", "a b", "ü", "a-b"] {
            assert!(check_metric_prefix(invalid).is_err(), "{invalid}");
        }
    }
}
