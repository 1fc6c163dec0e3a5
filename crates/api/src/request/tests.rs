//! Compares requests of pods with the documented rules of Kubernetes.

use super::*;

fn pod(spec: &str) -> Pod {
    serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).unwrap()
}

fn written(amounts: &Amounts<'_>) -> String {
    let all: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    all.join(" ")
}

struct Case {
    rule: &'static str,
    spec: &'static str,
    total: &'static str,
}

/// One rule a case; the numbers are worked out by hand from the Kubernetes documentation on resource requests of
/// pods, sidecar containers, pod overhead and pod-level resources.
const CASES: &[Case] = &[
    Case {
        rule: "containers add up, and limits do not count",
        spec: r#"{"containers":[
            {"resources":{"requests":{"cpu":"500m","memory":"1Gi"},"limits":{"cpu":"4","nvidia.com/gpu":"1"}}},
            {"resources":{"requests":{"cpu":"1","nvidia.com/gpu":"2"}}}]}"#,
        total: "cpu=1500m memory=1Gi nvidia.com/gpu=2",
    },
    Case {
        rule: "the largest init container counts where it is more than the containers together",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"1","memory":"2Gi"}}}],
            "initContainers":[{"resources":{"requests":{"cpu":"3","memory":"1Gi"}}},
                              {"resources":{"requests":{"cpu":"2","memory":"1536Mi"}}}]}"#,
        total: "cpu=3 memory=2Gi",
    },
    Case {
        rule: "a resource that only an init container requests counts",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"resources":{"requests":{"nvidia.com/gpu":"1"}}}]}"#,
        total: "cpu=1 nvidia.com/gpu=1",
    },
    Case {
        rule: "sidecars run with the containers",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"2"}}}],
            "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},
                              {"restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}}]}"#,
        total: "cpu=3500m",
    },
    Case {
        rule: "an init container runs together with the sidecars declared before it",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},
                              {"resources":{"requests":{"cpu":"4"}}},
                              {"restartPolicy":"Always","resources":{"requests":{"cpu":"2"}}}]}"#,
        total: "cpu=5",
    },
    Case {
        rule: "sidecars declared after an init container are not there yet when it runs",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"resources":{"requests":{"cpu":"3"}}},
                              {"restartPolicy":"Always","resources":{"requests":{"cpu":"3"}}}]}"#,
        total: "cpu=4",
    },
    Case {
        rule: "overhead comes on top of whatever is larger",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"resources":{"requests":{"cpu":"2"}}}],
            "overhead":{"cpu":"250m","memory":"120Mi"}}"#,
        total: "cpu=2250m memory=120Mi",
    },
    Case {
        rule: "what the pod requests replaces what its containers add up to",
        spec: r#"{"resources":{"requests":{"cpu":"3","memory":"1Gi"}},
            "containers":[{"resources":{"requests":{"cpu":"1","memory":"2Gi"}}},
                          {"resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"resources":{"requests":{"cpu":"8"}}}]}"#,
        total: "cpu=3 memory=1Gi",
    },
    Case {
        rule: "what the pod does not request comes from its containers",
        spec: r#"{"resources":{"requests":{"cpu":"3","hugepages-2Mi":"4Mi"}},
            "containers":[{"resources":{"requests":{"memory":"2Gi","nvidia.com/gpu":"1"}}}]}"#,
        total: "cpu=3 hugepages-2Mi=4Mi memory=2Gi nvidia.com/gpu=1",
    },
    Case {
        rule: "a pod as a whole requests only CPU, memory and huge pages",
        spec: r#"{"resources":{"requests":{"nvidia.com/gpu":"7","ephemeral-storage":"1Gi"}},
            "containers":[{"resources":{"requests":{"nvidia.com/gpu":"1"}}}]}"#,
        total: "nvidia.com/gpu=1",
    },
    Case {
        rule: "overhead comes on top of what the pod requests",
        spec: r#"{"resources":{"requests":{"cpu":"2"}},"containers":[{}],"overhead":{"cpu":"500m"}}"#,
        total: "cpu=2500m",
    },
    Case {
        rule: "limits of the pod do not count",
        spec: r#"{"resources":{"limits":{"cpu":"2"}},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}"#,
        total: "cpu=1",
    },
    Case {
        rule: "containers for debugging do not count",
        spec: r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
            "ephemeralContainers":[{"resources":{"requests":{"cpu":"1"}}}]}"#,
        total: "cpu=1",
    },
    Case {
        rule: "requests for nothing are mentioned",
        spec: r#"{"containers":[{"resources":{"requests":{"nvidia.com/gpu":"0"}}}]}"#,
        total: "nvidia.com/gpu=0",
    },
];

#[test]
fn requests_follow_the_rules_of_kubernetes() {
    for Case { rule, spec, total } in CASES {
        let pod = pod(spec);
        assert_eq!(written(&request(&pod).total), *total, "{rule}");
    }
}

/// An in-place resize of a pod with one container and one sidecar, which request one core each.
struct Resize {
    rule: &'static str,
    status: &'static str,
    total: &'static str,
}

