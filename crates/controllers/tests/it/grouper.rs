//! The pod grouper: pods and jobs get their pod groups.

use crate::{Component, TestCluster, builder, crds, group_name, job, k, pod};
use kai_object as object;
use kai_runtime::ResourceKind;
use kai_runtime::api::Part;
use kai_runtime::kind::{EVENT, Key};
use serde_json::{Value, json};

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_costs_one_group_and_one_patch() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::POD, pod("a", &json!({"kai.scheduler/queue": "team"}), &json!({}))).await;
    let name = test.group_of("a").await;
    let made = test.find(&k::POD_GROUP, &name).await.unwrap();
    assert_eq!(made["spec"], json!({"minMember": 1, "queue": "team", "priorityClassName": "train"}));
    test.bind("a", "node-1").await;
    test.until(&k::POD, "a", |pod| object::str_at(pod, "/status/phase") == "Running").await;
    test.sleep(60.0).await;
    let expected = [
        "POST /apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups",
        "PATCH /api/v1/namespaces/default/pods/a",
    ];
    assert_eq!(test.writes(Component::Grouper), expected);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_a_job_share_one_group() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let minimum = json!({"kai.scheduler/batch-min-member": "3"});
    test.create(&k::JOB, job("train", 3, &json!({"kai.scheduler/queue": "team"}), &minimum)).await;
    test.sleep(5.0).await;
    let pods = test.list(&k::POD).await;
    let groups = test.list(&k::POD_GROUP).await;
    assert_eq!((pods.len(), groups.len()), (3, 1));
    let group = object::name(&groups[0]);
    assert!(pods.iter().all(|pod| group_name(pod) == group), "{pods:#?}");
    assert!(group.starts_with("pg-train-"));
    assert_eq!((&groups[0]["spec"]["minMember"], &groups[0]["spec"]["queue"]), (&json!(3), &json!("team")));
    assert_eq!(groups[0]["metadata"]["ownerReferences"][0]["kind"], "Job");
    let writes = test.writes(Component::Grouper);
    let made = writes.iter().filter(|write| write.starts_with("POST")).count();
    assert!(made <= 3, "at most each pod once before the first answer: {writes:?}");
    assert_eq!(writes.iter().filter(|write| write.starts_with("PATCH /api/v1")).count(), 3, "{writes:?}");
    assert!(!writes.iter().any(|write| write.contains("podgroups/")), "{writes:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn changed_or_deleted_group_is_restored() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 1, &json!({}), &json!({}))).await;
    test.sleep(5.0).await;
    let name = object::name(&test.list(&k::POD_GROUP).await[0]).to_owned();
    test.patch(&k::POD_GROUP, &name, json!({"spec": {"minMember": 7, "queue": "chosen"}})).await;
    let right = test.until(&k::POD_GROUP, &name, |group| group["spec"]["minMember"] == 1).await;
    assert_eq!(right["spec"]["queue"], "chosen", "the queue is the user's");
    test.delete(&k::POD_GROUP, &name).await;
    let again = test.until(&k::POD_GROUP, &name, |group| object::uid(group) != object::uid(&right)).await;
    assert_eq!(again["spec"]["queue"], "default-queue");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deleted_group_of_a_pod_without_owner_is_restored() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::POD, pod("a", &json!({}), &json!({}))).await;
    let name = test.group_of("a").await;
    test.delete(&k::POD_GROUP, &name).await;
    test.until(&k::POD_GROUP, &name, |_| true).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn skipped_terminal_and_foreign_pods_are_not_grouped() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let skip = json!({"kai.scheduler/skip-podgrouper": "true"});
    test.create(&k::POD, pod("skips", &json!({}), &skip)).await;
    test.create(&k::POD, pod("by-hand", &json!({}), &json!({"pod-group-name": "mine"}))).await;
    test.create(&k::JOB, job("skips", 1, &json!({}), &skip)).await;
    test.cluster.faults().partition(Component::Grouper.client());
    test.create(&k::POD, pod("finished", &json!({}), &json!({"sim.kai.scheduler/run-for": "1s"}))).await;
    test.bind("finished", "node-1").await;
    test.until(&k::POD, "finished", |pod| object::str_at(pod, "/status/phase") == "Succeeded").await;
    test.cluster.faults().heal(Component::Grouper.client());
    let mut foreign = pod("foreign", &json!({}), &json!({}));
    foreign["spec"]["schedulerName"] = json!("default-scheduler");
    test.create(&k::POD, foreign).await;
    test.create(&k::POD, pod("almost", &json!({}), &json!({"kai.scheduler/skip-podgrouper": "false"}))).await;
    test.group_of("almost").await;
    test.sleep(60.0).await;
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 1);
    assert_eq!(test.writes(Component::Grouper).len(), 2);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_annotation_is_reported_and_retried() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("invalid", 1, &json!({}), &json!({"kai.scheduler/batch-min-member": "four"})))
        .await;
    test.sleep(200.0).await;
    let events = test.list(&EVENT).await;
    let warnings: Vec<&Value> =
        events.iter().filter(|event| event["reason"] == "PodGrouperWarning").collect();
    assert_eq!(warnings.len(), 1, "{events:#?}");
    assert!(
        object::str_at(warnings[0], "/message").contains("`four`, which is not a whole number"),
        "{warnings:#?}"
    );
    assert_eq!(warnings[0]["type"], "Warning");
    test.patch(
        &k::JOB,
        "invalid",
        json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": "1"}}}),
    )
    .await;
    test.sleep(60.0).await;
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn malformed_setting_without_effect_is_reported_once_on_the_workload() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let labels = json!({"kai.scheduler/preemptibility": "maybe", "priorityClassName": "no-such-class"});
    let annotations =
        json!({"kai.scheduler/preemption-delay": "soon", "kai.scheduler/batch-min-member": "2"});
    test.create(&k::JOB, job("malformed", 2, &labels, &annotations)).await;
    test.sleep(200.0).await;
    let groups = test.list(&k::POD_GROUP).await;
    assert_eq!((groups.len(), &groups[0]["spec"]["minMember"]), (1, &json!(2)), "{groups:#?}");
    let events = test.list(&EVENT).await;
    let warnings: Vec<&Value> =
        events.iter().filter(|event| event["reason"] == "PodGrouperWarning").collect();
    assert_eq!(warnings.len(), 1, "{events:#?}");
    assert_eq!(warnings[0]["involvedObject"]["kind"], "Job");
    assert_eq!(warnings[0]["involvedObject"]["name"], "malformed");
    let message = object::str_at(warnings[0], "/message");
    for part in ["`soon`, which is no duration", "is `maybe` and has no effect", "`no-such-class`"] {
        assert!(message.contains(part), "{message}");
    }
}

