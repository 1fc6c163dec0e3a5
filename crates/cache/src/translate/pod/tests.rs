//! Pods: requests, GPUs, phases, bind requests, references.

use super::*;
use crate::object::Kind;
use kai_engine::input::{GpuRequest, Received, SelectorOp, TolerationOp};

fn pod(json: &str) -> Pod {
    let mut pod: Pod = serde_json::from_str(json).unwrap();
    pod.compact();
    pod
}

fn read_with(pod: &Pod, bind: Option<&BindRequest>) -> (PodInput, Vec<String>) {
    let (namespaces, settings) = (affinity::Namespaces::default(), Settings::default());
    let context = TranslationContext { bind, evicted: None, namespaces: &namespaces, settings: &settings };
    let key = key_of(&pod.metadata);
    let mut report = Report::on(Kind::Pod, &key);
    let input = translate(pod, context, &mut report).expect("not failed");
    (input, report.into_findings().into_iter().map(|f| f.field).collect())
}

fn read(json: &str) -> PodInput {
    let (input, findings) = read_with(&pod(json), None);
    assert_eq!(findings, Vec::<String>::new());
    input
}

fn with_spec(spec: &str) -> PodInput {
    read(&format!(r#"{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{spec}}}"#))
}

fn with_annotations(annotations: &str, spec: &str) -> (PodInput, Vec<String>) {
    let json = format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","annotations":{annotations}}},"spec":{spec}}}"#
    );
    read_with(&pod(&json), None)
}

fn amounts(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
}

#[test]
fn requests_of_containers_add_up_and_init_containers_count_by_maximum() {
    let input = with_spec(
        r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi","pods":"9"}}},
                          {"name":"b","resources":{"requests":{"cpu":1}}}],
            "initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"500m","memory":"256Mi"}}},
                              {"name":"i","resources":{"requests":{"cpu":"5","memory":"64Mi"}}}],
            "overhead":{"cpu":"250m","nvidia.com/gpu":"1"}}"#,
    );
    let expected = [("cpu", 5750), ("gpu", 1_000_000), ("memory", (1 << 30) + (256 << 20))];
    assert_eq!(input.spec.request, amounts(&expected));
    assert_eq!(input.spec.overhead, amounts(&[("cpu", 250), ("gpu", 1_000_000)]));
    let stages: Vec<_> = input.spec.containers.iter().map(|c| (c.name.as_str(), c.init, c.sidecar)).collect();
    assert_eq!(stages, [("a", false, false), ("b", false, false), ("s", true, true), ("i", true, false)]);
    assert_eq!(input.spec.gpu, GpuRequest::Whole(1));
}

