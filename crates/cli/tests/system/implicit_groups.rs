//! Pods whose groups have no object are placed, counted and reported as others, and the mode can be switched at any time.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::well_known::annotation::{IMPLICIT_GROUP, LAST_START, POD_GROUP};
use kai_cache::ImplicitGroups;
use kai_cli::embedded;
use kai_components::{ComponentOptions, name};
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_runtime::kind::{DEPLOYMENT, POD};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP as GROUP, QUEUE, discover};
use kai_sim::{FaultRates, NodeGroup};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn options() -> ComponentOptions {
    let mut options = ComponentOptions::simulated();
    options.set_implicit_groups(ImplicitGroups::OfAllPods);
    options
}

async fn cluster(nodes: usize) -> TestCluster {
    TestCluster::with_options(1, [NodeGroup::gpu_nodes(nodes, 8)], &options()).await
}

async fn groups<B>(cluster: &TestCluster<B>) -> Vec<Value> {
    cluster.list(&GROUP).await
}

fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][name].as_str()
}

/// Uid and node of every pod.
async fn placements(cluster: &TestCluster) -> BTreeMap<String, (String, String)> {
    let pods = cluster.list(&POD).await;
    let placement = |pod: &Value| {
        let node = object::str_at(pod, "/spec/nodeName").to_owned();
        (object::name(pod).to_owned(), (object::uid(pod).to_owned(), node))
    };
    pods.iter().map(placement).collect()
}

