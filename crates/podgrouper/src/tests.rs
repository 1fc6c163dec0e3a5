//! The desired pod group of a pod, as tables.

mod settings_of_kinds;

use crate::cluster::{ClusterView, ReadObjects, StoredGroupView};
use crate::defaults::Defaults;
use crate::objects::{OwnerObject, PodSummary};
use crate::workload::{Desired, Workload};
use crate::{Invalid, Options, OwnKind, OwnRule, OwnRules, fields, parse_selector, table};
use kai_api::pod_group::Preemptibility;
use kai_api::well_known::annotation;
use kai_runtime::Key;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod with its owners, in a cluster with these priority classes and groups.
struct Case {
    pod: Value,
    owners: Vec<Value>,
    classes: &'static [&'static str],
    groups: &'static [&'static str],
    options: Options,
    defaults: Option<Value>,
}

fn case(pod: Value, owners: Vec<Value>) -> Case {
    Case {
        pod,
        owners,
        classes: &["train", "build", "high"],
        groups: &[],
        options: Options::default(),
        defaults: None,
    }
}

impl ClusterView for Case {
    fn priority_class_exists(&self, name: &str) -> bool {
        self.classes.contains(&name)
    }

    fn group(&self, key: &Key) -> Option<StoredGroupView> {
        self.groups.contains(&key.name.as_str()).then(StoredGroupView::default)
    }

    fn groups_named(&self, _: &str, base: &str) -> Vec<StoredGroupView> {
        let named = self.groups.iter().filter(|name| name.starts_with(base));
        named.map(|_| StoredGroupView::default()).collect()
    }

    fn pods_labelled(&self, _: &str, _: &str, _: &str) -> Vec<Arc<PodSummary>> {
        Vec::new()
    }
}

impl Case {
    fn group(&self) -> Result<Desired, Invalid> {
        let pod: PodSummary = serde_json::from_value(self.pod.clone()).unwrap();
        let owners = self.owners.iter().map(|owner| serde_json::from_value(owner.clone()).unwrap());
        let owners: Vec<Arc<OwnerObject>> = owners.map(Arc::new).collect();
        let defaults = self.defaults.clone().map(|map| serde_json::from_value(map).unwrap());
        table::desired(&Workload {
            pod: &pod,
            owners: &owners,
            options: &self.options,
            defaults: &Defaults::read(defaults.as_ref()),
            cluster: self,
            objects: &ReadObjects::default(),
            inherited: None,
            wrapped: None,
        })
    }

    fn ok(&self) -> Desired {
        self.group().unwrap()
    }
}

fn pod(labels: Value, annotations: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": {}});
    pod["metadata"]["labels"] = labels;
    pod["metadata"]["annotations"] = annotations;
    pod
}

fn job(labels: Value, annotations: Value) -> Value {
    let mut job = pod(labels, annotations);
    job["apiVersion"] = json!("batch/v1");
    job["kind"] = json!("Job");
    job["metadata"]["name"] = json!("j");
    job["metadata"]["uid"] = json!("u2");
    job
}

#[test]
fn pod_without_owners_has_its_own_group() {
    let desired = case(pod(json!({"team": "a"}), json!({"note": "x"})), vec![]).ok();
    assert_eq!((desired.name.as_str(), desired.namespace.as_str()), ("pg-p-u1", "ns"));
    assert_eq!((desired.min_member, desired.min_sub_group), (1, None));
    assert_eq!((desired.queue.as_str(), desired.priority_class.as_str()), ("default-queue", "train"));
    assert_eq!(desired.owner.kind, "Pod");
    assert_eq!(desired.labels["team"], "a");
    assert_eq!(desired.annotations["note"], "x");
    let top = "name: p\nuid: u1\ngroup: \"\"\nversion: v1\nkind: Pod\n";
    assert_eq!(desired.annotations[annotation::TOP_OWNER], top);
}