#[test]
fn pod_with_an_invalid_request_is_treated_as_gated() {
    for amount in ["1e400", "-5", "lots", ""] {
        let spec =
            format!(r#"{{"containers":[{{"resources":{{"requests":{{"nvidia.com/gpu":"{amount}"}}}}}}]}}"#);
        let pending = format!(r#"{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{spec}}}"#);
        let (input, findings) = read_with(&pod(&pending), None);
        assert_eq!(input.phase, PodPhase::Gated, "{amount}");
        assert_eq!(findings, ["spec.containers.resources.requests.nvidia.com/gpu"]);
        let running =
            pending.replace(r#""spec":{"#, r#""status":{"phase":"Running"},"spec":{"nodeName":"n","#);
        assert_eq!(read_with(&pod(&running), None).0.phase, PodPhase::Running, "{amount}");
    }
}

#[test]
fn whole_gpus_are_counted_and_zero_is_still_a_request() {
    let gpus = |requests: &str| {
        let spec = format!(r#"{{"containers":[{{"name":"a","resources":{{"requests":{requests}}}}}]}}"#);
        with_spec(&spec).spec
    };
    let two = gpus(r#"{"nvidia.com/gpu":"2"}"#);
    assert_eq!((two.gpu, two.request.clone()), (GpuRequest::Whole(2), amounts(&[("gpu", 2_000_000)])));
    assert_eq!(gpus(r#"{"amd.com/gpu":"0"}"#).gpu, GpuRequest::Whole(0));
    let other = gpus(r#"{"example.com/gpu":"2"}"#);
    assert_eq!((other.gpu, other.request.clone()), (GpuRequest::None, amounts(&[("example.com/gpu", 2000)])));
    let mig = gpus(r#"{"nvidia.com/mig-3g.20gb":"2"}"#);
    assert_eq!(
        (mig.gpu, mig.request.clone()),
        (GpuRequest::Mig, amounts(&[("nvidia.com/mig-3g.20gb", 2000)]))
    );
}

#[test]
fn annotations_request_gpu_shares() {
    let share = |annotations: &str| {
        let (input, findings) = with_annotations(annotations, "{}");
        (input.spec.gpu, findings.len())
    };
    assert_eq!(share(r#"{"gpu-fraction":"0.5"}"#), (GpuRequest::Fraction { hundredths: 50, devices: 1 }, 0));
    assert_eq!(
        share(r#"{"gpu-fraction":"0.5","gpu-memory":"10","gpu-fraction-num-devices":"3"}"#),
        (GpuRequest::Fraction { hundredths: 50, devices: 3 }, 1),
        "memory beside a fraction has no effect"
    );
    assert_eq!(share(r#"{"gpu-memory":"1024"}"#), (GpuRequest::Memory { mib: 1024, devices: 1 }, 0));
    assert_eq!(share(r#"{"gpu-fraction":"0.001"}"#), (GpuRequest::Fraction { hundredths: 1, devices: 1 }, 0));
    for invalid in ["0", "1.5", "half", "NaN", "-0.5"] {
        assert_eq!(share(&format!(r#"{{"gpu-fraction":"{invalid}"}}"#)), (GpuRequest::None, 1), "{invalid}");
    }
    assert_eq!(share(r#"{"gpu-memory":"0"}"#), (GpuRequest::None, 1));
}

#[test]
fn pod_with_an_unreadable_share_is_treated_as_gated() {
    let unreadable = [
        (r#"{"gpu-fraction":"1.5"}"#, "gpu-fraction"),
        (r#"{"gpu-fraction":"half"}"#, "gpu-fraction"),
        (r#"{"gpu-fraction":"0","gpu-memory":"1000"}"#, "gpu-fraction"),
        (r#"{"gpu-memory":"2Gi"}"#, "gpu-memory"),
        (r#"{"gpu-fraction":"0.5","gpu-fraction-num-devices":"two"}"#, "gpu-fraction-num-devices"),
    ];
    for (annotations, annotation) in unreadable {
        let (input, findings) = with_annotations(annotations, "{}");
        assert_eq!(input.phase, PodPhase::Gated, "{annotations}");
        assert_eq!(findings, [format!("metadata.annotations[{annotation}]")]);
    }
}

#[test]
fn gpu_fraction_together_with_whole_gpus_is_treated_as_gated() {
    let spec = r#"{"containers":[{"name":"a","resources":{"requests":{"nvidia.com/gpu":"1"}}}]}"#;
    for annotations in [r#"{"gpu-fraction":"0.5"}"#, r#"{"gpu-memory":"1000"}"#] {
        let (input, findings) = with_annotations(annotations, spec);
        assert_eq!((input.phase, findings.len()), (PodPhase::Gated, 1), "{annotations}");
    }
    let none = r#"{"containers":[{"name":"a","resources":{"requests":{"nvidia.com/gpu":"0"}}}]}"#;
    let (input, findings) = with_annotations(r#"{"gpu-fraction":"0.5"}"#, none);
    assert_eq!((input.phase, findings.len()), (PodPhase::Pending, 0));
}

#[test]
fn legacy_mig_annotation_is_recognised() {
    let spec = r#"{"containers":[{"name":"a","resources":{"requests":{"nvidia.com/gpu":"1"}}}]}"#;
    let (input, _) = with_annotations(r#"{"nvidia.com/mig-1g.5gb":"2"}"#, spec);
    assert!(input.spec.legacy_mig);
    assert_eq!(
        (input.spec.gpu, input.spec.request.clone()),
        (GpuRequest::Mig, amounts(&[("nvidia.com/mig-1g.5gb", 2000)]))
    );
}

#[test]
fn phases_follow_the_object() {
    let status = |json: &str, binding: bool| phase(&pod(json), binding, None);
    let at = Timestamp(1_735_689_600_000_000);
    let deleting = r#""metadata":{"deletionTimestamp":"2025-01-01T00:00:00Z"}"#;
    assert_eq!(
        status(&format!(r#"{{{deleting},"status":{{"phase":"Running"}}}}"#), false),
        PodPhase::Releasing(at)
    );
    assert_eq!(
        status(&format!(r#"{{{deleting},"status":{{"phase":"Pending"}}}}"#), true),
        PodPhase::ReleasingUnstarted
    );
    assert_eq!(status(r#"{"status":{"phase":"Running"}}"#, false), PodPhase::Running);
    assert_eq!(status(r#"{"spec":{"nodeName":"n"},"status":{"phase":"Pending"}}"#, true), PodPhase::Bound);
    assert_eq!(status(r#"{"spec":{"schedulingGates":[{"name":"g"}]}}"#, true), PodPhase::Binding);
    assert_eq!(status(r#"{"spec":{"schedulingGates":[{"name":"g"}]}}"#, false), PodPhase::Gated);
    assert_eq!(status("{}", false), PodPhase::Pending);
    assert_eq!(status(r#"{"status":{"phase":"Unknown"}}"#, false), PodPhase::Unknown);
    assert_eq!(status(r#"{"status":{"phase":"Succeeded"}}"#, false), PodPhase::Succeeded);
    assert_eq!(phase(&pod(r#"{"status":{"phase":"Running"}}"#), false, Some(at)), PodPhase::Releasing(at));
}

#[test]
fn succeeded_pods_keep_only_their_group() {
    let input = read(
        r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","annotations":{"pod-group-name":"g"},
            "labels":{"kai.scheduler/subgroup-name":"s","x":"y"}},
            "spec":{"nodeName":"n","containers":[{"name":"a"}]},"status":{"phase":"Succeeded"}}"#,
    );
    let expected = PodInput {
        key: Key::new("ns", "p"),
        uid: "u".to_owned(),
        group: Some("g".to_owned()),
        sub_group: Some("s".to_owned()),
        phase: PodPhase::Succeeded,
        ..PodInput::default()
    };
    assert_eq!(input, expected);
    let settings = Settings::default();
    let context =
        TranslationContext { bind: None, evicted: None, namespaces: &BTreeMap::new(), settings: &settings };
    let key = Key::default();
    let failed = pod(r#"{"status":{"phase":"Failed"}}"#);
    assert_eq!(translate(&failed, context, &mut Report::on(Kind::Pod, &key)), None);
}

#[test]
fn bind_request_supplies_node_and_devices_of_an_unbound_pod() {
    let bind: BindRequest = serde_json::from_str(
        r#"{"metadata":{"name":"p","namespace":"ns"},"spec":{"podName":"p","selectedNode":"n","receivedResourceType":"Fraction",
            "selectedGPUGroups":["a","b","a"],"predictedNUMAZones":[{"zone":"node-0","amount":{"cpu":"2","nvidia.com/gpu":"1"}}],
            "resourceClaimAllocations":[{"name":"c","allocation":{"devices":{"results":[
               {"request":"r","driver":"d","pool":"p","device":"x"}]}}}]}}"#,
    )
    .unwrap();
    let object = pod(
        r#"{"metadata":{"name":"p","namespace":"ns","labels":{"runai-gpu-group":"z"},"annotations":{
             "kai.scheduler/numa-placement-predicted":"[{\"zone\":\"node-1\",\"amount\":{}}]"}},
            "spec":{"resourceClaims":[{"name":"c","resourceClaimName":"claim"},{"name":"t","resourceClaimTemplateName":"tt"}]}}"#,
    );
    let (input, findings) = read_with(&object, Some(&bind));
    assert_eq!((input.phase, input.node.as_deref()), (PodPhase::Binding, Some("n")));
    assert_eq!(
        (input.gpu_groups, input.received),
        (vec!["a".to_owned(), "b".to_owned()], Some(Received::Fraction))
    );
    assert_eq!(input.numa_placement[0].zone, "node-0");
    assert_eq!(input.numa_placement[0].amounts, amounts(&[("cpu", 2000), ("gpu", 1_000_000)]));
    assert_eq!(input.claims[0].chosen[0].device, "x");
    assert_eq!((input.claims[1].claim.as_ref(), input.claims[1].from_template), (None, true));
    assert_eq!(findings, ["spec.selectedGPUGroups of its bind request"]);
}

#[test]
fn gpu_groups_are_read_from_labels_with_or_without_the_plain_one() {
    let groups = |labels: &str| read(&format!(r#"{{"metadata":{{"labels":{labels}}}}}"#)).gpu_groups;
    assert_eq!(groups(r#"{"runai-gpu-group":"a"}"#), ["a"]);
    assert_eq!(groups(r#"{"runai-gpu-group/a":"a","runai-gpu-group/b":"b"}"#), ["a", "b"]);
    assert_eq!(
        groups(r#"{"runai-gpu-group":"b","runai-gpu-group/a":"a","runai-gpu-group/b":"b"}"#),
        ["b", "a"]
    );
}

#[test]
fn bind_request_has_failed_when_no_attempts_are_left() {
    let failed = |json: &str| bind_failed(&serde_json::from_str(json).unwrap());
    assert!(failed(r#"{"status":{"phase":"Failed"}}"#));
    assert!(failed(r#"{"spec":{"backoffLimit":3},"status":{"phase":"Failed","failedAttempts":3}}"#));
    assert!(!failed(r#"{"spec":{"backoffLimit":3},"status":{"phase":"Failed","failedAttempts":2}}"#));
    assert!(!failed(r#"{"status":{"phase":"Succeeded"}}"#));
    assert!(!failed("{}"));
}

#[test]
fn optional_and_unused_config_maps_are_not_required() {
    let input = read(
        r#"{"metadata":{"annotations":{"runai/shared-gpu-configmap":"made"}},"spec":{
            "volumes":[{"name":"v","configMap":{"name":"mounted"}},{"name":"w","configMap":{"name":"unmounted"}},
                       {"name":"x","projected":{"sources":[{"configMap":{"name":"inside"}},{"secret":{}}]}},
                       {"name":"o","configMap":{"name":"optional","optional":true}}],
            "containers":[{"name":"a","volumeMounts":[{"name":"v"},{"name":"o"}],
               "env":[{"name":"E","valueFrom":{"configMapKeyRef":{"name":"made-0","key":"k"}}},
                      {"name":"F","valueFrom":{"configMapKeyRef":{"name":"variable","key":"k"}}},{"name":"G","value":"1"}],
               "envFrom":[{"configMapRef":{"name":"all"}},{"secretRef":{"name":"s"}}]}],
            "initContainers":[{"name":"i","volumeMounts":[{"name":"x"}]}]}}"#,
    );
    assert_eq!(input.config_maps, ["mounted", "inside", "variable", "all"]);
}

#[test]
fn affinity_names_its_namespaces() {
    let object = pod(r#"{"metadata":{"name":"p","namespace":"own","labels":{"rev":"7"}},"spec":{"affinity":{
            "nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}},
            "podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
               {"topologyKey":"z","labelSelector":{"matchLabels":{"a":"b"}},"matchLabelKeys":["rev"]},
               {"topologyKey":"z","namespaceSelector":{}},
               {"topologyKey":"z","namespaces":["x"],"namespaceSelector":{"matchLabels":{"team":"t"}}}]},
            "podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[
               {"weight":30,"podAffinityTerm":{"topologyKey":"z"}}]}}}}"#);
    assert!(affinity::reads_namespaces(&object));
    let mut namespaces = affinity::Namespaces::default();
    for (name, team) in [("one", "t"), ("two", "u")] {
        let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"team":"{team}"}}}}}}"#);
        namespaces.insert(Key::new("", name), serde_json::from_str(&json).unwrap());
    }
    let key = key_of(&object.metadata);
    let rules = affinity::rules(&object, &namespaces, &mut Report::on(Kind::Pod, &key));
    assert_eq!(rules.node_terms, [selector::never()]);
    let near = &rules.affinity;
    assert_eq!(near[0].namespaces, Some(vec!["own".to_owned()]));
    let requirements = &near[0].selector.as_ref().unwrap().requirements;
    assert_eq!(requirements[1], ("rev".to_owned(), SelectorOp::In(vec!["7".to_owned()])));
    assert_eq!((near[1].namespaces.as_ref(), near[1].selector.as_ref()), (None, None));
    assert_eq!(near[2].namespaces, Some(vec!["one".to_owned(), "x".to_owned()]));
    assert_eq!(rules.preferred[0].weight, -30);
}

#[test]
fn tolerations_and_ports_have_defaults() {
    let object = pod(r#"{"metadata":{"name":"p"},"spec":{
            "tolerations":[{"key":"a","value":"b"},{"operator":"Exists","effect":"NoExecute"},{"key":"c","operator":"Like"}],
            "containers":[{"name":"a","ports":[{"containerPort":1},{"containerPort":2,"hostPort":80},
               {"containerPort":3,"hostPort":80,"hostIP":"10.0.0.1","protocol":"UDP"}]}]}}"#);
    let (input, findings) = read_with(&object, None);
    assert_eq!(input.spec.tolerations.len(), 2);
    assert_eq!(input.spec.tolerations[0].op, TolerationOp::Equal("b".to_owned()));
    assert_eq!(findings, ["spec.tolerations"]);
    let ports: Vec<_> =
        input.spec.ports.iter().map(|p| (p.ip.as_str(), p.protocol.as_str(), p.port)).collect();
    assert_eq!(ports, [("0.0.0.0", "TCP", 80), ("10.0.0.1", "UDP", 80)]);
}

#[test]
fn qos_class_is_read_or_derived() {
    let with = |resources: &str, status: &str| {
        let json = format!(
            r#"{{"spec":{{"containers":[{{"name":"a","resources":{resources}}}]}},"status":{{"qosClass":"{status}"}}}}"#
        );
        crate::translate::request::is_guaranteed(&pod(&json))
    };
    let equal = r#"{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1000m","memory":"1Gi"}}"#;
    assert!(with(equal, "") && with("{}", "Guaranteed") && !with(equal, "Burstable"));
    assert!(!with(r#"{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}"#, ""));
}

#[test]
fn roles_and_order_come_from_labels() {
    let input = read(
        r#"{"metadata":{"labels":{"app":"kai-resource-reservation","kai.scheduler/task-priority":"5",
            "training.kubeflow.org/job-role":"master","ray.io/node-type":"head"}},"spec":{"schedulerName":"kai-scheduler"}}"#,
    );
    assert_eq!((input.utility, input.task_priority), (Some(Utility::Reservation), TaskPriority::Value(5)));
    assert!(input.kubeflow_leader && input.ray_head && input.ours);
    let other = read(r#"{"metadata":{"labels":{"app":"scaling-pod","kai.scheduler/task-priority":"high"}}}"#);
    assert_eq!((other.utility, other.task_priority), (Some(Utility::Scaling), TaskPriority::Invalid));
    assert!(!other.ours);
}

#[test]
fn volumes_name_their_claims() {
    let input = read(
        r#"{"metadata":{"name":"p"},"spec":{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"data"}},
            {"name":"scratch","ephemeral":{"volumeClaimTemplate":{}}},{"name":"e","emptyDir":{}}]}}"#,
    );
    let claims: Vec<&str> = input.volumes.iter().map(|v| v.claim.as_str()).collect();
    assert_eq!(claims, ["data", "p-scratch"]);
}
