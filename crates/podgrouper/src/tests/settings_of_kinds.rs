//! Settings of kinds that are missing, empty or unusual.

use super::{Case, case, job, pod};
use crate::cluster::{ObjectRef, ReadObjects};
use crate::defaults::Defaults;
use crate::objects::{OwnerObject, PodSummary};
use crate::workload::{Desired, Workload};
use crate::{Invalid, table};
use kai_api::pod_group::TopologyConstraint;
use serde_json::{Value, json};
use std::sync::Arc;

fn owner(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "namespace": "ns", "uid": "u2"}, "spec": spec})
}

/// Names and minima of the subgroups.
fn sub_groups(desired: &Desired) -> Vec<(&str, Option<i32>)> {
    desired.sub_groups.iter().map(|of| (of.name.as_str(), of.min_member)).collect()
}

#[test]
fn pytorch_job_without_workers_has_no_subgroup_of_them() {
    let of = |spec: Value, pod: Value| case(pod, vec![owner("kubeflow.org/v1", "PyTorchJob", &spec)]).group();
    let role = |name: &str| pod(json!({"training.kubeflow.org/replica-type": name}), json!({}));
    let master = json!({"Master": {"replicas": 1}});
    let desired = of(json!({"pytorchReplicaSpecs": master}), role("master")).unwrap();
    assert_eq!((desired.min_member, sub_groups(&desired)), (1, vec![("master", Some(1))]));
    assert_eq!(desired.sub_group.as_deref(), Some("master"));
    // `minAvailable` skips the checks of replicas, but not that there are any roles.
    let policy = json!({"schedulingPolicy": {"minAvailable": 2}});
    assert!(of(json!({"runPolicy": policy}), role("worker")).is_err());
    // Without a number there is one worker, so that there is one segment.
    let template = json!({"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}});
    let worker = json!({"Worker": {"template": template}});
    let mut labelled = role("worker");
    labelled["metadata"]["labels"]["training.kubeflow.org/replica-index"] = json!("0");
    let desired = of(json!({"pytorchReplicaSpecs": worker, "runPolicy": policy}), labelled).unwrap();
    assert_eq!(sub_groups(&desired), [("worker", None), ("worker-0", Some(1))]);
}

#[test]
fn empty_annotation_of_a_pod_leaves_the_setting_to_the_template() {
    let annotations = json!({
        "kai.scheduler/segment-size": "2", "kai.scheduler/topology": "dc",
        "kai.scheduler/segment-topology-required-placement": "rack",
    });
    let spec = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": {"metadata": {"annotations": annotations}}}}});
    let labels =
        json!({"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"});
    let empty = json!({
        "kai.scheduler/segment-size": "", "kai.scheduler/topology": "",
        "kai.scheduler/segment-topology-required-placement": "",
    });
    let desired = case(pod(labels, empty), vec![owner("kubeflow.org/v1", "PyTorchJob", &spec)]).ok();
    assert_eq!(sub_groups(&desired), [("worker", None), ("worker-0", Some(2)), ("worker-1", Some(2))]);
    assert_eq!(desired.sub_group.as_deref(), Some("worker-1"));
    let topology = desired.sub_groups[1].topology_constraint.clone().unwrap();
    assert_eq!((topology.topology.as_str(), topology.required_topology_level.as_str()), ("dc", "rack"));
}

#[test]
fn job_set_with_a_group_of_an_older_version_keeps_its_rules() {
    let set = |least: &str| {
        let mut set =
            owner("jobset.x-k8s.io/v1alpha2", "JobSet", &json!({"replicatedJobs": [{"name": "a"}]}));
        set["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": least});
        set
    };
    let labels = json!({"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"});
    let flat = |labels: &Value, least: &str| {
        Case { groups: &["pg-o-u2"], ..case(pod(labels.clone(), json!({})), vec![set(least)]) }.group()
    };
    assert_eq!(flat(&labels, "0").unwrap().min_member, 0, "older versions accept it");
    assert!(flat(&json!({}), "1").is_err(), "the label is required");
    let new = |least: &str| case(pod(labels.clone(), json!({})), vec![set(least)]).group();
    assert!(new("0").is_err());
    assert_eq!(new("1").unwrap().min_sub_group, Some(1));
}

#[test]
fn empty_minimum_of_a_template_counts_as_none() {
    let template = json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": ""}}, "spec": {"parallelism": 3}});
    let set = owner(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        &json!({"replicatedJobs": [{"name": "a", "template": template}]}),
    );
    let labels = json!({"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"});
    let desired = case(pod(labels, json!({})), vec![set]).ok();
    assert_eq!(sub_groups(&desired), [("a", None), ("a-replica-0", Some(3))]);
}

#[test]
fn defaults_of_a_wrapping_kind_reach_kinds_that_read_all_owners() {
    let defaults = json!({"data": {"types": json!([
        {"typeName": "Workflow", "group": "argoproj.io", "priorityName": "high", "preemptibility": "Non-Preemptible"},
    ]).to_string()}});
    let workflow = |labels: Value| {
        let mut workflow = owner("argoproj.io/v1alpha1", "Workflow", &json!({}));
        workflow["metadata"]["labels"] = labels;
        workflow
    };
    let class = |labels: Value| {
        let mut set = job(json!({}), json!({}));
        (set["apiVersion"], set["kind"]) = (json!("apps/v1"), json!("StatefulSet"));
        let owners = vec![set, workflow(labels)];
        let desired =
            Case { defaults: Some(defaults.clone()), ..case(pod(json!({}), json!({})), owners) }.ok();
        (desired.priority_class, desired.preemptibility.is_some())
    };
    assert_eq!(class(json!({})), ("high".to_owned(), true));
    assert_eq!(class(json!({"priorityClassName": "build"})), ("build".to_owned(), true), "users precede");
}

/// A change of a part of a Karta.
type Change = fn(&mut Value);

const KIND: (&str, &str, &str) = ("flows.example", "v1", "Flow");

/// A Karta of two components with pods, changed by a test.
fn karta(gang: &Value, change: impl Fn(&mut Value)) -> OwnerObject {
    let component = |name: &str| {
        json!({
            "name": name, "ownerRef": "flow", "scaleDefinition": {"replicasPath": format!(".spec.{name}.replicas")},
            "specDefinition": {"podTemplateSpecPath": format!(".spec.{name}.template")},
            "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": name}},
        })
    };
    let (group, version, kind) = KIND;
    let root = json!({"name": "flow", "kind": {"group": group, "version": version, "kind": kind}, "statusDefinition": {}});
    let structure =
        json!({"rootComponent": root, "childComponents": [component("leader"), component("worker")]});
    let mut spec =
        json!({"structureDefinition": structure, "optimizationInstructions": {"gangScheduling": gang}});
    change(&mut spec);
    serde_json::from_value(json!({
        "apiVersion": "run.ai/v1alpha1", "kind": "Karta", "metadata": {"name": "flow"}, "spec": spec,
    }))
    .unwrap()
}

