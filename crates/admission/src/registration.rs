//! Webhook configurations: which requests the API server sends to which webhook.
//!
//! Names, selectors and match conditions are those that KAI's operator writes. A webhook that cannot be called refuses the
//! request (`failurePolicy: Fail`), so pods are matched as narrowly as possible: only those of this scheduler, and none in
//! the namespaces of Kubernetes and of the components themselves.

use crate::{names, pod, podgroup, queue, topology};
use kai_api::well_known::label::NAMESPACE_NAME;
use kai_api::well_known::name;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Names of the configurations.
pub const MUTATING: &str = "mutating-kai-admission";
pub const VALIDATING: &str = "validating-kai-admission";
pub const QUEUE_VALIDATION: &str = "kai-queue-validation-v2";
pub const POD_GROUP_VALIDATION: &str = "kai-podgroup-validation-v2alpha2";

/// Name of the configuration of [`probe`], and of the topology that it matches.
pub const PROBE: &str = "kai-up-probe";

/// Namespace of Kubernetes' own pods.
const KUBE_SYSTEM: &str = "kube-system";

/// Where the API server reaches the webhooks of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Service of a namespace.
    Service { namespace: String, name: String },
    /// A host and port, such as `10.0.0.7:9443`, for a process outside of the cluster.
    Url { authority: String },
}

impl Endpoint {
    /// The host of a text `HOST` or `HOST:PORT`, for its certificate, and the endpoint there. IPv6 addresses with a port are
    /// in brackets.
    pub fn at(text: &str, default_port: u16) -> Option<(String, Self)> {
        let (host, port) = match text.parse::<SocketAddr>() {
            Ok(address) => (address.ip().to_string(), address.port()),
            Err(_) if text.parse::<IpAddr>().is_ok() => (text.to_owned(), default_port),
            Err(_) => match text.rsplit_once(':') {
                Some((host, port)) => (host.to_owned(), port.parse().ok()?),
                None => (text.to_owned(), default_port),
            },
        };
        let is_address = host.parse::<IpAddr>().is_ok();
        if !is_address && !names::is_subdomain(&host) {
            return None;
        }
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Some((host, Self::Url { authority: format!("{shown}:{port}") }))
    }

    /// `ca_bundle` is the PEM text of the certificates to trust, in base64.
    fn client_config(&self, path: &str, ca_bundle: &str) -> Value {
        let mut config = match self {
            Self::Service { namespace, name } => {
                json!({"service": {"namespace": namespace, "name": name, "path": path}})
            }
            Self::Url { authority } => json!({"url": format!("https://{authority}{path}")}),
        };
        if !ca_bundle.is_empty() {
            kai_object::set(&mut config, &["caBundle"], Value::from(ca_bundle));
        }
        config
    }
}

/// Which pods are sent to the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodScope {
    pub scheduler_name: String,
    /// Namespace of the components.
    pub namespace: String,
    /// Labels that the namespace of a pod must have.
    pub namespace_labels: BTreeMap<String, String>,
    /// Labels that a pod must have.
    pub pod_labels: BTreeMap<String, String>,
    /// A label that the namespace of a pod must have, with any value.
    pub queue_label: Option<String>,
}

impl Default for PodScope {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            namespace: name::NAMESPACE.to_owned(),
            namespace_labels: BTreeMap::new(),
            pod_labels: BTreeMap::new(),
            queue_label: None,
        }
    }
}

impl PodScope {
    fn restrict(&self, webhook: &mut Map<String, Value>) {
        let mut expressions = vec![
            json!({"key": NAMESPACE_NAME, "operator": "NotIn", "values": [KUBE_SYSTEM, self.namespace]}),
        ];
        if let Some(label) = &self.queue_label {
            expressions.push(json!({"key": label, "operator": "Exists"}));
        }
        let mut namespaces = json!({"matchExpressions": expressions});
        if !self.namespace_labels.is_empty() {
            kai_object::set(&mut namespaces, &["matchLabels"], json!(self.namespace_labels));
        }
        webhook.insert("namespaceSelector".to_owned(), namespaces);
        if !self.pod_labels.is_empty() {
            webhook.insert("objectSelector".to_owned(), json!({"matchLabels": self.pod_labels}));
        }
        let name = self.scheduler_name.replace('\\', "\\\\").replace('\'', "\\'");
        webhook.insert(
            "matchConditions".to_owned(),
            json!([{"name": "scheduler-name-match", "expression": format!("object.spec.schedulerName == '{name}'")}]),
        );
    }
}

/// The configuration of the mutating webhook of pods.
pub fn mutating(endpoint: &Endpoint, ca_bundle: &str, scope: &PodScope) -> Value {
    let rule = rule(&["CREATE"], "", "v1", "pods", "Namespaced");
    let mut webhook =
        webhook(&pod_webhook_name(scope), endpoint.client_config(pod::MUTATE_PATH, ca_bundle), &rule);
    webhook.insert("reinvocationPolicy".to_owned(), Value::from("IfNeeded"));
    scope.restrict(&mut webhook);
    configuration("MutatingWebhookConfiguration", MUTATING, "admission", &[webhook])
}

