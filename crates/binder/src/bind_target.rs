//! BindRequests as the binder stores them: parsed, or with the reason why they are invalid.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::{BindRequest, BindRequestSpec, BindRequestStatus};
use kai_runtime::Key;
use kai_runtime::informer::store::{Identity, ObjectKey};
use kube::ResourceExt as _;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum length of a label value.
const LABEL_MAX: usize = 63;

/// A BindRequest of the informer. An invalid one is stored too, so that it can be reported on the object.
#[derive(Clone, Debug)]
pub(crate) struct StoredRequest {
    /// Identity and deletion timestamp.
    pub(crate) metadata: ObjectMeta,
    /// The request, or why it does not parse.
    pub(crate) target: Result<Arc<BindTarget>, InvalidRequest>,
}

/// Why a BindRequest does not parse, and the status that it has.
#[derive(Clone, Debug)]
pub(crate) struct InvalidRequest {
    pub(crate) reason: String,
    /// Phase and reason of the stored status, where they are text.
    pub(crate) reported: (String, String),
}

/// What a BindRequest asks for: which pod is bound to which node, with which devices.
#[derive(Clone, Debug)]
pub(crate) struct BindTarget {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) pod: Key,
    /// The uid of the pod that the request was created for, if it has an owner reference.
    pub(crate) pod_uid: Option<String>,
    /// Annotations of the request, for plugins that are not built in.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) spec: BindRequestSpec,
    pub(crate) status: BindRequestStatus,
    /// `spec.resourceClaimAllocations` as received: name of the pod's claim and its allocation. They are written to the
    /// claims unchanged, with fields that the types of this version do not have.
    pub(crate) claims: Vec<(String, Option<Value>)>,
    /// `spec.extendedResourceClaimAllocation` as received.
    pub(crate) extended_claim: Option<ExtendedClaim>,
}

/// An allocation for extended resources, passed on as received.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExtendedClaim {
    pub(crate) allocation: Option<Value>,
    pub(crate) device_requests: Option<Value>,
    pub(crate) container_mappings: Option<Value>,
}

impl<'de> Deserialize<'de> for StoredRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let ObjectMeta { namespace, name, uid, resource_version, deletion_timestamp, .. } =
            Option::<ObjectMeta>::deserialize(metadata).map_err(D::Error::custom)?.unwrap_or_default();
        let metadata = ObjectMeta {
            namespace,
            name,
            uid,
            resource_version,
            deletion_timestamp,
            ..ObjectMeta::default()
        };
        let target = BindTarget::parse(&object).map(Arc::new).map_err(|error| {
            let text = |field: &str| {
                let value = object.get("status").and_then(|status| status.get(field));
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            InvalidRequest { reason: error.to_string(), reported: (text("phase"), text("reason")) }
        });
        Ok(Self { metadata, target })
    }
}