/// The group of a pod below these owners, whose topmost is described by a Karta.
fn grouped(karta: OwnerObject, pod: &Value, owners: &[Value]) -> Result<Desired, Invalid> {
    let (group, version, kind) = KIND;
    let summary: PodSummary = serde_json::from_value(pod.clone()).unwrap();
    let owners: Vec<Arc<OwnerObject>> =
        owners.iter().map(|of| Arc::new(serde_json::from_value(of.clone()).unwrap())).collect();
    let kartas = ObjectRef::Kartas { group: group.into(), version: version.into(), kind: kind.into() };
    let whole = ObjectRef::Object { api_version: "v1".into(), kind: "Pod".into(), name: "p".into() };
    let objects = ReadObjects(vec![
        (kartas, vec![Arc::new(karta)]),
        (whole, vec![Arc::new(serde_json::from_value(pod.clone()).unwrap())]),
    ]);
    let view = case(pod.clone(), vec![]);
    table::desired(&Workload {
        pod: &summary,
        owners: &owners,
        options: &view.options,
        defaults: &Defaults::default(),
        cluster: &view,
        objects: &objects,
        inherited: None,
        wrapped: None,
    })
}

fn flow() -> Value {
    owner("flows.example/v1", "Flow", &json!({"leader": {"replicas": 1}, "worker": {"replicas": 3}}))
}

