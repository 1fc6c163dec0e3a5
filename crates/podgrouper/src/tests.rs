//! Which group a pod belongs to, as tables.

use super::*;
use kai_api::pod_group::Preemptibility;

/// The group of a pod below owners, in a cluster with these priority classes and groups.
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

impl Case {
    fn group(&self) -> Result<Desired, Error> {
        let workload = Workload {
            pod: &self.pod,
            owners: &self.owners,
            options: &self.options,
            defaults: &Defaults::read(self.defaults.as_ref()),
            class_exists: &|class| self.classes.contains(&class),
            group_exists: &|key| self.groups.contains(&&*key.name),
        };
        let (group, version, kind) = workload.top_kind();
        grouping_of(group, version, kind)(&workload)
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
fn a_pod_on_its_own_makes_its_own_group() {
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
fn a_job_may_name_its_minimum() {
    let minimum = |text: &str| job(json!({}), json!({"kai.scheduler/batch-min-member": text}));
    let of = |text: &str| case(pod(json!({}), json!({})), vec![minimum(text)]).group();
    assert_eq!(of("4").unwrap().min_member, 4);
    assert_eq!(of("0").unwrap().min_member, 0);
    let error = of("four").unwrap_err().to_string();
    assert_eq!(
        error,
        "Job `j`: annotation `kai.scheduler/batch-min-member` is `four`, which is not a whole number"
    );
}

#[test]
fn a_pod_stays_in_the_group_that_an_older_version_made_for_it() {
    let owner = job(json!({}), json!({"kai.scheduler/batch-min-member": "nonsense"}));
    let mut old = case(pod(json!({}), json!({})), vec![owner]);
    old.groups = &["pg-p-u2"];
    let desired = old.ok();
    assert_eq!((desired.name.as_str(), desired.min_member), ("pg-p-u2", 1));
    old.options.search_legacy_groups = false;
    assert!(old.group().is_err());
}

#[test]
fn the_queue_comes_from_the_owner_then_the_pod_then_the_project() {
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
fn the_first_priority_class_that_exists_counts() {
    let map = |priority: &str| {
        let types = json!([{"typeName": "Job", "group": "batch", "priorityName": priority, "preemptibility": "Non-Preemptible"}]);
        Some(json!({"data": {"types": types.to_string()}}))
    };
    let cases = [
        (json!({"priorityClassName": "high"}), json!({"priorityClassName": "build"}), None, "high"),
        (json!({}), json!({"priorityClassName": "build"}), None, "build"),
        (json!({"priorityClassName": "unheard-of"}), json!({"priorityClassName": "build"}), None, "train"),
        (json!({"priorityClassName": "unheard-of"}), json!({}), map("high"), "high"),
        (json!({"priorityClassName": "unheard-of"}), json!({}), map("unheard-of-too"), "train"),
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
fn what_makes_no_sense_leaves_it_to_the_next_source() {
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
fn workloads_of_any_kind_ask_all_their_owners() {
    let owner = |kind: &str, uid: &str, labels: Value| json!({"apiVersion": "example.com/v3", "kind": kind, "metadata": {"name": "o", "uid": uid, "labels": labels}});
    let near = owner("Near", "u3", json!({"priorityClassName": "high"}));
    let top = owner("Top", "u4", json!({"priorityClassName": "build", "kai.scheduler/queue": "q"}));
    let desired = case(pod(json!({}), json!({})), vec![near, top]).ok();
    assert_eq!((desired.name.as_str(), desired.queue.as_str()), ("pg-o-u4", "q"));
    assert_eq!(desired.priority_class, "high");
}

#[test]
fn odd_names_are_quoted_for_yaml() {
    let mut odd = pod(json!({}), json!({}));
    odd["metadata"]["name"] = json!("007");
    let desired = case(odd, vec![]).ok();
    assert!(desired.annotations[annotation::TOP_OWNER].starts_with("name: \"007\"\n"));
}

#[test]
fn selectors_leave_out_what_is_no_pair_and_are_encoded() {
    let options = Options { pod_label_selector: parse_selector("a=b,junk,c/d=e"), ..Options::default() };
    assert_eq!(
        pod_query(&options),
        "fieldSelector=spec.schedulerName%3Dkai-scheduler&labelSelector=a%3Db%2Cc/d%3De"
    );
}