/// Users of controllers do not see the warnings of admission about pods.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn misspelt_keys_of_a_job_are_reported_once_on_it_and_on_a_pod() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let (labels, annotations) =
        (json!({"kai.scheduler/quue": "team"}), json!({"kai.scheduler/batch-min-member": "2"}));
    let mut misspelt = job("misspelt", 2, &labels, &annotations);
    misspelt["spec"]["template"]["metadata"] = json!({"annotations": {"gpu-fractoin": "0.5"}});
    test.create(&k::JOB, misspelt).await;
    test.create(&k::JOB, job("correct", 1, &json!({"kai.scheduler/queue": "team", "app": "a"}), &json!({})))
        .await;
    test.create(&k::POD, pod("alone", &json!({"runai/queue": "team"}), &json!({}))).await;
    test.sleep(200.0).await;
    let events = test.list(&EVENT).await;
    let mut warnings: Vec<(&str, &str, u64)> = events
        .iter()
        .filter(|event| event["reason"] == "PodGrouperWarning")
        .map(|event| {
            let kind = object::str_at(event, "/involvedObject/kind");
            (kind, object::str_at(event, "/message"), event["count"].as_u64().unwrap_or(1))
        })
        .collect();
    warnings.sort_unstable();
    let both = "annotation `gpu-fractoin` has no effect; hint: the likely key is the annotation `gpu-fraction`; \
                label `kai.scheduler/quue` has no effect; hint: the likely key is the label `kai.scheduler/queue`";
    let alone = "label `runai/queue` has no effect; hint: the likely key is the label `kai.scheduler/queue`";
    assert_eq!(warnings, [("Job", both, 1), ("Pod", both, 1), ("Pod", alone, 1)]);
}