impl StoredRequest {
    pub(crate) fn identity(&self) -> Identity<'_> {
        let ObjectMeta { namespace, name, uid, resource_version, .. } = &self.metadata;
        Identity {
            key: ObjectKey::Parts {
                namespace: namespace.as_deref().unwrap_or_default(),
                name: name.as_deref().unwrap_or_default(),
            },
            uid: uid.as_deref().unwrap_or_default(),
            resource_version: resource_version.as_deref().unwrap_or_default(),
        }
    }

    pub(crate) fn key(&self) -> Key {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        Key::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }

    /// The GPU groups that the request selects; none for an invalid request, which is never bound.
    pub(crate) fn gpu_groups(&self) -> &[String] {
        self.target.as_ref().map_or(&[], |target| &target.spec.selected_gpu_groups)
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl BindTarget {
    pub(crate) fn parse(object: &Value) -> Result<Self, serde_json::Error> {
        let mut request = BindRequest::deserialize(object)?;
        let spec = object.get("spec");
        let allocations =
            spec.and_then(|spec| spec.get("resourceClaimAllocations")).and_then(Value::as_array);
        let claims = std::mem::take(&mut request.spec.resource_claim_allocations).into_iter();
        let claims = claims.map(|claim| claim.name);
        let received = |allocation: &Value| {
            allocation.get("allocation").filter(|allocation| !allocation.is_null()).cloned()
        };
        let claims = claims.zip(allocations.into_iter().flatten().map(received)).collect();
        let extended = spec.and_then(|spec| spec.get("extendedResourceClaimAllocation"));
        let extended_claim = extended.map(Option::<ExtendedClaim>::deserialize).transpose()?.flatten();
        request.spec.extended_resource_claim_allocation = None;
        if request.spec.received_resource_type == BindRequestSpec::FRACTION {
            check_groups(&request.spec.selected_gpu_groups)?;
        }
        let owner = request.owner_references().iter().find(|owner| owner.kind == "Pod");
        let namespace = request.metadata.namespace.clone().unwrap_or_default();
        let mut target = Self {
            key: Key::new(&namespace, request.metadata.name.as_deref().unwrap_or_default()),
            uid: request.metadata.uid.clone().unwrap_or_default(),
            pod: Key::new(&namespace, &request.spec.pod_name),
            pod_uid: owner.map(|owner| owner.uid.clone()),
            annotations: request.metadata.annotations.take().unwrap_or_default(),
            status: request.status.unwrap_or_default(),
            claims,
            extended_claim,
            spec: request.spec,
        };
        if target.status.phase == BindRequestStatus::SUCCEEDED {
            target.trim();
        }
        Ok(target)
    }

    /// Drops what is only read to bind: large clusters have many succeeded requests.
    fn trim(&mut self) {
        self.claims = Vec::new();
        self.annotations = BTreeMap::new();
        self.extended_claim = None;
        self.spec.predicted_numa_zones = Vec::new();
    }

    pub(crate) fn node(&self) -> &str {
        &self.spec.selected_node
    }

    pub(crate) fn gpu_groups(&self) -> &[String] {
        &self.spec.selected_gpu_groups
    }

    /// Whether the pod shares its GPUs.
    pub(crate) fn is_fraction(&self) -> bool {
        self.spec.received_resource_type == BindRequestSpec::FRACTION
    }

    /// Number of GPUs that the pod receives, whole or shared.
    pub(crate) fn gpu_count(&self) -> i64 {
        self.spec.received_gpu.as_ref().and_then(|gpu| gpu.count).unwrap_or(0)
    }

    /// The portion of each GPU, such as `0.50`.
    pub(crate) fn portion(&self) -> &str {
        self.spec.received_gpu.as_ref().map_or("", |gpu| &gpu.portion)
    }

    /// The value of the annotation with the predicted NUMA zones.
    pub(crate) fn numa_zones(&self) -> Option<String> {
        let zones = &self.spec.predicted_numa_zones;
        let zones = serde_json::to_value(zones).ok().filter(|_| !zones.is_empty())?;
        Some(zones.to_string())
    }
}

/// Fails for a GPU group that no label can name: the pod gets a label for each of its groups.
fn check_groups(groups: &[String]) -> Result<(), serde_json::Error> {
    let is_alphanumeric = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_label_value = |group: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        group.len() <= LABEL_MAX
            && group.bytes().all(is_allowed)
            && is_alphanumeric(group.bytes().next())
            && is_alphanumeric(group.bytes().last())
    };
    let Some(group) = groups.iter().find(|group| !is_label_value(group)) else { return Ok(()) };
    let shown: String = group.chars().take(LABEL_MAX).collect();
    Err(serde_json::Error::custom(format_args!(
        "`spec.selectedGPUGroups` has `{shown}`: a group is the value of a label, up to {LABEL_MAX} letters, digits, `-`, `_` and `.`, and begins and ends with a letter or digit"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(spec: &Value, status: &Value) -> StoredRequest {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "3"},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn invalid_request_is_stored_with_the_reason_and_never_as_an_empty_one() {
        let table = [
            (json!({"podName": "a", "backoffLimit": 3_000_000_000_i64}), json!({})),
            (json!({"podName": ["a"]}), json!({})),
            (json!({"podName": "a", "receivedGPU": {"count": "two"}}), json!({})),
            (json!({"podName": "a"}), json!({"phase": "Failed", "failedAttempts": "many"})),
        ];
        for (spec, status) in table {
            let request = stored(&spec, &status);
            let invalid = request.target.as_ref().unwrap_err();
            assert!(!invalid.reason.is_empty(), "{spec}");
            assert_eq!(invalid.reported.0, status["phase"].as_str().unwrap_or_default());
            assert_eq!(request.key(), Key::new("x", "a"));
            assert!(request.gpu_groups().is_empty());
        }
    }

    #[test]
    fn request_with_a_gpu_group_that_no_label_can_name_is_invalid() {
        let long = "g".repeat(LABEL_MAX + 1);
        let request = |kind: &str, groups: &[&str]| {
            stored(
                &json!({"podName": "a", "receivedResourceType": kind, "selectedGPUGroups": groups}),
                &Value::Null,
            )
        };
        for group in ["", "a/b", "１２", "-a", "a.", "{}", &long] {
            let invalid = request("Fraction", &["a", group]).target.unwrap_err();
            assert!(invalid.reason.contains("spec.selectedGPUGroups"), "{group}: {}", invalid.reason);
            assert!(request("Regular", &[group]).target.is_ok(), "only fractions have groups");
        }
        assert!(request("Fraction", &["a", "6f3a-B_2.x", &long[1..]]).target.is_ok());
    }

    #[test]
    fn allocations_keep_fields_that_the_types_do_not_have() {
        let allocation = json!({"devices": {"results": []}, "futureField": {"a": 1}});
        let request = stored(
            &json!({
                "podName": "a", "selectedNode": "n",
                "resourceClaimAllocations": [{"name": "none"}, {"name": "gpu", "allocation": allocation}],
                "extendedResourceClaimAllocation": {"allocation": allocation, "deviceRequests": [{"name": "r", "more": 1}]},
            }),
            &Value::Null,
        );
        let target = request.target.unwrap();
        assert_eq!(target.claims, [("none".to_owned(), None), ("gpu".to_owned(), Some(allocation.clone()))]);
        let extended = target.extended_claim.as_ref().unwrap();
        assert_eq!(extended.allocation.as_ref(), Some(&allocation));
        assert_eq!(extended.device_requests, Some(json!([{"name": "r", "more": 1}])));
        assert_eq!(extended.container_mappings, None);
    }
}
