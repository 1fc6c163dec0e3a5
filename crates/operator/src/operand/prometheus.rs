//! Prometheus, where the past usage of queues is kept: an instance of the Prometheus operator, or an external one.
//!
//! An instance that is no longer wanted is kept for its retention period, so that switching it off by mistake, or moving
//! to an external one, loses no data.

use crate::facts::Facts;
use crate::settings::Settings;
use crate::workload::{Port, metadata, service, service_account};
use crate::{Object, ObjectKey, Operand};
use kai_api::config::Prometheus;
use kai_api::well_known::{annotation, label, label_value};
use kai_units::{Span, Timestamp, duration};
use serde_json::{Value, json};

/// The Service in front of the instance.
pub(crate) const SERVICE: &str = "usage-prometheus";
pub(crate) const PORT: i64 = 9090;
const API_VERSION: &str = "monitoring.coreos.com/v1";
const INSTANCE: &str = "prometheus";
/// How long an instance without a retention period is kept.
const KEPT_WITHOUT_RETENTION: Span = Span::from_secs(30 * 24 * 3600);
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

pub(super) fn operand(settings: &Settings, facts: &Facts) -> Operand {
    let prometheus = &settings.prometheus;
    let mut operand = Operand { name: "KAI-prometheus", ..Operand::default() };
    let wanted = prometheus.enabled.unwrap_or(false);
    let external = external_url(prometheus).is_some();
    let current = current_instance(settings, facts);
    if wanted && !external {
        if facts.apis.prometheus {
            operand.objects.extend([instance(settings), service_in_front(settings)]);
        } else {
            operand.missing.push("prometheus operator".to_owned());
        }
    } else if let Some(current) = current {
        match deprecated(settings, current, facts.now) {
            Ok(Some(kept)) => operand.objects.push(kept),
            Ok(None) if !wanted => return operand,
            Ok(None) => {}
            Err(error) => operand.error = Some(error),
        }
    } else if !wanted {
        return operand;
    }
    if prometheus.sample_interval.as_deref().is_some_and(|interval| !interval.is_empty()) {
        let notice = "spec.prometheus.sampleInterval has no effect, as in KAI; hint: set \
                      spec.prometheus.serviceMonitor.interval";
        operand.notices.push(notice.to_owned());
    }
    let account = service_account(instance_name(prometheus), &settings.namespace, &settings.owner());
    operand.objects.push(account);
    let monitors = prometheus.service_monitor.clone().unwrap_or_default();
    if facts.apis.service_monitor && monitors.enabled.unwrap_or(true) {
        operand.objects.extend(service_monitors(settings));
    }
    operand
}

/// The external Prometheus, if one is set.
pub(crate) fn external_url(prometheus: &Prometheus) -> Option<&str> {
    prometheus.external_prometheus_url.as_deref().filter(|url| !url.is_empty())
}

fn instance_name(prometheus: &Prometheus) -> &str {
    prometheus.instance_name.as_deref().unwrap_or(INSTANCE)
}

/// The instance in the cluster, if it belongs to this installation.
fn current_instance<'a>(settings: &Settings, facts: &'a Facts) -> Option<&'a Value> {
    let key = ObjectKey::new("Prometheus", &settings.namespace, instance_name(&settings.prometheus));
    facts.objects.get(&key).filter(|object| crate::plan::is_owned_by(object, "Config", &settings.name))
}

fn accounting_label(prometheus: &Prometheus) -> (String, String) {
    let key = prometheus.accounting_label_key.clone();
    let value = prometheus.accounting_label_value.clone();
    (
        key.unwrap_or_else(|| label::ACCOUNTING.to_owned()),
        value.unwrap_or_else(|| label_value::TRUE.to_owned()),
    )
}