#[test]
fn group_of_an_owner_with_a_long_name_has_a_valid_name() {
    let uid = "0c2c8c5e-7b0e-4f0e-9d3c-0a6b8d3c4f5e";
    let name = kai_api::pod_group::name_of(&"j".repeat(253), uid);
    assert_eq!(name.len(), 253);
    assert!(name.starts_with("pg-j") && name.ends_with(&format!("j-{uid}")), "{name}");
    let cut_at_a_dot = format!("{}.{}", "j".repeat(212), "k".repeat(40));
    assert_eq!(kai_api::pod_group::name_of(&cut_at_a_dot, uid), format!("pg-{}-{uid}", "j".repeat(212)));
}

#[test]
fn pods_of_a_spark_application_share_a_group() {
    let labels = json!({"spark-app-name": "etl", "spark-app-selector": "spark-7"});
    assert_eq!(case(pod(labels, json!({})), vec![]).ok().name, "spark-7");
    let half = json!({"spark-app-selector": "spark-7"});
    assert_eq!(case(pod(half, json!({})), vec![]).ok().name, "pg-p-u1");
}

#[test]
fn pods_of_a_job_share_a_group() {
    let owner = job(json!({"user": "ann"}), json!({}));
    let desired = case(pod(json!({"user": "ben"}), json!({"user": "ben"})), vec![owner]).ok();
    assert_eq!((desired.name.as_str(), desired.min_member), ("pg-j-u2", 1));
    assert_eq!((desired.labels["user"].as_str(), desired.annotations["user"].as_str()), ("ann", "ben"));
    assert_eq!(desired.owner.api_version, "batch/v1");
    let top = "name: j\nuid: u2\ngroup: batch\nversion: v1\nkind: Job\n";
    assert_eq!(desired.annotations[annotation::TOP_OWNER], top);
}

#[test]
fn job_annotation_sets_min_member() {
    let minimum = |text: &str| job(json!({}), json!({"kai.scheduler/batch-min-member": text}));
    let of = |text: &str| case(pod(json!({}), json!({})), vec![minimum(text)]).group();
    assert_eq!(of("4").unwrap().min_member, 4);
    assert_eq!(of("0").unwrap().min_member, 0);
    let error = of("four").unwrap_err().to_string();
    assert_eq!(
        error,
        "Job `j`: annotation `kai.scheduler/batch-min-member` is `four`, which is not a whole number; write a number such as `2`, or \
         remove it"
    );
    for (text, value) in [("+2", 2), ("-1", -1), ("007", 7)] {
        assert_eq!(fields::number(text), Ok(value), "{text}");
    }
    for text in ["3000000000", "-99999999999999999999"] {
        assert!(fields::number(text).unwrap_err().contains("beyond 32 bits"), "{text}");
    }
    for text in ["1e0", "2.0", " 2", "", "+", "0x2"] {
        assert!(fields::number(text).unwrap_err().contains("not a whole number"), "{text}");
    }
}

#[test]
fn pod_stays_in_an_existing_legacy_group() {
    let owner = job(json!({}), json!({"kai.scheduler/batch-min-member": "nonsense"}));
    let mut old = case(pod(json!({}), json!({})), vec![owner]);
    old.groups = &["pg-p-u2"];
    let desired = old.ok();
    assert_eq!((desired.name.as_str(), desired.min_member), ("pg-p-u2", 1));
    old.options.search_legacy_groups = false;
    assert!(old.group().is_err());
}

#[test]
fn queue_comes_from_the_owner_then_the_pod_then_the_project() {
    let pool = json!({"project": "p1", "kai.scheduler/node-pool": "a100"});
    let cases = [
        (json!({"kai.scheduler/queue": "q1"}), json!({"kai.scheduler/queue": "q2"}), "q1"),
        (json!({}), json!({"kai.scheduler/queue": "q2", "project": "p1"}), "q2"),
        (json!({"project": "p0"}), json!({"project": "p1"}), "p0"),
        (json!({}), pool, "p1-a100"),
        (json!({}), json!({"project": ""}), "default-queue"),
    ];
    for (of_job, of_pod, expected) in cases {
        let desired = case(pod(of_pod.clone(), json!({})), vec![job(of_job.clone(), json!({}))]).ok();
        assert_eq!(desired.queue, expected, "{of_job} {of_pod}");
    }
}

