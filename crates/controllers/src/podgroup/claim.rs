//! GPU devices requested by resource claims, in any served version of `resource.k8s.io`.

use kai_api::Pod;
use kai_api::well_known::{annotation, label_value};
use serde_json::Value;

/// Names of a pod's resource claims, named directly or created from a template.
pub fn names(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.spec.resource_claims.iter().filter_map(|claim| {
        let from_template = || {
            let statuses = &pod.status.resource_claim_statuses;
            statuses.iter().find(|status| status.name == *claim.name)?.resource_claim_name.some()
        };
        claim.resource_claim_name.some().or_else(from_template)
    })
}

/// Requested devices of GPU classes by class. A claim for extended resources (KEP-5004) repeats requests of the pod's
/// containers and is not counted.
pub fn devices(claim: &Value) -> Vec<(String, i64)> {
    let annotations = claim.pointer("/metadata/annotations");
    let marker = annotations.and_then(|all| all.get(annotation::EXTENDED_RESOURCE_CLAIM));
    if marker.is_some_and(|marker| marker == label_value::TRUE) {
        return Vec::new();
    }
    let requests = claim.pointer("/spec/devices/requests").and_then(Value::as_array);
    requests.into_iter().flatten().filter_map(device).collect()
}

fn device(request: &Value) -> Option<(String, i64)> {
    // v1beta1 has the fields in the request itself.
    let exact = request.get("exactly").unwrap_or(request);
    let class = exact["deviceClassName"].as_str()?;
    if !class.to_ascii_lowercase().contains("gpu") {
        return None;
    }
    let count = match exact["allocationMode"].as_str().unwrap_or("ExactCount") {
        "ExactCount" | "" => exact["count"].as_i64().filter(|count| *count > 0).unwrap_or(1),
        "All" => 1,
        _ => return None,
    };
    Some((class.to_owned(), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn devices_are_counted_by_class_and_allocation_mode() {
        let cases = [
            (
                json!([{"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]),
                vec![("gpu.nvidia.com", 2)],
            ),
            (
                json!([{"exactly": {"deviceClassName": "GPU", "allocationMode": "ExactCount"}}]),
                vec![("GPU", 1)],
            ),
            (json!([{"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]), vec![("gpu", 1)]),
            (json!([{"exactly": {"deviceClassName": "gpu", "allocationMode": "Sideways"}}]), vec![]),
            (json!([{"exactly": {"deviceClassName": "nic.example.com"}}]), vec![]),
            (json!([{"name": "old", "deviceClassName": "gpu", "count": 0}]), vec![("gpu", 1)]),
            (json!([{"firstAvailable": [{"deviceClassName": "gpu"}]}]), vec![]),
        ];
        for (requests, expected) in cases {
            let claim = json!({"spec": {"devices": {"requests": requests}}});
            let expected: Vec<(String, i64)> = expected.into_iter().map(|(c, n)| (c.to_owned(), n)).collect();
            assert_eq!(devices(&claim), expected, "{claim}");
        }
    }

    #[test]
    fn claims_for_extended_resources_are_not_counted() {
        let claim = json!({
            "metadata": {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}},
            "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu"}}]}},
        });
        assert!(devices(&claim).is_empty());
    }

    #[test]
    fn claims_are_named_directly_or_by_the_pod_status() {
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"resourceClaims": [
                {"name": "a", "resourceClaimName": "shared"},
                {"name": "b", "resourceClaimTemplateName": "t"},
                {"name": "c", "resourceClaimTemplateName": "t"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}]},
        }))
        .unwrap();
        assert_eq!(names(&pod).collect::<Vec<_>>(), ["shared", "made"]);
    }
}