fn members(members: &Value) -> Value {
    json!({"podGroups": [{"name": "main", "members": members}]})
}

#[test]
fn karta_reads_settings_of_the_topmost_owner_only() {
    let mut between = job(json!({"priorityClassName": "high"}), json!({}));
    between["kind"] = json!("Step");
    let gang = json!({"podGroup": {"name": "main"}});
    let worker = pod(json!({"role": "worker"}), json!({}));
    let desired = grouped(karta(&gang, |_| {}), &worker, &[between, flow()]).unwrap();
    assert_eq!((desired.priority_class.as_str(), desired.min_member), ("train", 4));
}

#[test]
fn karta_that_its_own_validation_refuses_is_not_used() {
    let gang = members(&json!([{"componentName": "worker"}]));
    assert!(table::karta_describes(&karta(&gang, |_| {}), KIND));
    let invalid: [(&str, Change); 8] = [
        ("/rootComponent/statusDefinition", |of| *of = Value::Null),
        ("/rootComponent", |of| of["ownerRef"] = json!("leader")),
        ("/rootComponent/kind/version", |of| *of = json!("")),
        ("/childComponents/0/name", |of| *of = json!("worker")),
        ("/childComponents/0/ownerRef", |of| *of = json!("unknown")),
        ("/childComponents/1/ownerRef", |of| *of = json!("worker")),
        ("/childComponents/1", |of| of["instanceIdPath"] = json!(".spec.ids[]")),
        ("/childComponents/1/specDefinition", |of| of["podSpecPath"] = json!(".spec.pod")),
    ];
    for (at, change) in invalid {
        let changed = karta(&gang, |spec| {
            change(spec.pointer_mut(&format!("/structureDefinition{at}")).unwrap());
        });
        assert!(!table::karta_describes(&changed, KIND), "{at}");
        let desired = grouped(changed, &pod(json!({"role": "worker"}), json!({})), &[flow()]).unwrap();
        assert_eq!((desired.name.as_str(), desired.min_member), ("pg-o-u2", 1), "the default rule: {at}");
    }
    let of_unknown = members(&json!([{"componentName": "unknown"}]));
    assert!(!table::karta_describes(&karta(&of_unknown, |_| {}), KIND));
}

#[test]
fn karta_counts_components_with_pods_even_if_others_are_below_them() {
    // Of three components, only the worker has pods, so that every pod is of it.
    let gang = members(&json!([{"componentName": "worker"}]));
    let only_workers = karta(&gang, |spec| {
        let children = &mut spec["structureDefinition"]["childComponents"];
        children[0]["specDefinition"] = Value::Null;
        children[0]["ownerRef"] = json!("worker");
    });
    let desired = grouped(only_workers, &pod(json!({"role": "other"}), json!({})), &[flow()]).unwrap();
    assert_eq!((desired.name.as_str(), desired.min_member), ("pg-u2", 3));
}

#[test]
fn keys_and_filters_of_a_karta_must_have_one_value() {
    let of = |member: Value, labels: Value| {
        grouped(karta(&members(&json!([member])), |_| {}), &pod(labels, json!({})), &[flow()])
    };
    let by_key = json!({"componentName": "worker", "groupByKeyPaths": [".metadata.labels.key"]});
    assert_eq!(of(by_key.clone(), json!({"role": "worker", "key": "k"})).unwrap().name, "pg-u2-k");
    assert!(of(by_key, json!({"role": "worker"})).is_err());
    let filtered = json!({"componentName": "worker", "filters": [".metadata.labels.rank"]});
    assert!(of(filtered, json!({"role": "worker"})).is_err(), "the result of the filter is null");
}

