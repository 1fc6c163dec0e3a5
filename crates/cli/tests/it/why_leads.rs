//! What `kai why` and `kai jobs` say first: what is invalid, what is missing, and that a group can never fit.

use crate::view_commands::{TestCluster, named};
use kai_scheduler::resources::POD_GROUP;
use serde_json::{Value, json};

impl TestCluster {
    /// A group with a pod for each of the specifications: annotations and limits.
    async fn group_of(&self, name: &str, min: u32, pods: &[(Value, Value)]) {
        let spec = json!({"minMember": min, "queue": "default-queue", "priorityClassName": "train"});
        let api_version = POD_GROUP.api_version();
        let metadata = json!({"name": name});
        self.create(
            json!({"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}),
        )
        .await;
        for (index, (annotations, limits)) in pods.iter().enumerate() {
            let mut annotations = annotations.clone();
            annotations["pod-group-name"] = json!(name);
            let resources = json!({"requests": {"cpu": "1"}, "limits": limits});
            self.create(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{name}-{index}"), "annotations": annotations},
                "spec": {
                    "schedulerName": "kai-scheduler",
                    "containers": [{"name": "main", "image": "busybox", "resources": resources}],
                },
            }))
            .await;
        }
    }

    /// The lines of a section of `kai why`.
    async fn reason(&self, group: &str) -> (String, Vec<String>) {
        let text = self.output(&["why", &format!("default/{group}")]).await;
        let (_, rest) = text.split_once("\nReason\n").expect("there is a reason");
        let (reason, _) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let lines = reason.lines().map(str::to_owned).collect();
        (text, lines)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_request_leads_with_the_annotation_and_what_it_may_be() {
    let test = TestCluster::installed("leads-invalid").await;
    let half = json!({"gpu-fraction": "half"});
    test.group_of("half", 1, &[(half.clone(), json!({})), (half, json!({}))]).await;
    test.group_of("both", 1, &[(json!({"gpu-fraction": "0.5"}), json!({"nvidia.com/gpu": 1}))]).await;
    let (text, reason) = test.reason("half").await;
    assert!(
        reason[0].starts_with("annotation `gpu-fraction` of Pod `default/half-0` and 1 more: `half` is not "),
        "{text}"
    );
    assert!(reason[1].starts_with("  hint: write ") && reason[1].contains("`0.5`"), "{text}");
    assert!(text.contains("\nPending; minMember 1 of 2 pods: 0 running, 2 pending;"), "{text}");
    for wrong in ["SchedulingGated", "ungate", "What would run it", "scheduling gates"] {
        assert!(!text.contains(wrong), "`{wrong}` in\n{text}");
    }
    let (text, reason) = test.reason("both").await;
    assert!(
        reason[0].starts_with("annotation `gpu-fraction` of Pod `default/both-0`: the pod requests a GPU fraction and whole GPUs"),
        "{text}"
    );
    let jobs = test.json(&["jobs", "--json"]).await;
    let both = named(&jobs["groups"], "group", "default/both");
    assert_eq!((&both["state"], &both["gated"], &both["invalid"]), (&json!("Pending"), &json!(0), &json!(1)));
    assert!(both["reason"].as_str().is_some_and(|why| why == reason[0]), "{both}");
    assert_eq!(both["findings"][0]["field"], "metadata.annotations[gpu-fraction]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_pods_are_counted_and_a_group_that_never_fits_is_not_asked_to_wait() {
    let test = TestCluster::installed("leads-never").await;
    let gpus = |count: u32| (json!({}), json!({"nvidia.com/gpu": count}));
    test.group_of("short", 2, &[gpus(1)]).await;
    test.group_of("huge", 3, &[gpus(4), gpus(4), gpus(4)]).await;
    let (text, reason) = test.reason("short").await;
    assert!(text.contains("\nPending; minMember 2, 1 of 2 pods exist; create 1 more: "), "{text}");
    assert_eq!(reason[..2], ["1 of 2 pods exist", "  hint: create 1 more"], "{text}");
    let (text, reason) = test.reason("huge").await;
    assert_eq!(reason[0], "it can never fit: it needs 12 GPUs, and the pool has 8 GPUs", "{text}");
    assert!(!text.contains("wait for") && !text.contains("hint: "), "{text}");
    assert!(text.contains("What would run it (each planned)\n1. "), "{text}");
    let why = test.json(&["why", "default/huge", "--json"]).await;
    let group = &why["groups"][0];
    assert!(group["verdict"]["hint"].is_null(), "{group}");
    let failures = group["verdict"]["no_victims"].as_array().expect("a list");
    assert!(failures.iter().all(|failure| failure["hint"].is_null()), "{group}");
    assert!(group["hints"]["never"].is_string(), "{group}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_queue_and_priority_class_of_a_group_are_named_without_pods_too() {
    let test = TestCluster::installed("leads-references").await;
    let spec = json!({"queue": "nowhere", "minMember": 1, "priorityClassName": "trian"});
    let metadata = json!({"name": "empty"});
    let api_version = POD_GROUP.api_version();
    test.create(json!({"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}))
        .await;
    let (text, reason) = test.reason("empty").await;
    assert_eq!(reason[0], "it has no pods to schedule", "{text}");
    for problem in ["the queue `nowhere` does not exist", "the priority class `trian` does not exist"] {
        assert!(reason.iter().any(|line| line.contains(problem)), "{problem}: {text}");
    }
}