#[test]
fn first_existing_priority_class_is_used() {
    let map = |priority: &str| {
        let types = json!([{"typeName": "Job", "group": "batch", "priorityName": priority, "preemptibility": "Non-Preemptible"}]);
        Some(json!({"data": {"types": types.to_string()}}))
    };
    let cases = [
        (json!({"priorityClassName": "high"}), json!({"priorityClassName": "build"}), None, "high"),
        (json!({}), json!({"priorityClassName": "build"}), None, "build"),
        (json!({"priorityClassName": "missing"}), json!({"priorityClassName": "build"}), None, "train"),
        (json!({"priorityClassName": "missing"}), json!({}), map("high"), "high"),
        (json!({"priorityClassName": "missing"}), json!({}), map("missing-too"), "train"),
    ];
    for (of_job, of_pod, defaults, expected) in cases {
        let mut case = case(pod(of_pod, json!({})), vec![job(of_job.clone(), json!({}))]);
        case.defaults = defaults;
        assert_eq!(case.ok().priority_class, expected, "{of_job}");
    }
    let mut by_spec = pod(json!({}), json!({}));
    by_spec["spec"]["priorityClassName"] = json!("build");
    assert_eq!(case(by_spec, vec![job(json!({}), json!({}))]).ok().priority_class, "build");
    let mut by_default = case(pod(json!({}), json!({})), vec![job(json!({}), json!({}))]);
    by_default.defaults = map("high");
    assert_eq!(by_default.ok().preemptibility, Some(Preemptibility::NonPreemptible));
}

#[test]
fn invalid_value_falls_through_to_the_next_source() {
    let owner = job(
        json!({"kai.scheduler/preemptibility": "maybe"}),
        json!({
            "kai.scheduler/preemption-delay": "30", "kai.scheduler/staleness-grace-period": "-1s",
            "kai.scheduler/topology-required-placement": "rack", "kai.scheduler/topology": "dc",
        }),
    );
    let of_pod = pod(
        json!({"kai.scheduler/preemptibility": "preemptible"}),
        json!({"kai.scheduler/preemption-delay": "5m", "kai.scheduler/staleness-grace-period": "2h"}),
    );
    let desired = case(of_pod, vec![owner]).ok();
    assert_eq!(desired.preemptibility, Some(Preemptibility::Preemptible));
    assert_eq!(desired.preemption_delay.as_deref(), Some("5m0s"));
    assert_eq!(desired.staleness_grace_period.as_deref(), Some("-1s"));
    assert_eq!(desired.topology.required_topology_level, "rack");
    let negative = pod(json!({}), json!({"kai.scheduler/preemption-delay": "-5m"}));
    assert_eq!(case(negative, vec![]).ok().preemption_delay, None);
}

#[test]
fn time_limit_is_inherited_from_one_object_and_owners_come_first() {
    let limit =
        |span: &str| json!({"kai.scheduler/max-runtime": span, "kai.scheduler/max-runtime-action": "end"});
    let of_owner =
        case(pod(json!({}), limit("1h")), vec![job(json!({}), json!({"kai.scheduler/max-runtime": "2h"}))])
            .ok();
    assert_eq!(of_owner.annotations.get("kai.scheduler/max-runtime").map(String::as_str), Some("2h"));
    assert_eq!(
        of_owner.annotations.get("kai.scheduler/max-runtime-action"),
        None,
        "the parts belong together"
    );
    let of_pod = case(pod(json!({}), limit("1h")), vec![job(json!({}), json!({}))]).ok();
    assert_eq!(of_pod.annotations.get("kai.scheduler/max-runtime").map(String::as_str), Some("1h"));
    assert_eq!(of_pod.annotations.get("kai.scheduler/max-runtime-action").map(String::as_str), Some("end"));
}