#[test]
fn pod_of_an_instance_that_its_owner_does_not_list_is_refused() {
    let gang = members(&json!([{"componentName": "worker"}]));
    let of_pools = || {
        karta(&gang, |spec| {
            let worker = &mut spec["structureDefinition"]["childComponents"][1];
            worker["instanceIdPath"] = json!(".spec.pools[].name");
            worker["scaleDefinition"]["replicasPath"] = json!(".spec.pools[].replicas");
            worker["podSelector"]["componentInstanceSelector"] = json!({"idPath": ".metadata.labels.pool"});
        })
    };
    let pools = json!([{"name": "a", "replicas": 2}, {"name": "b", "replicas": 5}]);
    let flow = owner("flows.example/v1", "Flow", &json!({"pools": pools}));
    let of = |pool: &str| {
        let labels = json!({"role": "worker", "pool": pool});
        grouped(of_pools(), &pod(labels, json!({})), std::slice::from_ref(&flow))
    };
    assert_eq!(of("b").unwrap().min_member, 5);
    assert!(of("c").unwrap_err().to_string().contains("no instance `c`"));
    // Two values without instances belong to nothing.
    let two = karta(&gang, |spec| {
        let worker = &mut spec["structureDefinition"]["childComponents"][1];
        worker["scaleDefinition"]["replicasPath"] = json!(".spec.pools[].replicas");
    });
    assert!(grouped(two, &pod(json!({"role": "worker"}), json!({})), std::slice::from_ref(&flow)).is_err());
}

#[test]
fn value_of_another_type_in_an_elastic_policy_is_ignored_and_reported() {
    let of = |policy: Value| {
        let spec = json!({"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": {"replicas": 3}}});
        case(pod(json!({}), json!({})), vec![owner("kubeflow.org/v1", "PyTorchJob", &spec)]).group()
    };
    for (policy, minimum, reported) in [
        (json!({"minReplicas": 2}), 2, 0),
        (json!({"minReplicas": "2"}), 3, 1),
        (json!({"minReplicas": 2.5}), 3, 1),
        (json!("two"), 3, 1),
        (json!({"maxReplicas": 4}), 3, 0),
    ] {
        let desired = of(policy.clone()).unwrap();
        assert_eq!((desired.min_member, desired.ignored.len()), (minimum, reported), "{policy}");
        assert!(desired.ignored.iter().all(|text| text.contains("; write ")), "{:?}", desired.ignored);
    }
    let beyond = of(json!({"minReplicas": 4_294_967_296_i64})).unwrap_err().to_string();
    assert!(beyond.contains("beyond 32 bits; write a number"), "{beyond}");
}

#[test]
fn unknown_policy_of_segments_is_the_default_one_and_reported() {
    let of = |policy: &str| {
        let template =
            json!({"size": 4, "subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": policy}});
        let spec = json!({"leaderWorkerTemplate": template});
        let labels = json!({"leaderworkerset.sigs.k8s.io/worker-index": "1"});
        let set = owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", &spec);
        case(pod(labels, json!({})), vec![set]).ok()
    };
    let (known, unknown) = (of("LeaderWorker"), of("LeaderOnly"));
    assert_eq!(known.sub_groups, unknown.sub_groups);
    assert_eq!((known.ignored.len(), unknown.ignored.len()), (0, 1));
    assert!(unknown.ignored[0].contains("`LeaderOnly`, which has no effect; write"), "{:?}", unknown.ignored);
}

#[test]
fn replicated_job_without_replicas_is_no_part_of_the_group() {
    let of = |replicas: [i32; 3], metadata: &Value| {
        let job = |(name, replicas): (&str, i32)| json!({"name": name, "replicas": replicas, "template": {}});
        let jobs: Vec<Value> = ["a", "b", "c"].into_iter().zip(replicas).map(job).collect();
        let mut set = owner("jobset.x-k8s.io/v1alpha2", "JobSet", &json!({"replicatedJobs": jobs}));
        set["metadata"]["annotations"] = metadata.clone();
        let labels =
            json!({"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"});
        case(pod(labels, json!({})), vec![set]).group()
    };
    let desired = of([1, 0, 2], &json!({})).unwrap();
    assert_eq!(desired.min_sub_group, Some(2));
    let names: Vec<&str> = desired.sub_groups.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["a", "a-replica-0", "c", "c-replica-0", "c-replica-1"]);
    let more = json!({"kai.scheduler/batch-min-member": "3"});
    assert_eq!(of([1, 0, 2], &more).unwrap().min_sub_group, Some(2), "as many as there are");
    assert!(of([0, 0, 1], &json!({})).unwrap_err().to_string().contains("does not have"));
    assert!(of([1, -1, 1], &json!({})).unwrap_err().to_string().contains("must not be negative"));
}