/// kube-apiserver accepts any text in an owner reference.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn owner_reference_that_is_no_url_is_reported_and_other_pods_are_grouped() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let owners = [
        ("a b/v1", "X", "x y"),
        ("v1", "ConfigMap", "../secrets/s?a=b#c"),
        ("..", "X", "x"),
        ("v1", "ConfigMap", ".."),
    ];
    for (number, (api_version, kind, name)) in owners.into_iter().enumerate() {
        let mut hostile = pod(&format!("hostile-{number}"), &json!({}), &json!({}));
        hostile["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u"}]);
        test.create(&k::POD, hostile).await;
    }
    test.create(&k::POD, pod("valid", &json!({}), &json!({}))).await;
    test.group_of("valid").await;
    test.sleep(60.0).await;
    let events = test.list(&EVENT).await;
    for number in 0..owners.len() {
        let name = format!("hostile-{number}");
        let reported = |event: &&Value| {
            event["reason"] == "PodGrouperWarning" && event["involvedObject"]["name"] == name.as_str()
        };
        let reported: Vec<&Value> = events.iter().filter(reported).collect();
        assert_eq!(reported.len(), 1, "{name}: {events:#?}");
        assert!(
            object::str_at(reported[0], "/message").contains("remove the owner reference"),
            "{reported:#?}"
        );
    }
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn topmost_owner_owns_the_group() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox"}],
    }});
    let set = json!({"metadata": {"name": "web", "labels": {"kai.scheduler/queue": "serving"}}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template, "serviceName": "web",
    }});
    test.create(&kai_runtime::kind::STATEFUL_SET, set).await;
    test.sleep(10.0).await;
    let groups = test.list(&k::POD_GROUP).await;
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0]["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    assert_eq!(groups[0]["spec"]["queue"], "serving");
}