#[test]
fn scheduler_owned_timestamps_are_not_inherited() {
    let owner = job(
        json!({}),
        json!({
            "kai.scheduler/last-start-timestamp": "2099-01-01T00:00:00Z", "team": "a",
            "kai.scheduler/max-runtime-ended-timestamp": "2026-01-01T00:00:00Z",
        }),
    );
    let annotations = case(pod(json!({}), json!({})), vec![owner]).ok().annotations;
    assert_eq!(annotations.get("team").map(String::as_str), Some("a"));
    assert!(annotations.keys().all(|key| !key.ends_with("-timestamp")), "{annotations:?}");
}

#[test]
fn generic_grouping_reads_all_owners() {
    let owner = |kind: &str, uid: &str, labels: Value| json!({"apiVersion": "example.com/v3", "kind": kind, "metadata": {"name": "o", "uid": uid, "labels": labels}});
    let near = owner("Near", "u3", json!({"priorityClassName": "high"}));
    let top = owner("Top", "u4", json!({"priorityClassName": "build", "kai.scheduler/queue": "q"}));
    let desired = case(pod(json!({}), json!({})), vec![near, top]).ok();
    assert_eq!((desired.name.as_str(), desired.queue.as_str()), ("pg-o-u4", "q"));
    assert_eq!(desired.priority_class, "high");
}

#[test]
fn names_that_are_not_plain_yaml_are_quoted() {
    let mut numeric = pod(json!({}), json!({}));
    numeric["metadata"]["name"] = json!("007");
    let desired = case(numeric, vec![]).ok();
    assert!(desired.annotations[annotation::TOP_OWNER].starts_with("name: \"007\"\n"));
}

#[test]
fn selectors_ignore_items_without_a_value_and_are_encoded() {
    let options = Options { pod_label_selector: parse_selector("a=b,junk,c/d=e"), ..Options::default() };
    assert_eq!(
        crate::informer_view::pod_query(&options),
        "fieldSelector=spec.schedulerName%3Dkai-scheduler&labelSelector=a%3Db%2Cc%2Fd%3De"
    );
}

#[test]
fn pods_of_a_deployment_are_grouped_one_by_one() {
    let mut owner = job(json!({"kai.scheduler/queue": "q"}), json!({}));
    owner["apiVersion"] = json!("apps/v1");
    owner["kind"] = json!("Deployment");
    let desired = case(pod(json!({}), json!({})), vec![owner]).ok();
    assert_eq!((desired.name.as_str(), desired.owner.kind.as_str()), ("pg-p-u1", "Pod"));
    assert_eq!((desired.queue.as_str(), desired.priority_class.as_str()), ("q", "inference"));
}

#[test]
fn wildcard_entries_hold_for_any_version() {
    assert!(table::find("run.ai", "v9", "TrainingWorkload").is_some());
    assert!(table::find("batch", "v9", "Job").is_none());
    assert_eq!(table::TABLE.len(), 42);
}

#[test]
fn counts_beyond_32_bits_and_names_that_no_server_takes_are_refused() {
    let owner = |spec: Value| {
        let mut owner = job(json!({}), json!({}));
        owner["apiVersion"] = json!("kubeflow.org/v1");
        owner["kind"] = json!("TFJob");
        owner["spec"] = spec;
        owner
    };
    let of =
        |spec: Value| case(pod(json!({}), json!({})), vec![owner(spec)]).group().unwrap_err().to_string();
    let beyond = of(json!({"tfReplicaSpecs": {"Worker": {"replicas": 4_294_967_296i64}}}));
    assert!(
        beyond.contains("`spec.tfReplicaSpecs.Worker.replicas` is 4294967296, which is beyond 32 bits"),
        "{beyond}"
    );
    let most = i32::MAX;
    let sum = of(json!({"tfReplicaSpecs": {"Worker": {"replicas": most}, "Chief": {"replicas": most}}}));
    assert!(sum.contains("together beyond 32 bits"), "{sum}");
    let wrong = of(json!({"tfReplicaSpecs": 7}));
    assert!(wrong.contains("`spec.tfReplicaSpecs` must be an object"), "{wrong}");
    let labels = json!({"spark-app-name": "etl", "spark-app-selector": "Spark_1"});
    let named = case(pod(labels, json!({})), vec![]).group().unwrap_err().to_string();
    assert!(named.contains("`Spark_1` is no valid name"), "{named}");
}

