//! What the operator has to know about the cluster, besides the settings.

use crate::ObjectKey;
use kai_api::well_known::label;
use kai_units::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// The first version of the GPU operator that injects devices by CDI wherever it is enabled.
const CDI_BY_DEFAULT: [u64; 3] = [25, 10, 0];

/// Observations of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub images: Images,
    pub apis: Apis,
    /// Whether some node has simulated GPUs.
    pub fake_gpu_nodes: bool,
    /// Whether the GPU operator injects devices by CDI.
    pub cdi: bool,
    pub now: Timestamp,
    /// Webhook certificates, by name of their secret.
    pub certificates: BTreeMap<String, Certificate>,
    /// Why there is no certificate, by name of its secret.
    pub certificate_errors: BTreeMap<String, String>,
    /// Current objects of the kinds that the operator manages.
    pub objects: BTreeMap<ObjectKey, Value>,
    /// The leading scheduler pods, by name of their lease.
    pub leaders: BTreeMap<String, LeaderEndpoint>,
    /// Whether an external Prometheus is reachable, or why not; `None` while there is none, or it has not been asked.
    pub external_prometheus: Option<Result<(), String>>,
}

/// Where images come from when the `Config` does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    pub repository: String,
    pub tag: String,
}

/// Which third-party APIs the cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apis {
    pub prometheus: bool,
    pub service_monitor: bool,
    pub vertical_pod_autoscaler: bool,
}

/// A certificate and its private key, as PEM text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    pub certificate: String,
    pub key: String,
    /// What webhook configurations trust, as PEM in base64; the certificate alone where nothing is given.
    pub trusted: Option<String>,
}

/// A certificate that an operand serves its webhooks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    pub secret: &'static str,
    pub namespace: String,
    /// Name of the service, as the API server calls it.
    pub dns_name: String,
}

/// The pod that holds the lease of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderEndpoint {
    pub address: String,
    pub pod: String,
    pub namespace: String,
    pub uid: String,
}

/// Whether some node has simulated GPUs.
pub fn fake_gpu_nodes<'a>(mut nodes: impl Iterator<Item = &'a Value>) -> bool {
    nodes.any(|node| {
        let labels = kai_object::meta(node, "labels");
        labels.and_then(|labels| labels.get(label::FAKE_GPU)).and_then(Value::as_str) == Some("true")
    })
}

/// Whether the GPU operator injects devices by CDI, as its first `ClusterPolicy` says.
///
/// From v25.10 on `cdi.enabled` suffices; before, CDI was used only where `cdi.default` was set too. A version may be
/// written with or without the leading `v`.
pub fn cdi<'a>(mut policies: impl Iterator<Item = &'a Value>) -> bool {
    let Some(policy) = policies.next() else { return false };
    let flag = |name: &str| policy.pointer(name).and_then(Value::as_bool).unwrap_or(false);
    let labels = kai_object::meta(policy, "labels");
    let version = labels.and_then(|labels| labels.get("app.kubernetes.io/version")).and_then(Value::as_str);
    let recent = version.and_then(parse_version).is_some_and(|version| version >= CDI_BY_DEFAULT);
    flag("/spec/cdi/enabled") && (recent || flag("/spec/cdi/default"))
}

/// Major, minor and patch number; a pre-release of a version counts as older than it.
fn parse_version(text: &str) -> Option<[u64; 3]> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = text.split('+').next().unwrap_or_default();
    let (numbers, pre_release) = text.split_once('-').map_or((text, false), |(numbers, _)| (numbers, true));
    let mut version = [0; 3];
    let mut parts = numbers.split('.');
    for number in &mut version {
        *number = parts.next().unwrap_or("0").parse().ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    if pre_release && version == CDI_BY_DEFAULT {
        return Some([version[0], version[1] - 1, u64::MAX]);
    }
    Some(version)
}

/// The pod that a lease names as its holder, if it has an address and is not being deleted.
///
/// The identity of a scheduler is its pod's name, `_` and a random part.
pub fn leader_endpoint<'a>(
    lease: &Value,
    mut pods: impl Iterator<Item = &'a Value>,
) -> Option<LeaderEndpoint> {
    let holder = kai_object::str_at(lease, "/spec/holderIdentity").split('_').next().unwrap_or_default();
    let namespace = kai_object::namespace(lease);
    let pod = pods.find(|pod| kai_object::name(pod) == holder && kai_object::namespace(pod) == namespace)?;
    let address = kai_object::str_at(pod, "/status/podIP");
    if holder.is_empty() || address.is_empty() || kai_object::is_deleting(pod) {
        return None;
    }
    Some(LeaderEndpoint {
        address: address.to_owned(),
        pod: holder.to_owned(),
        namespace: namespace.to_owned(),
        uid: kai_object::uid(pod).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(version: &str, cdi: &Value) -> Value {
        json!({"metadata": {"labels": {"app.kubernetes.io/version": version}}, "spec": {"cdi": cdi}})
    }

    #[test]
    fn cdi_follows_the_version_of_the_gpu_operator() {
        for (version, settings, expected) in [
            ("v25.10.0", json!({"enabled": true}), true),
            ("25.10.1", json!({"enabled": true}), true),
            ("v26.1.0", json!({"enabled": false, "default": true}), false),
            ("v25.3.4", json!({"enabled": true}), false),
            ("v25.3.4", json!({"enabled": true, "default": true}), true),
            ("v25.10.0-rc.1", json!({"enabled": true}), false),
            ("v25.10.1-rc.1", json!({"enabled": true}), true),
            ("newest", json!({"enabled": true}), false),
        ] {
            let policy = policy(version, &settings);
            assert_eq!(cdi([&policy].into_iter()), expected, "{version} {settings}");
        }
        assert!(!cdi(std::iter::empty()), "no policy");
    }

    #[test]
    fn leader_endpoint_is_the_pod_that_holds_the_lease() {
        let lease = json!({"metadata": {"namespace": "ns"}, "spec": {"holderIdentity": "a_1"}});
        let pod = |name: &str, address: &str| json!({"metadata": {"name": name, "namespace": "ns"}, "status": {"podIP": address}});
        let found = |pod: &Value| leader_endpoint(&lease, [pod].into_iter()).map(|leader| leader.address);
        assert_eq!(found(&pod("a", "10.0.0.1")).as_deref(), Some("10.0.0.1"));
        assert_eq!(found(&pod("a", "")), None);
        assert_eq!(found(&pod("b", "10.0.0.1")), None);
        let mut deleted = pod("a", "10.0.0.1");
        deleted["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
        assert_eq!(found(&deleted), None);
    }
}