/// One rule a case, from the Kubernetes documentation on resizing containers in place.
const RESIZES: &[Resize] = &[
    Resize { rule: "nothing is reported yet", status: "{}", total: "cpu=2 memory=1Gi" },
    Resize {
        rule: "an upward resize counts with the request before it is allocated",
        status: r#"{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"500m"}},"allocatedResources":{"cpu":"500m"}}]}"#,
        total: "cpu=2 memory=1Gi",
    },
    Resize {
        rule: "a downward resize counts with the allocation until it is reduced",
        status: r#"{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"4","memory":"512Mi"}}}]}"#,
        total: "cpu=5 memory=1Gi",
    },
    Resize {
        rule: "allocated resources count too",
        status: r#"{"containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"2"}},"allocatedResources":{"cpu":"3"}}]}"#,
        total: "cpu=4 memory=1Gi",
    },
    Resize {
        rule: "allocated resources count only for a container with resources in effect",
        status: r#"{"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"3"}}]}"#,
        total: "cpu=2 memory=1Gi",
    },
    Resize {
        rule: "a deferred resize counts",
        status: r#"{"conditions":[{"type":"PodResizePending","reason":"Deferred"}],
            "containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"500m"}}}]}"#,
        total: "cpu=2 memory=1Gi",
    },
    Resize {
        rule: "an infeasible resize does not count",
        status: r#"{"conditions":[{"type":"PodResizePending","reason":"Infeasible"}],
            "containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"500m","memory":"256Mi"}}}]}"#,
        total: "cpu=1500m memory=256Mi",
    },
    Resize {
        rule: "an infeasible resize as reported by servers before 1.33 does not count",
        status: r#"{"resize":"Infeasible","containerStatuses":[{"name":"c","resources":{"requests":{"cpu":"500m"}}}]}"#,
        total: "cpu=1500m",
    },
    Resize {
        rule: "a resize of a sidecar counts",
        status: r#"{"initContainerStatuses":[{"name":"s","resources":{"requests":{"cpu":"3"}}}]}"#,
        total: "cpu=4 memory=1Gi",
    },
    Resize {
        rule: "the status of an unknown container does not count",
        status: r#"{"containerStatuses":[{"name":"other","resources":{"requests":{"cpu":"9"}}}]}"#,
        total: "cpu=2 memory=1Gi",
    },
];

#[test]
fn in_place_resize_counts_by_the_rules_of_kubernetes() {
    for Resize { rule, status, total } in RESIZES {
        let mut pod: Pod = serde_json::from_str(&format!(
            r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"1","memory":"1Gi"}}}}}}],
                "initContainers":[{{"name":"s","restartPolicy":"Always","resources":{{"requests":{{"cpu":"1"}}}}}}]}},
                "status":{status}}}"#
        ))
        .unwrap();
        assert_eq!(written(&request(&pod).total), *total, "{rule}");
        pod.compact();
        assert_eq!(written(&request(&pod).total), *total, "{rule}, after compact()");
    }
}

#[test]
fn container_status_equal_to_the_request_is_dropped() {
    let mut pod: Pod = serde_json::from_str(
        r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},
            "status":{"conditions":[{"type":"Ready"}],"containerStatuses":[
                {"name":"c","resources":{"requests":{"cpu":"1"}},"allocatedResources":{"cpu":"1"}}]}}"#,
    )
    .unwrap();
    pod.compact();
    assert_eq!(pod.status, crate::pod::PodStatus::default());
}

#[test]
fn containers_keep_their_own_requests_and_stages() {
    let pod = pod(r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"2"}}},
                              {"name":"i","resources":{"requests":{"cpu":"3"}}}],
            "overhead":{"cpu":"250m"}}"#);
    let request = request(&pod);
    let parts: Vec<_> =
        request.containers.iter().map(|part| (part.name, part.stage, written(&part.amounts))).collect();
    let expected = [("a", Stage::Main, "cpu=1"), ("s", Stage::Sidecar, "cpu=2"), ("i", Stage::Init, "cpu=3")];
    assert_eq!(parts, expected.map(|(name, stage, amounts)| (name, stage, amounts.to_owned())));
    assert_eq!(written(&request.overhead), "cpu=250m");
}

#[test]
fn invalid_amounts_are_returned_and_count_as_zero() {
    let pod =
        pod(r#"{"containers":[{"resources":{"requests":{"cpu":"lots","memory":"-1","nvidia.com/gpu":"1"}}}],
            "resources":{"requests":{"cpu":"-2"}},"overhead":{"memory":"much"}}"#);
    let request = request(&pod);
    assert_eq!(written(&request.total), "nvidia.com/gpu=1");
    let invalid: Vec<_> = request.invalid.iter().map(|invalid| (invalid.field, invalid.resource)).collect();
    let of_containers = "spec.containers.resources.requests";
    assert_eq!(
        invalid,
        [
            (of_containers, "cpu"),
            (of_containers, "memory"),
            ("spec.resources.requests", "cpu"),
            ("spec.overhead", "memory")
        ]
    );
}

#[test]
fn sum_beyond_the_range_saturates() {
    let most = i64::MAX;
    let container = format!(r#"{{"resources":{{"requests":{{"memory":"{most}"}}}}}}"#);
    let pod = pod(&format!(r#"{{"containers":[{container},{container},{container}]}}"#));
    assert_eq!(request(&pod).total.get("memory"), Some(Quantity::from_units(most)));
}