/// CRDs whose schemas accept everything, as another version of the CRD may.
fn permissive_crds() -> Vec<Value> {
    let mut crds = crds();
    for version in crds.iter_mut().flat_map(|crd| crd["spec"]["versions"].as_array_mut().unwrap()) {
        version["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    crds
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_pod_group_is_not_written_and_gets_an_event() {
    let test = TestCluster::with_crds(builder(), permissive_crds(), &[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 1, &json!({"kai.scheduler/queue": "team"}), &json!({}))).await;
    test.create(&k::POD, pod("other", &json!({}), &json!({}))).await;
    test.sleep(5.0).await;
    let groups = test.list(&k::POD_GROUP).await;
    let name = groups.iter().map(object::name).find(|name| name.starts_with("pg-train")).unwrap().to_owned();
    test.patch(&k::POD_GROUP, &name, json!({"spec": {"minMember": "many", "queue": "chosen"}})).await;
    let broken = test.find(&k::POD_GROUP, &name).await.unwrap();
    // A change of the pod triggers another reconciliation.
    let pods = test.list(&k::POD).await;
    for pod in &pods {
        let labels = json!({"metadata": {"labels": {"round": "2"}}});
        test.patch(&k::POD, object::name(pod), labels).await;
    }
    test.create(&k::POD, pod("later", &json!({}), &json!({}))).await;
    test.group_of("later").await;
    test.sleep(120.0).await;
    assert_eq!(test.find(&k::POD_GROUP, &name).await.unwrap(), broken, "the stored object is untouched");
    let events = test.list(&EVENT).await;
    let about_group = |event: &&Value| {
        event["reason"] == "InvalidInput"
            && event["involvedObject"]["kind"] == "PodGroup"
            && event["involvedObject"]["uid"] == object::uid(&broken)
    };
    let message = events.iter().find(about_group).map(|event| object::str_at(event, "/message"));
    assert!(message.is_some_and(|text| text.contains("invalid type: string \"many\"")), "{events:#?}");

    test.patch(&k::POD_GROUP, &name, json!({"spec": {"minMember": 9}})).await;
    let repaired = test.until(&k::POD_GROUP, &name, |group| group["spec"]["minMember"] == 1).await;
    assert_eq!(repaired["spec"]["queue"], "chosen");
}

fn minimum(value: &str) -> Value {
    json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": value}}})
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn changed_owner_changes_the_group_with_one_write() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 3, &json!({}), &json!({}))).await;
    test.sleep(300.0).await;
    let name = object::name(&test.list(&k::POD_GROUP).await[0]).to_owned();
    let before = test.writes(Component::Grouper).len();
    test.patch(&k::JOB, "train", minimum("3")).await;
    test.sleep(1.0).await;
    let group = test.find(&k::POD_GROUP, &name).await.unwrap();
    assert_eq!(group["spec"]["minMember"], 3, "{group:#}");
    test.sleep(120.0).await;
    assert_eq!(test.writes(Component::Grouper).len(), before + 1);
}

/// Reads of single Jobs.
fn reads_of_jobs(test: &TestCluster) -> usize {
    let requests = test.requests(Component::Grouper);
    requests.iter().filter(|request| request.starts_with("GET /apis/batch/v1/namespaces/")).count()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn watched_owners_are_read_again_only_after_a_change_of_theirs() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    for number in 0..20 {
        test.create(&k::JOB, job(&format!("train-{number}"), 2, &json!({}), &json!({}))).await;
    }
    test.sleep(60.0).await;
    let before = reads_of_jobs(&test);
    test.sleep(600.0).await;
    assert_eq!(reads_of_jobs(&test), before, "at rest");
    test.patch(&k::JOB, "train-7", json!({"metadata": {"labels": {"kai.scheduler/queue": "team"}}})).await;
    let key = Key::new("default", "train-8");
    let status = json!({"status": {"active": 1}});
    test.cluster.api().patch_dynamic(&k::JOB, &key, Part::Status, &status).await.unwrap();
    test.sleep(600.0).await;
    assert_eq!(reads_of_jobs(&test), before + 1, "a change of the status is none");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn owners_that_may_not_be_watched_are_read_at_intervals() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    let outage = kai_sim::faults::Outage::forbidden("/apis/batch/v1/jobs");
    test.cluster.faults().set_outage(Component::Grouper.client(), outage);
    test.create(&k::JOB, job("train", 3, &json!({}), &json!({}))).await;
    test.sleep(300.0).await;
    let name = object::name(&test.list(&k::POD_GROUP).await[0]).to_owned();
    test.patch(&k::JOB, "train", minimum("3")).await;
    test.sleep(70.0).await;
    let group = test.find(&k::POD_GROUP, &name).await.unwrap();
    assert_eq!(group["spec"]["minMember"], 3, "{group:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn priority_class_that_appears_later_is_applied() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 1, &json!({"priorityClassName": "urgent"}), &json!({}))).await;
    test.sleep(10.0).await;
    let name = object::name(&test.list(&k::POD_GROUP).await[0]).to_owned();
    assert_eq!(test.find(&k::POD_GROUP, &name).await.unwrap()["spec"]["priorityClassName"], "train");
    let class = json!({"metadata": {"name": "urgent"}, "value": 70});
    test.create(&kai_runtime::kind::PRIORITY_CLASS, class).await;
    test.until(&k::POD_GROUP, &name, |group| group["spec"]["priorityClassName"] == "urgent").await;
}

/// The entry of a kind in the map of defaults.
fn defaults_of_jobs(entry: Value) -> Value {
    let mut entry = entry;
    entry["typeName"] = Value::from("Job");
    entry["group"] = Value::from("batch");
    json!({"data": {"types": json!([entry]).to_string()}})
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn groups_follow_the_map_of_default_priorities() {
    let mut test = TestCluster::new(&[]).await;
    let map = Key::new("default", "defaults");
    let options = kai_podgrouper::Options { default_priorities: Some(map), ..Default::default() };
    test.start_grouper(Component::Grouper.client(), options);
    test.create(&k::JOB, job("train", 2, &json!({}), &json!({}))).await;
    let labels = json!({"priorityClassName": "train"});
    test.create(&k::JOB, job("labelled", 1, &labels, &json!({}))).await;
    let until_both_exist = async || test.list(&k::POD_GROUP).await.len() == 2;
    while !until_both_exist().await {
        test.sleep(1.0).await;
    }
    let groups = test.list(&k::POD_GROUP).await;
    let group_of = |job: &str| {
        let owned = |group: &&Value| group["metadata"]["ownerReferences"][0]["name"] == job;
        object::name(groups.iter().find(owned).unwrap()).to_owned()
    };
    let (followed, labelled) = (group_of("train"), group_of("labelled"));
    let class_is = async |class: &str, preemptibility: Value| {
        let is_expected = |group: &Value| {
            group["spec"]["priorityClassName"] == class && group["spec"]["preemptibility"] == preemptibility
        };
        test.until(&k::POD_GROUP, &followed, is_expected).await;
    };
    class_is("train", Value::Null).await;

    let created = defaults_of_jobs(json!({"priorityName": "inference", "preemptibility": "preemptible"}));
    let created = json!({"metadata": {"name": "defaults"}, "data": created["data"]});
    test.create(&kai_runtime::kind::CONFIG_MAP, created).await;
    class_is("inference", json!("preemptible")).await;

    let changed = defaults_of_jobs(json!({"priorityName": "train", "preemptibility": "non-preemptible"}));
    test.patch(&kai_runtime::kind::CONFIG_MAP, "defaults", changed).await;
    class_is("train", json!("non-preemptible")).await;

    let again = defaults_of_jobs(json!({"priorityName": "inference"}));
    test.patch(&kai_runtime::kind::CONFIG_MAP, "defaults", again).await;
    class_is("inference", Value::Null).await;
    let group = test.find(&k::POD_GROUP, &labelled).await.unwrap();
    assert_eq!(group["spec"]["priorityClassName"], "train", "the label precedes the defaults: {group:#}");

    let malformed = json!({"data": {"types": "[{"}});
    test.patch(&kai_runtime::kind::CONFIG_MAP, "defaults", malformed).await;
    class_is("train", Value::Null).await;
    test.sleep(2.0).await;
    let events = events_of(&test, "ConfigMap", "defaults").await;
    assert!(matches!(&events[..], [only] if only.contains("no kind has a default")), "{events:?}");

    test.delete(&kai_runtime::kind::CONFIG_MAP, "defaults").await;
    class_is("train", Value::Null).await;
    assert_eq!(events_of(&test, "ConfigMap", "defaults").await.len(), 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn deleted_group_is_restored_by_a_pod_that_is_not_the_first() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 2, &json!({}), &json!({}))).await;
    test.sleep(5.0).await;
    let first = object::name(&test.list(&k::POD).await[0]).to_owned();
    let run_for = json!({"metadata": {"annotations": {"sim.kai.scheduler/run-for": "1s"}}});
    test.patch(&k::POD, &first, run_for).await;
    test.bind(&first, "node-1").await;
    test.until(&k::POD, &first, |pod| object::str_at(pod, "/status/phase") == "Succeeded").await;
    let name = object::name(&test.list(&k::POD_GROUP).await[0]).to_owned();
    let old = test.find(&k::POD_GROUP, &name).await.unwrap();
    test.delete(&k::POD_GROUP, &name).await;
    test.until(&k::POD_GROUP, &name, |group| object::uid(group) != object::uid(&old)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_whose_owners_form_a_cycle_or_are_unknown_wait_with_one_event() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&kai_runtime::kind::CONFIG_MAP, json!({"metadata": {"name": "own"}})).await;
    let stored = test.find(&kai_runtime::kind::CONFIG_MAP, "own").await.unwrap();
    let own = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "own", "uid": object::uid(&stored)}]);
    test.patch(&kai_runtime::kind::CONFIG_MAP, "own", json!({"metadata": {"ownerReferences": own}})).await;
    let owners = [
        ("cyclic", own, "form a cycle"),
        (
            "unserved",
            json!([{"apiVersion": "nowhere.example/v1", "kind": "Ghost", "name": "g", "uid": "u"}]),
            "install its CustomResourceDefinition",
        ),
        (
            "gone",
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "none", "uid": "u"}]),
            "does not exist",
        ),
    ];
    for (name, owner, _) in &owners {
        let mut waiting = pod(name, &json!({}), &json!({}));
        waiting["metadata"]["ownerReferences"] = owner.clone();
        test.create(&k::POD, waiting).await;
    }
    test.sleep(300.0).await;
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 0);
    let events = test.list(&EVENT).await;
    for (name, _, text) in owners {
        let about: Vec<&Value> =
            events.iter().filter(|event| event["involvedObject"]["name"] == name).collect();
        assert_eq!(about.len(), 1, "{name}: {events:#?}");
        assert!(object::str_at(about[0], "/message").contains(text), "{about:#?}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn owner_is_read_once_for_many_pods() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 40, &json!({}), &json!({}))).await;
    test.sleep(1.0).await;
    let lines = test.cluster.journal().lines();
    let client = Component::Grouper.client();
    let reads = lines
        .iter()
        .filter(|line| line.contains(client) && line.contains("GET ") && line.contains("/jobs/train"));
    let count = reads.count();
    assert!((1..=10).contains(&count), "{count} reads, at most one for each worker");
}

/// A definition whose objects may have any fields.
fn open_crd(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Definitions in groups of Kubernetes need it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names,
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]},
    })
}

fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> ResourceKind {
    ResourceKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced: true,
    }
}

fn owned_by(mut pod: Value, kind: &ResourceKind, owner: &Value) -> Value {
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": kind.api_version(), "kind": kind.kind, "name": object::name(owner), "uid": object::uid(owner),
    }]);
    pod
}

/// Messages of the events about an object.
async fn events_of(test: &TestCluster, kind: &str, name: &str) -> Vec<String> {
    let events = test.list(&EVENT).await;
    let about = events
        .iter()
        .filter(|event| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name);
    about.map(|event| object::str_at(event, "/message").to_owned()).collect()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn karta_that_does_not_parse_gets_one_event_and_its_kind_is_grouped_without_it() {
    let crds = [
        crds(),
        vec![
            open_crd("run.ai", "v1alpha1", "Karta", "kartas"),
            open_crd("flows.example", "v1", "Flow", "flows"),
        ],
    ];
    let test = TestCluster::with_crds(builder(), crds.concat(), &[Component::Grouper]).await;
    let (karta, flow) =
        (kind("run.ai", "v1alpha1", "Karta", "kartas"), kind("flows.example", "v1", "Flow", "flows"));
    let labels = json!({"run.ai/karta-group": "flows.example", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Flow"});
    let spec = json!({"structureDefinition": {"rootComponent": "flow"}});
    test.create(&karta, json!({"metadata": {"name": "broken", "labels": labels}, "spec": spec})).await;
    let owner = test.create(&flow, json!({"metadata": {"name": "daily"}})).await;
    for number in 0..3 {
        let pod = pod(&format!("daily-{number}"), &json!({}), &json!({}));
        test.create(&k::POD, owned_by(pod, &flow, &owner)).await;
        // The Kartas are listed again for a pod that comes later.
        test.sleep(30.0).await;
    }
    let name = format!("pg-daily-{}", object::uid(&owner));
    assert_eq!(test.group_of("daily-2").await, name);
    let events = events_of(&test, "Karta", "broken").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("`spec` does not parse"), "{events:?}");
    assert!(events_of(&test, "Pod", "daily-2").await.is_empty());

    let root = json!({"name": "flow", "kind": {"group": "flows.example", "version": "v1", "kind": "Flow"}, "statusDefinition": {},
        "scaleDefinition": {"replicasPath": ".spec.pods"}});
    let gang = json!({"gangScheduling": {"podGroup": {"name": "flow"}}});
    let repaired =
        json!({"spec": {"structureDefinition": {"rootComponent": root}, "optimizationInstructions": gang}});
    test.patch(&karta, "broken", repaired).await;
    test.patch(&flow, "daily", json!({"spec": {"pods": 3}})).await;
    test.sleep(120.0).await;
    let group = test.find(&k::POD_GROUP, &format!("pg-{}-flow", object::uid(&owner))).await.unwrap();
    assert_eq!(group["spec"]["minMember"], 3, "{group:#}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_of_an_upstream_pod_group_are_grouped_by_it() {
    let upstream = kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups");
    let crds = [crds(), vec![open_crd("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")]].concat();
    let test = TestCluster::with_crds(builder(), crds, &[Component::Grouper]).await;
    let waiting = |name: &str| {
        let mut pod = pod(name, &json!({"kai.scheduler/queue": "team"}), &json!({}));
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "gang"});
        pod
    };
    test.create(&k::POD, waiting("a")).await;
    test.sleep(5.0).await;
    let events = events_of(&test, "Pod", "a").await;
    assert!(
        events.len() == 1 && events[0].contains("`gang` of `scheduling.k8s.io`, which does not exist"),
        "{events:?}"
    );
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 0);

    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}}});
    let metadata = json!({"name": "gang", "labels": {"priorityClassName": "inference"}});
    let made = test.create(&upstream, json!({"metadata": metadata, "spec": spec})).await;
    test.create(&k::POD, waiting("b")).await;
    let name = test.group_of("a").await;
    assert_eq!(test.group_of("b").await, name);
    assert_eq!(name, format!("pg-gang-{}", object::uid(&made)));
    let group = test.find(&k::POD_GROUP, &name).await.unwrap();
    let expected = json!({"minMember": 2, "queue": "team", "priorityClassName": "inference"});
    assert_eq!(group["spec"], expected);
    assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "PodGroup");

    let mut ignored = waiting("c");
    ignored["metadata"]["annotations"] = json!({"kai.scheduler/ignore-workload-api": "true"});
    test.create(&k::POD, ignored).await;
    assert!(test.group_of("c").await.starts_with("pg-c-"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn upstream_pod_group_within_one_domain_waits_for_a_topology_that_has_its_level() {
    let upstream = kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups");
    let topologies = kai_api::crds().into_iter().filter(|crd| crd.spec.names.kind == "Topology");
    let topologies: Vec<Value> = topologies.map(|crd| serde_json::to_value(crd).unwrap()).collect();
    let upstream_crd = vec![open_crd("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")];
    let all = [crds(), upstream_crd, topologies].concat();
    let test = TestCluster::with_crds(builder(), all, &[Component::Grouper]).await;
    let spec = json!({"schedulingConstraints": {"topology": [{"key": "rack"}]}});
    test.create(&upstream, json!({"metadata": {"name": "gang"}, "spec": spec})).await;
    let mut waiting = pod("a", &json!({}), &json!({}));
    waiting["spec"]["schedulingGroup"] = json!({"podGroupName": "gang"});
    test.create(&k::POD, waiting).await;
    test.sleep(60.0).await;
    let events = events_of(&test, "Pod", "a").await;
    assert!(
        events.len() == 1 && events[0].contains("the node label `rack`, and no Topology of `kai.scheduler`"),
        "{events:?}"
    );
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 0);

    let topology = ResourceKind::of::<kai_api::Topology>();
    let levels = json!([{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]);
    test.create(&topology, json!({"metadata": {"name": "racks"}, "spec": {"levels": levels}})).await;
    let name = test.group_of("a").await;
    let group = test.find(&k::POD_GROUP, &name).await.unwrap();
    let expected = json!({"topology": "racks", "requiredTopologyLevel": "rack"});
    assert_eq!(group["spec"]["topologyConstraint"], expected);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn owner_that_may_not_be_read_keeps_its_pods_waiting_with_one_event_and_its_group_as_it_is() {
    let test = TestCluster::new(&[Component::Grouper]).await;
    test.create(&k::JOB, job("train", 2, &json!({}), &json!({"kai.scheduler/batch-min-member": "2"}))).await;
    test.sleep(5.0).await;
    let groups = test.list(&k::POD_GROUP).await;
    let outage = kai_sim::faults::Outage::forbidden("/jobs/");
    test.cluster.faults().set_outage(Component::Grouper.client(), outage);
    test.create(&k::JOB, job("late", 1, &json!({}), &json!({}))).await;
    test.create(&k::POD, pod("neighbour", &json!({}), &json!({}))).await;
    test.group_of("neighbour").await;
    test.sleep(300.0).await;
    let known = test.find(&k::POD_GROUP, object::name(&groups[0])).await.unwrap();
    assert_eq!(known["spec"], groups[0]["spec"], "a failed read shrinks no group");
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 2);
    let pods = test.list(&k::POD).await;
    let late = pods.iter().map(object::name).find(|name| name.starts_with("late")).unwrap();
    let events = events_of(&test, "Pod", late).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("grant the pod grouper `get` on `jobs.batch`"), "{events:?}");
    test.cluster.faults().heal(Component::Grouper.client());
    assert!(test.group_of(late).await.starts_with("pg-late-"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn absurd_counts_and_annotations_of_owners_are_reported_once_each() {
    let crds = [
        crds(),
        vec![
            open_crd("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
            open_crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
            open_crd("ray.io", "v1", "RayCluster", "rayclusters"),
        ],
    ];
    let test = TestCluster::with_crds(builder(), crds.concat(), &[Component::Grouper]).await;
    let beyond = 4_294_967_296i64;
    let lws = kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets");
    let set = kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
    let ray = kind("ray.io", "v1", "RayCluster", "rayclusters");
    let minimum = json!({"kai.scheduler/batch-min-member": "99999999999"});
    let cases = [
        (&lws, "count", json!({}), json!({"leaderWorkerTemplate": {"size": beyond}}), "is beyond 32 bits"),
        (&lws, "text", json!({}), json!({"leaderWorkerTemplate": {"size": "four"}}), "not a whole number"),
        (
            &lws,
            "segment",
            json!({"kai.scheduler/segment-size": "x"}),
            json!({"leaderWorkerTemplate": {"size": 4}}),
            "`x`, which is not a whole number",
        ),
        (
            &set,
            "minimum",
            minimum,
            json!({"replicatedJobs": [{"name": "a"}]}),
            "`99999999999`, which is beyond 32 bits",
        ),
        (
            &set,
            "replicas",
            json!({}),
            json!({"replicatedJobs": [{"name": "a", "replicas": 2_000_000_000}]}),
            "more than 10000 subgroups",
        ),
        (
            &ray,
            "sum",
            json!({}),
            json!({"workerGroupSpecs": [{"replicas": 2_000_000_000, "numOfHosts": 4}]}),
            "beyond 32 bits",
        ),
    ];
    for (kind, name, annotations, spec, _) in &cases {
        let owner = test
            .create(kind, json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec}))
            .await;
        let pod = pod(&format!("pod-{name}"), &json!({}), &json!({}));
        test.create(&k::POD, owned_by(pod, kind, &owner)).await;
    }
    test.create(&k::POD, pod("neighbour", &json!({}), &json!({}))).await;
    test.group_of("neighbour").await;
    test.sleep(300.0).await;
    assert_eq!(test.list(&k::POD_GROUP).await.len(), 1);
    for (_, name, _, _, text) in cases {
        let events = events_of(&test, "Pod", &format!("pod-{name}")).await;
        assert_eq!(events.len(), 1, "{name}: {events:?}");
        assert!(events[0].contains(text), "{name}: {events:?}");
    }
    // Retries back off to one a minute: no hot loop.
    let client = Component::Grouper.client();
    let lines = test.cluster.journal().lines();
    let is_read = |line: &&String| line.contains(client) && line.contains(" request GET ");
    let reads = lines.iter().filter(is_read).count();
    assert!(reads < 200, "{reads} reads in five minutes");
}

/// A pod of a Knative Revision without the objects that only lie between them.
fn knative_pod(name: &str, kind: &ResourceKind, revision: &Value) -> Value {
    let labels =
        json!({"kai.scheduler/queue": "team", "serving.knative.dev/revision": object::name(revision)});
    owned_by(pod(name, &labels, &json!({})), kind, revision)
}

/// The groups as pairs of the owner's kind and the minimum.
async fn owners_and_minima(test: &TestCluster) -> Vec<(String, i64)> {
    let groups = test.list(&k::POD_GROUP).await;
    let pair = |group: &Value| {
        let owner = object::str_at(group, "/metadata/ownerReferences/0/kind").to_owned();
        (owner, group["spec"]["minMember"].as_i64().unwrap_or_default())
    };
    groups.iter().map(pair).collect()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn revision_of_single_pods_stays_so_when_gangs_are_switched_on() {
    const VERSION: &str = "v1";
    const GROUP: &str = "serving.knative.dev";
    let served = [("Service", "services"), ("Configuration", "configurations"), ("Revision", "revisions")];
    let definitions = served.map(|(kind, plural)| open_crd(GROUP, VERSION, kind, plural)).to_vec();
    let mut test = TestCluster::with_crds(builder(), [crds(), definitions].concat(), &[]).await;
    let [service, configuration, revision] = served.map(|(name, plural)| kind(GROUP, VERSION, name, plural));
    let named = |name: &str| json!({"metadata": {"name": name}});
    let top = test.create(&service, named("chat")).await;
    let between = test.create(&configuration, owned_by(named("chat"), &service, &top)).await;
    let mut made = owned_by(named("chat-00001"), &configuration, &between);
    made["metadata"]["annotations"] = json!({"autoscaling.knative.dev/min-scale": "2"});
    let made = test.create(&revision, made).await;
    let single =
        kai_podgrouper::Options { knative_gang_schedule: false, ..kai_podgrouper::Options::default() };
    test.start_grouper("single-pods", single);
    for name in ["a", "b"] {
        test.create(&k::POD, knative_pod(name, &revision, &made)).await;
        assert!(test.group_of(name).await.starts_with(&format!("pg-{name}-")));
    }
    let each_alone = vec![("Pod".to_owned(), 1), ("Pod".to_owned(), 1)];
    assert_eq!(owners_and_minima(&test).await, each_alone);

    test.cluster.faults().partition("single-pods");
    test.start_grouper("gangs", kai_podgrouper::Options::default());
    test.delete(&k::POD, "a").await;
    test.create(&k::POD, knative_pod("c", &revision, &made)).await;
    assert!(test.group_of("c").await.starts_with("pg-c-"));
    test.sleep(60.0).await;
    assert_eq!(owners_and_minima(&test).await, each_alone, "the revision keeps its form");

    // Another revision has no form yet.
    let mut other = owned_by(named("chat-00002"), &configuration, &between);
    other["metadata"]["annotations"] = json!({"autoscaling.knative.dev/min-scale": "2"});
    let other = test.create(&revision, other).await;
    test.create(&k::POD, knative_pod("d", &revision, &other)).await;
    assert!(test.group_of("d").await.starts_with("pg-chat-00002-"));
    assert!(owners_and_minima(&test).await.contains(&("Revision".to_owned(), 2)));
}