/// The configuration of the validating webhooks of pods and topologies.
pub fn validating(endpoint: &Endpoint, ca_bundle: &str, scope: &PodScope) -> Value {
    let pods = rule(&["CREATE", "UPDATE"], "", "v1", "pods", "Namespaced");
    let name = pod_webhook_name(scope);
    let mut of_pods = webhook(&name, endpoint.client_config(pod::VALIDATE_PATH, ca_bundle), &pods);
    scope.restrict(&mut of_pods);
    let topologies = rule(&["CREATE", "UPDATE"], "kai.scheduler", "v1alpha1", "topologies", "Cluster");
    let of_topologies =
        webhook(&format!("topology.{name}"), endpoint.client_config(topology::PATH, ca_bundle), &topologies);
    configuration("ValidatingWebhookConfiguration", VALIDATING, "admission", &[of_pods, of_topologies])
}

/// The configuration of the validating webhook of queues. Unlike KAI's it covers DELETE.
pub fn queues(endpoint: &Endpoint, ca_bundle: &str) -> Value {
    let rule = rule(&["CREATE", "UPDATE", "DELETE"], "scheduling.run.ai", "v2", "queues", "Cluster");
    let webhook =
        webhook("queue-validation.kai.scheduler", endpoint.client_config(queue::PATH, ca_bundle), &rule);
    configuration("ValidatingWebhookConfiguration", QUEUE_VALIDATION, "queue-controller", &[webhook])
}

/// The configuration of the validating webhook of pod groups.
pub fn pod_groups(endpoint: &Endpoint, ca_bundle: &str) -> Value {
    let rule = rule(&["CREATE", "UPDATE"], "scheduling.run.ai", "v2alpha2", "podgroups", "Namespaced");
    let webhook = webhook(
        "podgroup-validation.kai.scheduler",
        endpoint.client_config(podgroup::PATH, ca_bundle),
        &rule,
    );
    configuration("ValidatingWebhookConfiguration", POD_GROUP_VALIDATION, "podgroup-controller", &[webhook])
}

/// A configuration that matches only the creation of a topology named [`PROBE`]: by a dry run of that, a process finds out
/// whether the API server can call it.
pub fn probe(endpoint: &Endpoint, ca_bundle: &str, timeout_seconds: u64) -> Value {
    let rule = rule(&["CREATE"], "kai.scheduler", "v1alpha1", "topologies", "Cluster");
    let mut webhook =
        webhook("probe.kai-up.kai.scheduler", endpoint.client_config(topology::PATH, ca_bundle), &rule);
    webhook.insert("timeoutSeconds".to_owned(), Value::from(timeout_seconds));
    let expression = format!("object.metadata.name == '{PROBE}'");
    webhook.insert("matchConditions".to_owned(), json!([{"name": "probe", "expression": expression}]));
    configuration("ValidatingWebhookConfiguration", PROBE, "kai-up", &[webhook])
}

fn pod_webhook_name(scope: &PodScope) -> String {
    format!("admission.{}.svc", scope.namespace)
}

fn rule(operations: &[&str], group: &str, version: &str, resource: &str, scope: &str) -> Value {
    json!({
        "operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource],
        "scope": scope,
    })
}

fn webhook(name: &str, client_config: Value, rule: &Value) -> Map<String, Value> {
    let webhook = [
        ("name", Value::from(name)),
        ("clientConfig", client_config),
        ("rules", json!([rule])),
        ("failurePolicy", Value::from("Fail")),
        ("sideEffects", Value::from("None")),
        ("admissionReviewVersions", json!(["v1"])),
    ];
    webhook.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn configuration(kind: &str, name: &str, app: &str, webhooks: &[Map<String, Value>]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "labels": {"app": app}}, "webhooks": webhooks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_host_or_an_address_with_an_optional_port() {
        for (text, host, authority) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.7:9443"),
            ("10.0.0.7:1", "10.0.0.7", "10.0.0.7:1"),
            ("kai.example", "kai.example", "kai.example:9443"),
            ("kai.example:7", "kai.example", "kai.example:7"),
            ("fd00::1", "fd00::1", "[fd00::1]:9443"),
            ("[fd00::1]:7", "fd00::1", "[fd00::1]:7"),
        ] {
            let endpoint = Endpoint::Url { authority: authority.to_owned() };
            assert_eq!(Endpoint::at(text, 9443), Some((host.to_owned(), endpoint)), "{text}");
        }
        for text in ["", ":1", "a:b", "a b", "https://a", "a:99999"] {
            assert_eq!(Endpoint::at(text, 9443), None, "{text}");
        }
    }

    #[test]
    fn webhooks_of_pods_match_only_pods_of_this_scheduler() {
        let scope = PodScope {
            scheduler_name: "it's".to_owned(),
            namespace_labels: [("team".to_owned(), "a".to_owned())].into(),
            pod_labels: [("kai".to_owned(), "yes".to_owned())].into(),
            queue_label: Some("team/queue".to_owned()),
            ..PodScope::default()
        };
        let endpoint =
            Endpoint::Service { namespace: "kai-scheduler".to_owned(), name: "admission".to_owned() };
        for configuration in [mutating(&endpoint, "", &scope), validating(&endpoint, "", &scope)] {
            let webhook = &configuration["webhooks"][0];
            assert_eq!(webhook["matchConditions"][0]["expression"], "object.spec.schedulerName == 'it\\'s'");
            assert_eq!(
                webhook["namespaceSelector"],
                json!({"matchLabels": {"team": "a"}, "matchExpressions": [
                    {"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", "kai-scheduler"]},
                    {"key": "team/queue", "operator": "Exists"},
                ]})
            );
            assert_eq!(webhook["objectSelector"], json!({"matchLabels": {"kai": "yes"}}));
        }
    }
}