#[test]
fn segments_of_a_set_of_one_pod_are_checked() {
    let set = |size: i32, policy: &str, segment: Value| {
        let mut set = job(json!({}), json!({}));
        set["apiVersion"] = json!("leaderworkerset.x-k8s.io/v1");
        set["kind"] = json!("LeaderWorkerSet");
        let template = json!({"size": size, "subGroupPolicy": {"subGroupSize": segment}});
        set["spec"] = json!({"startupPolicy": policy, "leaderWorkerTemplate": template});
        set
    };
    let of = |index: &str, set: Value| {
        let labels = json!({"leaderworkerset.sigs.k8s.io/worker-index": index});
        case(pod(labels, json!({})), vec![set]).group()
    };
    let error = of("0", set(1, "LeaderCreated", json!(2))).unwrap_err().to_string();
    assert!(error.contains("the segment size is 2"), "{error}");
    assert!(of("1", set(1, "LeaderReady", json!(2))).is_err());
    let alone = of("0", set(3, "LeaderReady", json!(2))).unwrap();
    assert_eq!((alone.min_member, alone.sub_group.as_deref()), (1, Some("leader")));
    let beyond = of("1", set(1, "LeaderCreated", Value::Null)).unwrap();
    assert_eq!((beyond.sub_groups.len(), beyond.sub_group), (1, None));
}

#[test]
fn defaults_are_looked_up_for_every_owner_in_order() {
    let owner = |kind: &str| json!({"apiVersion": "example.com/v3", "kind": kind, "metadata": {"name": "o", "uid": "u3"}});
    let of = |near: Value, top: Value| {
        let mut case = case(pod(json!({}), json!({})), vec![owner("Near"), owner("Top")]);
        case.defaults = Some(json!({"data": {"types": json!([near, top]).to_string()}}));
        let desired = case.ok();
        (desired.priority_class, desired.preemptibility)
    };
    let entry = |kind: &str, class: &str, preemptibility: &str| json!({"typeName": kind, "priorityName": class, "preemptibility": preemptibility});
    let top = entry("Top", "build", "Non-Preemptible");
    let near = entry("Near", "high", "preemptible");
    assert_eq!(of(near, top.clone()), ("high".to_owned(), Some(Preemptibility::Preemptible)));
    let unusable = entry("Near", "missing", "perhaps");
    assert_eq!(of(unusable, top), ("build".to_owned(), Some(Preemptibility::NonPreemptible)));
}

#[test]
fn ray_worker_group_with_replicas_counts_whatever_its_hosts() {
    let mut cluster = job(json!({}), json!({}));
    cluster["apiVersion"] = json!("ray.io/v1");
    cluster["kind"] = json!("RayCluster");
    cluster["spec"] = json!({"workerGroupSpecs": [
        {"groupName": "none", "replicas": 0, "minReplicas": 0, "numOfHosts": 2},
        {"groupName": "hostless", "replicas": 2, "numOfHosts": 0},
        {"groupName": "suspended", "replicas": 2, "suspend": true},
    ]});
    let desired = case(pod(json!({}), json!({})), vec![cluster]).ok();
    let minima: Vec<(&str, Option<i32>)> =
        desired.sub_groups.iter().map(|of| (of.name.as_str(), of.min_member)).collect();
    assert_eq!(minima, [("headgroup", Some(1)), ("hostless", Some(0))]);
}