#[test]
fn upstream_pod_group_within_one_domain_names_a_topology_with_that_level() {
    let topology = |name: &str, labels: &[&str]| {
        let levels: Vec<Value> = labels.iter().map(|label| json!({"nodeLabel": label})).collect();
        let mut topology = owner("kai.scheduler/v1alpha1", "Topology", &json!({"levels": levels}));
        topology["metadata"]["name"] = json!(name);
        topology
    };
    let topologies =
        [topology("b", &["zone", "rack", "host"]), topology("a", &["rack"]), topology("c", &["zone"])];
    let of = |keys: &[&str], annotations: &Value| -> Result<Desired, Invalid> {
        let constraints: Vec<Value> = keys.iter().map(|key| json!({"key": key})).collect();
        let spec =
            json!({"schedulingConstraints": {"topology": constraints}, "schedulingPolicy": {"basic": {}}});
        let mut group = owner("scheduling.k8s.io/v1alpha2", "PodGroup", &spec);
        group["metadata"]["annotations"] = annotations.clone();
        let mut pod = pod(json!({}), json!({}));
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "o"});
        let summary: PodSummary = serde_json::from_value(pod.clone()).unwrap();
        let case = case(pod, vec![]);
        let defaults = Defaults::default();
        let object =
            |value: &Value| -> Arc<OwnerObject> { Arc::new(serde_json::from_value(value.clone()).unwrap()) };
        let reference = ObjectRef::Object {
            api_version: "scheduling.k8s.io/v1alpha2".to_owned(),
            kind: "PodGroup".to_owned(),
            name: "o".to_owned(),
        };
        let mut objects = ReadObjects(vec![(reference.clone(), vec![object(&group)])]);
        let workload = |objects: &ReadObjects| {
            let workload = Workload {
                pod: &summary,
                owners: &[],
                options: &case.options,
                defaults: &defaults,
                cluster: &case,
                objects,
                inherited: None,
                wrapped: None,
            };
            (table::reads(&workload), table::desired(&workload))
        };
        let (reads, unconstrained) = workload(&objects);
        if keys.iter().all(|key| key.is_empty()) {
            assert_eq!(reads, [reference]);
            return unconstrained;
        }
        assert_eq!(reads, [reference, ObjectRef::Topologies]);
        objects.0.push((ObjectRef::Topologies, topologies.iter().map(object).collect()));
        workload(&objects).1
    };
    let none = json!({});
    assert_eq!(of(&[], &none).unwrap().topology, TopologyConstraint::default());
    let required = |keys: &[&str], annotations: &Value| {
        let topology = of(keys, annotations).unwrap().topology;
        (topology.topology, topology.required_topology_level)
    };
    let pair = |topology: &str, level: &str| (topology.to_owned(), level.to_owned());
    assert_eq!(required(&["rack"], &none), pair("a", "rack"));
    assert_eq!(required(&["zone"], &json!({"kai.scheduler/topology": "c"})), pair("c", "zone"));
    assert_eq!(required(&["rack", "zone"], &none), pair("b", "rack"), "the innermost of both");
    let own = json!({"kai.scheduler/topology": "b", "kai.scheduler/topology-required-placement": "host"});
    assert_eq!(required(&["rack"], &own), pair("b", "host"), "the annotation is more specific");
    let missing = of(&["row"], &none).unwrap_err().to_string();
    assert!(
        missing.contains("the node label `row`") && missing.contains("create one, or remove"),
        "{missing}"
    );
    let empty = of(&[""], &none);
    assert!(empty.unwrap_err().to_string().contains("topology[0].key` is missing; write a node label"));
}