fn instance(settings: &Settings) -> Object {
    let prometheus = &settings.prometheus;
    let name = instance_name(prometheus);
    let (key, value) = accounting_label(prometheus);
    let selector = json!({"matchLabels": {key: value}});
    let mut spec = json!({
        "podMetadata": {"labels": {label::APP: name}},
        "serviceAccountName": name,
        "retention": prometheus.retention_period.as_deref().unwrap_or("2w"),
        "ruleNamespaceSelector": {},
        "ruleSelector": selector,
    });
    let monitors = prometheus.service_monitor.clone().unwrap_or_default();
    if monitors.enabled.unwrap_or(true) {
        kai_object::set(&mut spec, &["serviceMonitorNamespaceSelector"], json!({}));
        kai_object::set(&mut spec, &["serviceMonitorSelector"], selector);
    }
    if prometheus.enable_persistent_storage.unwrap_or(true) {
        let size = prometheus.storage_size.as_deref().unwrap_or("50Gi");
        let class = prometheus.storage_class_name.as_deref().unwrap_or("standard");
        kai_object::set(
            &mut spec,
            &["storage"],
            json!({"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                "storageClassName": class,
            }}}),
        );
    }
    let metadata = metadata(name, &settings.namespace, &settings.owner());
    json!({"apiVersion": API_VERSION, "kind": "Prometheus", "metadata": metadata, "spec": spec})
}

/// The instance with the time since when it is not wanted; `None` once its retention period is over.
fn deprecated(settings: &Settings, current: &Value, now: Timestamp) -> Result<Option<Object>, String> {
    let retention = kai_object::str_at(current, "/spec/retention");
    let keep = if retention.is_empty() {
        KEPT_WITHOUT_RETENTION
    } else {
        duration::parse_prometheus(retention)
            .map_err(|error| format!("spec.retention of the Prometheus that is kept: {error}"))?
    };
    let annotations = kai_object::meta(current, "annotations");
    let since = annotations.and_then(|all| all.get(annotation::DEPRECATION_TIMESTAMP)?.as_str());
    let since = since.and_then(|text| text.parse::<Timestamp>().ok());
    if since.is_some_and(|since| since + keep <= now) {
        return Ok(None);
    }
    let name = instance_name(&settings.prometheus);
    let mut metadata = metadata(name, &settings.namespace, &settings.owner());
    let since = since.unwrap_or(Timestamp(now.0 / 1_000_000 * 1_000_000));
    kai_object::set(
        &mut metadata,
        &["annotations"],
        json!({annotation::DEPRECATION_TIMESTAMP: since.to_string()}),
    );
    let spec = current.get("spec").cloned().unwrap_or_default();
    Ok(Some(json!({"apiVersion": API_VERSION, "kind": "Prometheus", "metadata": metadata, "spec": spec})))
}

fn service_in_front(settings: &Settings) -> Object {
    let port = Port { name: "web", number: PORT, target: PORT };
    let mut service = service(SERVICE, &settings.namespace, &settings.owner(), &[port]);
    kai_object::set(
        &mut service,
        &["spec", "selector"],
        json!({
            "app.kubernetes.io/instance": instance_name(&settings.prometheus),
            "app.kubernetes.io/name": "prometheus",
        }),
    );
    service
}

/// Monitors of the queue controller, whose metrics are the usage, and of kube-state-metrics, whose are the capacity.
fn service_monitors(settings: &Settings) -> [Object; 2] {
    let monitored = |name: &str, port: &str, namespaces: Value, selector: Value| {
        let monitors = settings.prometheus.service_monitor.clone().unwrap_or_default();
        let (key, value) = accounting_label(&settings.prometheus);
        let mut metadata = metadata(name, &settings.namespace, &settings.owner());
        kai_object::set(&mut metadata, &["labels", &key], Value::from(value));
        json!({
            "apiVersion": API_VERSION, "kind": "ServiceMonitor", "metadata": metadata,
            "spec": {
                "jobLabel": name,
                "namespaceSelector": {"matchNames": namespaces},
                "selector": {"matchLabels": selector},
                "endpoints": [{
                    "port": port,
                    "interval": monitors.interval.as_deref().unwrap_or("30s"),
                    "scrapeTimeout": monitors.scrape_timeout.as_deref().unwrap_or("10s"),
                    "bearerTokenFile": monitors.bearer_token_file.as_deref().unwrap_or(TOKEN_FILE),
                }],
            },
        })
    };
    let ports = settings.queue_controller.controller_service.as_ref();
    let metrics = ports.and_then(|ports| ports.metrics.as_ref()?.name.as_deref()).unwrap_or("metrics");
    [
        monitored(
            "queue-controller",
            metrics,
            json!([settings.namespace]),
            json!({label::APP: "queue-controller"}),
        ),
        monitored(
            "kube-state-metrics",
            "http",
            json!(["monitoring", "default"]),
            json!({"app.kubernetes.io/name": "kube-state-metrics"}),
        ),
    ]
}