async fn gpus<B>(cluster: &TestCluster<B>, queue: &str, field: &str) -> String {
    let queue = cluster.get(&QUEUE, queue).await.unwrap();
    queue["status"][field]["nvidia.com/gpu"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn cluster_is_filled_without_pod_groups_and_the_queue_counts_the_pods() {
    let cluster = cluster(2).await;
    cluster.create_queue("a", 16).await;
    for number in 0..16 {
        cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("p", 16).await;
    cluster.sleep(Duration::from_secs(10)).await;
    assert_eq!(groups(&cluster).await, Vec::<Value>::new());
    assert_eq!(cluster.list(&BIND_REQUEST).await, Vec::<Value>::new());
    for pod in cluster.list(&POD).await {
        assert_eq!((annotation(&pod, IMPLICIT_GROUP), annotation(&pod, POD_GROUP)), (Some("true"), None));
        assert!(annotation(&pod, LAST_START).is_some(), "the Binding carries the start of the group");
    }
    assert_eq!(gpus(&cluster, "a", "allocated").await, "16");
    assert_eq!(gpus(&cluster, "a", "allocatedNonPreemptible").await, "");
    assert_eq!(gpus(&cluster, "teams", "allocated").await, "16");

    // What users see lists them like others.
    cluster.create_pod(PodBuilder::new("waits", "a", 1)).await;
    cluster.sleep(Duration::from_secs(5)).await;
    let offered = discover(cluster.api()).await.unwrap();
    let plugins = PluginSet::builtin();
    let reader = kai_view::reader::ClusterReader::open(
        cluster.api(),
        offered,
        kai_scheduler::Options::default(),
        &plugins,
    )
    .await
    .unwrap();
    let view = reader.view();
    assert_eq!(view.store.objects().pod_groups.len(), 17);
    assert_eq!(view.outcome.verdicts.len(), 1, "{:?}", view.outcome.verdicts);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn plain_pods_need_no_pod_group_beside_a_gang_that_has_one() {
    plain_pods(&cluster(1).await).await;
}

/// On one node of eight GPUs.
pub(crate) async fn plain_pods<B>(cluster: &TestCluster<B>) {
    let limited = json!({"quota": 4, "limit": 4, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "a", &limited, json!({})).await;
    cluster.create_queue("b", 2).await;
    for number in 0..4 {
        cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
    }
    cluster.create_gang("g", "b", 2, 1, json!({})).await;
    for (name, count) in [("p", 4), ("g", 2)] {
        cluster.wait_for_running(name, count).await;
    }
    for pod in cluster.list(&POD).await.iter().filter(|pod| object::name(pod).starts_with('p')) {
        assert_eq!(
            (annotation(pod, IMPLICIT_GROUP), annotation(pod, POD_GROUP)),
            (Some("true"), None),
            "{pod}"
        );
    }
    let counted = async |queue: &str, count: &str| gpus(cluster, queue, "allocated").await == count;
    cluster.wait_until("queue a counts its pods", async || counted("a", "4").await).await;
    cluster.wait_until("queue b counts its gang", async || counted("b", "2").await).await;

    cluster.create_pod(PodBuilder::new("waits", "a", 1)).await;
    let named = format!("{} quota has reached the allowable limit", cluster.queue_name("a"));
    let reported = async || cluster.pod_condition("waits").await.1.contains(&named);
    cluster.wait_until("the condition of the pod names the limit", reported).await;
    let groups = groups(cluster).await;
    let [group] = &groups[..] else { panic!("only the gang has a group: {groups:?}") };
    assert_eq!(object::name(group), "g");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn verdict_is_the_condition_of_the_pod() {
    let cluster = cluster(1).await;
    let limited = json!({"quota": 2, "limit": 2, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "a", &limited, json!({})).await;
    cluster.create_pod(PodBuilder::new("first", "a", 2)).await;
    cluster.wait_for_running("first", 1).await;
    cluster.create_pod(PodBuilder::new("second", "a", 1)).await;
    let reported = async || cluster.pod_condition("second").await.0 == "Unschedulable";
    cluster.wait_until("the condition of the pod is reported", reported).await;
    let (_, message) = cluster.pod_condition("second").await;
    assert!(message.contains("limit"), "{message}");
    cluster.sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.event_messages("Unschedulable", "second").await.len(), 1);
    assert_eq!(cluster.event_messages("Unschedulable", "pg-").await, [""; 0]);
    assert_eq!(gpus(&cluster, "a", "requested").await, "3");
    assert_eq!(groups(&cluster).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_below_its_quota_reclaims_from_pods_without_groups() {
    let cluster = cluster(1).await;
    cluster.create_queue("a", 4).await;
    cluster.create_queue("b", 4).await;
    for number in 0..8 {
        cluster.create_pod(PodBuilder::new(&format!("a{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("a", 8).await;
    for number in 0..4 {
        cluster.create_pod(PodBuilder::new(&format!("b{number}"), "b", 1)).await;
    }
    cluster.wait_for_running("b", 4).await;
    assert_eq!(cluster.running("a").await, 4);
    assert_eq!(cluster.event_messages("Evict", "a").await.len(), 4, "on the pods");
    cluster.create_pod(PodBuilder::new("urgent", "b", 1).priority_class("build")).await;
    cluster.wait_for_running("urgent", 1).await;
    assert_eq!((cluster.running("a").await, cluster.running("b").await), (4, 3), "it preempts in its queue");
    assert_eq!(groups(&cluster).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn gang_and_fraction_keep_their_pod_groups() {
    let cluster = cluster(2).await;
    cluster.create_queue("a", 16).await;
    cluster.create_gang("g", "a", 2, 1, json!({})).await;
    cluster.create_pod(PodBuilder::fraction("half", "a", "0.5")).await;
    let delayed = PodBuilder::new("delayed", "a", 1).annotation("kai.scheduler/preemption-delay", "5m");
    cluster.create_pod(delayed).await;
    cluster.create_pod(PodBuilder::new("plain", "a", 1)).await;
    for (name, count) in [("g", 2), ("half", 1), ("delayed", 1), ("plain", 1)] {
        cluster.wait_for_running(name, count).await;
    }
    let groups = groups(&cluster).await;
    let owned = |pod: &str| groups.iter().any(|group| object::name(group).starts_with(&format!("pg-{pod}-")));
    assert!(owned("half") && owned("delayed") && !owned("plain"), "{groups:?}");
    assert_eq!(groups.len(), 3);
}

/// The Deployment itself decides where it has settings that its template lacks: then the group is created.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn replicas_of_a_deployment_need_no_pod_groups() {
    let cluster = cluster(1).await;
    cluster.create_queue("a", 8).await;
    let deployment = |name: &str, labels: Value| {
        let template = PodBuilder::new("replica", "a", 1).label("app", name).template();
        json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template},
        })
    };
    cluster.create(&DEPLOYMENT, deployment("web", json!({}))).await;
    cluster.wait_for_running("web", 2).await;
    cluster.sleep(Duration::from_secs(10)).await;
    assert_eq!(groups(&cluster).await, Vec::<Value>::new());
    assert_eq!(gpus(&cluster, "a", "allocatedNonPreemptible").await, "2", "the class of Deployments");
    cluster.create(&DEPLOYMENT, deployment("batch", json!({"priorityClassName": "train"}))).await;
    cluster.wait_for_running("batch", 2).await;
    cluster.wait_until("the groups are created", async || groups(&cluster).await.len() == 2).await;
    let low = async || gpus(&cluster, "a", "allocatedNonPreemptible").await == "2";
    cluster.wait_until("they are preemptible", low).await;
}

/// Restarts the components that read the mode.
async fn switch(cluster: &TestCluster, options: &Mutex<ComponentOptions>, mode: ImplicitGroups, probe: &str) {
    options.lock().set_implicit_groups(mode);
    for component in [name::SCHEDULER, name::POD_GROUPER, name::QUEUE_CONTROLLER] {
        cluster.backend.faults().crash(component);
        cluster.sleep(Duration::from_secs(5)).await;
    }
    cluster.create_pod(PodBuilder::new(probe, "a", 1)).await;
    cluster.wait_for_running(probe, 1).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn mode_is_switched_without_losing_or_moving_a_pod() {
    let shared = Arc::new(Mutex::new(ComponentOptions::simulated()));
    let read = Arc::clone(&shared);
    let cluster = TestCluster::with_components(1, [NodeGroup::gpu_nodes(2, 8)], |cluster| {
        embedded::join_with(cluster, move || read.lock().clone(), &PluginSet::builtin())
    })
    .await;
    cluster.create_queue("a", 16).await;
    for number in 0..4 {
        cluster.create_pod(PodBuilder::new(&format!("explicit{number}"), "a", 1)).await;
    }
    cluster.create_pod(PodBuilder::new("large", "a", 16)).await;
    cluster.wait_for_running("explicit", 4).await;
    cluster.wait_until("all have groups", async || groups(&cluster).await.len() == 5).await;
    let before = placements(&cluster).await;

    switch(&cluster, &shared, ImplicitGroups::OfAllPods, "probe-on").await;
    for number in 0..4 {
        cluster.create_pod(PodBuilder::new(&format!("implicit{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("implicit", 4).await;
    cluster.sleep(Duration::from_secs(10)).await;
    assert_eq!(groups(&cluster).await.len(), 5, "the groups that exist stay, and no other is created");
    assert_eq!(gpus(&cluster, "a", "allocated").await, "9");
    assert_eq!(gpus(&cluster, "a", "requested").await, "25");
    let during = placements(&cluster).await;
    assert!(before.iter().all(|(pod, placed)| during.get(pod) == Some(placed)), "{before:?} {during:?}");

    switch(&cluster, &shared, ImplicitGroups::OfPlacedPods, "probe-off").await;
    cluster.wait_until("every pod has a group", async || groups(&cluster).await.len() == 11).await;
    let assigned = async || {
        let pods = cluster.list(&POD).await;
        pods.iter().filter(|pod| annotation(pod, POD_GROUP).is_some()).count() == 11
    };
    cluster.wait_until("every pod is assigned", assigned).await;
    let counted = async || gpus(&cluster, "a", "allocated").await == "10";
    cluster.wait_until("the queue counts them", counted).await;
    let after = placements(&cluster).await;
    assert!(during.iter().all(|(pod, placed)| after.get(pod) == Some(placed)), "{during:?} {after:?}");
    assert_eq!(after.len(), 11);
    assert_eq!(cluster.event_messages("Evict", "").await, [""; 0]);
}

/// With the mode off, what was placed by it counts in its queue although its group is not created yet.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn queue_stays_within_its_limit_while_the_groups_are_missing() {
    let shared = Arc::new(Mutex::new(options()));
    let read = Arc::clone(&shared);
    let cluster = TestCluster::with_components(1, [NodeGroup::gpu_nodes(1, 8)], |cluster| {
        embedded::join_with(cluster, move || read.lock().clone(), &PluginSet::builtin())
    })
    .await;
    let limited = json!({"quota": 4, "limit": 4, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "a", &limited, json!({})).await;
    for number in 0..3 {
        cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("p", 3).await;
    switch(&cluster, &shared, ImplicitGroups::OfAllPods, "probe").await;
    cluster.backend.faults().partition(name::POD_GROUPER);
    shared.lock().set_implicit_groups(ImplicitGroups::OfPlacedPods);
    cluster.backend.faults().crash(name::SCHEDULER);
    cluster.create_gang("g", "a", 1, 1, json!({})).await;
    cluster.wait_for_condition("g", "limit").await;
    cluster.sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.running("g").await, 0, "four pods run in the queue");
}

/// The start of a group is on its pod, through restarts.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn minimum_run_time_protects_a_pod_without_a_group_after_a_restart() {
    let cluster = cluster(1).await;
    let gpus = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "a", &gpus, json!({"reclaimMinRuntime": "10m"})).await;
    cluster.create_queue("b", 8).await;
    cluster.create_pod(PodBuilder::new("a", "a", 8)).await;
    cluster.wait_for_running("a", 1).await;
    let crash = FaultRates { crash: 1_000_000, ..FaultRates::default() };
    cluster.backend.faults().set_client_rates(name::SCHEDULER, crash);
    cluster.create_pod(PodBuilder::new("b", "b", 8)).await;
    cluster.sleep(Duration::from_secs(30)).await;
    cluster.backend.faults().set_client_rates(name::SCHEDULER, FaultRates::default());
    cluster.sleep(Duration::from_mins(5)).await;
    assert_eq!((cluster.running("a").await, cluster.running("b").await), (1, 0));
    cluster.wait_for_running("b", 1).await;
}

/// Nothing but the pod remembers a binding.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn crashes_of_all_components_lose_and_duplicate_nothing() {
    for seed in 0..5 {
        let cluster = TestCluster::with_options(seed, [NodeGroup::gpu_nodes(1, 8)], &options()).await;
        cluster.create_queue("a", 8).await;
        let crash = FaultRates { crash: 100_000, ..FaultRates::default() };
        let components = [name::SCHEDULER, name::POD_GROUPER, name::QUEUE_CONTROLLER];
        for component in components {
            cluster.backend.faults().set_client_rates(component, crash);
        }
        for number in 0..8 {
            cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
        }
        cluster.sleep(Duration::from_mins(2)).await;
        for component in components {
            cluster.backend.faults().set_client_rates(component, FaultRates::default());
        }
        cluster.wait_for_running("p", 8).await;
        let counted = async || gpus(&cluster, "a", "allocated").await == "8";
        cluster.wait_until("the queue counts them", counted).await;
        assert_eq!(groups(&cluster).await, Vec::<Value>::new(), "seed {seed}");
    }
}
