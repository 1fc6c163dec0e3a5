//! A shard is changed while pods are scheduled: the operator writes the configuration, and the running scheduler takes it over.

use crate::migration;
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_api::SchedulingShard;
use kai_cli::embedded;
use kai_components::ComponentOptions;
use kai_engine::plugin::PluginSet;
use kai_object as object;
use kai_operator::Images;
use kai_operator::process::{self, Options};
use kai_runtime::Process;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{CONFIG_MAP, DEPLOYMENT, EVENT, Key, ResourceKind};
use kai_sim::NodeGroup;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const INSTALLATION: &str = "kai-scheduler";
const SCHEDULER: &str = "kai-scheduler-default";

fn scheduler() -> Key {
    Key::new(INSTALLATION, SCHEDULER)
}

/// A cluster with an operator that has deployed one shard, and a scheduler that reads what the operator writes for it.
async fn cluster() -> TestCluster {
    let mut options = ComponentOptions::simulated();
    options.scheduler.config_map = Some(scheduler());
    let nodes = [NodeGroup::gpu_nodes(4, 8)];
    let cluster = TestCluster::with_components(1, nodes, |cluster| {
        let clock = cluster.clock();
        cluster.run("operator-of-the-installation", move |client| {
            let process = Process::start(Api::new(client, "kai-operator"), clock, "kai-operator");
            let images = Images { repository: "registry.example/ours".to_owned(), tag: "v1".to_owned() };
            process::run(process, Options { namespace: INSTALLATION.to_owned(), images })
        });
        embedded::join(cluster, &options, &PluginSet::builtin())
    })
    .await;
    migration::create_installation(&cluster, INSTALLATION).await;
    cluster
        .wait_until("the shard is deployed", async || {
            cluster.api().get_dynamic(&DEPLOYMENT, &scheduler()).await.is_ok()
        })
        .await;
    cluster
}

async fn patch_shard(cluster: &TestCluster, patch: &Value) {
    let kind = ResourceKind::of::<SchedulingShard>();
    let patch = json!({"spec": patch});
    cluster.api().patch_dynamic(&kind, &Key::new("", "default"), Part::Main, &patch).await.unwrap();
}

/// The value of a metric of the scheduler, of which there was only one.
fn metric(cluster: &TestCluster, name: &str) -> f64 {
    let incarnations = cluster.scheduler.metrics();
    assert_eq!(incarnations.len(), 1, "the scheduler was restarted");
    let families = incarnations[0].gather();
    let family = families.iter().find(|family| family.name() == name).unwrap_or_else(|| panic!("no {name}"));
    let metric = &family.get_metric()[0];
    metric.get_counter().get_value() + metric.get_gauge().get_value()
}

async fn nodes_of(cluster: &TestCluster, prefix: &str) -> BTreeSet<String> {
    cluster.bound_pods(prefix).await.into_iter().map(|(_, node)| node).collect()
}

/// Allocations change every few seconds, and the configuration of the ledger every 20 s.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn usage_ledger_is_written_at_most_once_a_minute_under_churn_and_reloads() {
    let cluster = cluster().await;
    let mut versions = BTreeSet::new();
    let minutes = 10;
    for step in 0..minutes * 12 {
        if step % 4 == 0 {
            let window = format!("{}d", 1 + step % 3);
            let usage =
                json!({"clientType": "ledger", "usageParams": {"windowSize": window, "fetchInterval": "1s"}});
            patch_shard(&cluster, &json!({"usageDBConfig": usage})).await;
        }
        let name = format!("churn-{step}");
        cluster.create_pod(PodBuilder::new(&name, "research", 1)).await;
        for _ in 0..5 {
            let maps = cluster.api().list_dynamic(&CONFIG_MAP, "").await.unwrap().items;
            let ledgers =
                maps.iter().filter(|map| map["metadata"]["labels"]["kai.scheduler/usage-ledger"].is_string());
            versions.extend(ledgers.map(|map| kai_object::meta_str(map, "resourceVersion").to_owned()));
            cluster.sleep(Duration::from_secs(1)).await;
        }
        cluster.delete_pod(&name).await;
    }
    let writes = versions.len();
    assert!((5..=minutes + 1).contains(&writes), "{writes} writes in {minutes} minutes");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_are_bound_while_a_shard_is_changed_ten_times() {
    let cluster = cluster().await;
    let deployed = cluster.api().get_dynamic(&DEPLOYMENT, &scheduler()).await.unwrap();
    for change in 0..10 {
        // In turns: the placement, and other settings of the same file.
        let strategy = if change % 2 == 0 { "spread" } else { "binpack" };
        patch_shard(
            &cluster,
            &json!({
                "placementStrategy": {"gpu": strategy, "cpu": strategy},
                "kValue": f64::from(change) / 10.0,
                "queueDepthPerAction": {"reclaim": change + 1},
            }),
        )
        .await;
        // One is decided at about the time of the change, one after it.
        for pod in ["during", "after"] {
            let name = format!("{pod}-{change}");
            cluster.create_pod(PodBuilder::new(&name, "research", 1)).await;
            cluster.wait_for_running(&name, 1).await;
        }
    }
    cluster
        .wait_until("every change is in effect", async || {
            metric(&cluster, "kai_configuration_reloads_total") >= 10.0
        })
        .await;
    let now = cluster.api().get_dynamic(&DEPLOYMENT, &scheduler()).await.unwrap();
    assert_eq!(object::generation(&now), object::generation(&deployed), "no pod is replaced");

    // The last change packs, the next one spreads.
    patch_shard(&cluster, &json!({"placementStrategy": {"gpu": "spread", "cpu": "spread"}})).await;
    cluster
        .wait_until("the change is in effect", async || {
            metric(&cluster, "kai_configuration_reloads_total") >= 11.0
        })
        .await;
    for pod in 0..4 {
        let name = format!("spread-{pod}");
        cluster.create_pod(PodBuilder::new(&name, "research", 1)).await;
        cluster.wait_for_running(&name, 1).await;
    }
    assert!(nodes_of(&cluster, "spread").await.len() > 1, "pods are placed by the new strategy");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn invalid_configuration_is_reported_and_the_last_good_one_stays() {
    let cluster = cluster().await;
    // The operator would repair it.
    cluster.backend.faults().partition("operator-of-the-installation");
    let patch = json!({"data": {"config.yaml": "actions: \"allocate, fly\"\n"}});
    cluster.api().patch_dynamic(&CONFIG_MAP, &scheduler(), Part::Main, &patch).await.unwrap();
    cluster
        .wait_until("the metric tells", async || metric(&cluster, "kai_configuration_is_invalid") > 0.0)
        .await;
    cluster.create_pod(PodBuilder::new("pod", "research", 1)).await;
    cluster.wait_for_running("pod", 1).await;
    cluster.sleep(Duration::from_secs(5)).await;
    let events = cluster.api().list_dynamic(&EVENT, INSTALLATION).await.unwrap().items;
    let event = events.iter().find(|event| event["reason"] == "InvalidConfiguration").unwrap();
    assert!(object::str_at(event, "/message").contains("unknown action `fly`"), "{event}");
}