/// Any JSON, with the names that rules look for.
fn any_json() -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        Just("spec"),
        Just("status"),
        Just("replicas"),
        Just("size"),
        Just("Worker"),
        Just("template"),
        Just("name"),
        Just("pytorchReplicaSpecs"),
        Just("leaderWorkerTemplate"),
        Just("replicatedJobs"),
        Just("workerGroupSpecs"),
        Just("metadata"),
        Just("annotations"),
        Just("subGroupPolicy"),
        Just("subGroupSize"),
        Just("minReplicas"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..20).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..5).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_owner_or_pod_makes_a_rule_panic(
        spec in any_json(),
        status in any_json(),
        values in prop::collection::vec(("[a-z0-9./-]{0,40}", ".{0,12}"), 0..4),
        numbers in prop::collection::vec("-?[0-9]{0,12}", 6),
        at in 0..table::TABLE.len(),
    ) {
        let entry = &table::TABLE[at];
        let known = [
            "leaderworkerset.sigs.k8s.io/worker-index", "leaderworkerset.sigs.k8s.io/group-index",
            "training.kubeflow.org/replica-index", "jobset.sigs.k8s.io/job-index", "kai.scheduler/segment-size",
            "kai.scheduler/batch-min-member",
        ];
        let mut map: serde_json::Map<String, Value> =
            known.iter().zip(&numbers).map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        map.extend(values.into_iter().map(|(key, value)| (key, json!(value))));
        map.insert("training.kubeflow.org/replica-type".to_owned(), json!("worker"));
        map.insert("jobset.sigs.k8s.io/replicatedjob-name".to_owned(), json!("a"));
        let version = entry.version.unwrap_or("v1");
        let owner = json!({
            "apiVersion": if entry.group.is_empty() { version.to_owned() } else { format!("{}/{version}", entry.group) },
            "kind": entry.kind,
            "metadata": {"name": "o", "uid": "u", "labels": map, "annotations": map},
            "spec": spec, "status": status,
        });
        let pod = pod(Value::Object(map.clone()), Value::Object(map));
        let _ = case(pod.clone(), vec![owner.clone()]).group();
        let _ = case(pod, vec![owner.clone(), owner]).group();
    }
}

/// A rule of a user, which also replaces that of Jobs.
struct Own(&'static str);

impl OwnRule for Own {
    fn kind(&self) -> OwnKind {
        OwnKind { group: "batch", version: None, kind: self.0 }
    }

    fn group(&self, workload: &Workload<'_>) -> Result<Desired, Invalid> {
        let mut desired = table::built_in(workload)?;
        match workload.pod.metadata.name.as_deref() {
            Some("panics") => panic!("a defect"),
            Some("hangs") => loop {
                std::thread::sleep(std::time::Duration::from_millis(5));
            },
            _ => desired.min_member = 7,
        }
        Ok(desired)
    }
}

fn owned(rules: &OwnRules, name: &str, kind: &str) -> Case {
    let metadata = json!({"name": "o", "namespace": "ns", "uid": "u2"});
    let owner = json!({"apiVersion": "batch/v1", "kind": kind, "metadata": metadata});
    let mut pod = pod(json!({}), json!({}));
    pod["metadata"]["name"] = json!(name);
    let options = Options { own_rules: rules.clone(), ..Options::default() };
    Case { options, ..case(pod, vec![owner]) }
}

#[test]
fn own_rule_replaces_the_built_in_one_and_its_panic_is_an_error_of_the_pod() {
    let rules = OwnRules::default().with(Arc::new(Own("Job")));
    let grouped = owned(&rules, "p", "Job").ok();
    assert_eq!((grouped.min_member, grouped.priority_class.as_str()), (7, "train"), "the cluster is read");
    assert_eq!(owned(&rules, "p", "CustomJob").ok().min_member, 1, "other kinds are not affected");
    let problem = owned(&rules, "panics", "Job").group().unwrap_err().to_string();
    assert_eq!(problem, "Job `o`: its grouping rule panicked: a defect");
    assert_eq!(owned(&rules, "p", "Job").ok().min_member, 7, "a panic concerns its pod only");
}

#[test]
fn own_rule_that_does_not_return_is_cut_off() {
    let limit = std::time::Duration::from_millis(200);
    let rules = OwnRules::default().with_timeout(Arc::new(Own("Job")), limit);
    let cut_off = owned(&rules, "hangs", "Job").group().unwrap_err().to_string();
    assert!(cut_off.contains("did not return within"), "{cut_off}");
    assert_eq!(owned(&rules, "p", "Job").group().unwrap_err().to_string(), cut_off, "it is not called again");
    assert_eq!(owned(&rules, "p", "CustomJob").ok().min_member, 1, "other kinds are grouped");
}
