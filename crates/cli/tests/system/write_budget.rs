//! How many writes a pod costs, from its creation until it runs and everything about it is reported.
//!
//! `tests/budget.json` has the counts by component and resource, beside those of `cargo xtask budget`. They are the same on
//! every machine; a change that needs more than 3 % more fails, and `UPDATE=1` writes the new ones.

use crate::test_cluster::{PodBuilder, TestCluster};
use kai_cache::ImplicitGroups;
use kai_cli::embedded;
use kai_components::{COMPONENTS, ComponentOptions};
use kai_engine::plugin::PluginSet;
use kai_scheduler::Binding;
use kai_sim::{Cluster, NodeGroup};
use std::collections::BTreeMap;
use std::time::Duration;

const PODS: u32 = 64;
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/budget.json");
/// By how much a count may exceed its budget.
const TOLERANCE: f64 = 1.03;

/// Writes by mode, and by component, method and resource.
type Counts = BTreeMap<String, BTreeMap<String, u32>>;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pod_costs_no_more_writes_than_its_budget() {
    let modes = [
        ("direct", Binding::Direct, ImplicitGroups::OfPlacedPods),
        ("requests", Binding::Requests, ImplicitGroups::OfPlacedPods),
        ("implicit", Binding::Direct, ImplicitGroups::OfAllPods),
    ];
    let mut counts = Counts::new();
    for (mode, binding, groups) in modes {
        counts.insert(mode.to_owned(), writes(binding, groups).await);
    }
    let read = || serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        let mut all: BTreeMap<String, BTreeMap<String, u64>> = read();
        for (mode, counts) in &counts {
            let counts = counts.iter().map(|(write, count)| (write.clone(), u64::from(*count)));
            all.insert(mode.clone(), counts.collect());
        }
        std::fs::write(FILE, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
    }
    let budget: BTreeMap<String, BTreeMap<String, u64>> = read();
    for (mode, counts) in &counts {
        let budget = budget.get(mode).cloned().unwrap_or_default();
        for (write, count) in counts {
            let allowed = budget.get(write).copied().unwrap_or(0) as f64 * TOLERANCE;
            assert!(
                f64::from(*count) <= allowed,
                "{mode}: {count} times `{write}` for {PODS} pods, {allowed:.0} are allowed; all: {counts:#?}"
            );
        }
    }
    let per_pod = |mode: &str| f64::from(counts[mode].values().sum::<u32>()) / f64::from(PODS);
    assert!(per_pod("direct") < 5.0, "{}", per_pod("direct"));
    // A Binding and an event; the status of the queues is written once a second.
    assert!(per_pod("implicit") < 2.25, "{}", per_pod("implicit"));
    let of_pods = |write: &str| write.contains("pod") || write.contains("event") || write.contains("bind");
    let of_pods = counts["implicit"].iter().filter(|(write, _)| of_pods(write)).map(|(_, count)| count);
    assert_eq!(of_pods.sum::<u32>(), 2 * PODS, "{:#?}", counts["implicit"]);
}

/// Fills a cluster with single pods of one GPU, and counts the writes of our components.
async fn writes(binding: Binding, groups: ImplicitGroups) -> BTreeMap<String, u32> {
    let nodes = NodeGroup::gpu_nodes(PODS as usize / 8, 8);
    let mut options = ComponentOptions::simulated();
    options.scheduler.binding = binding;
    options.set_implicit_groups(groups);
    let builder = Cluster::builder().seed(1).nodes([nodes]).keep_lines();
    let cluster =
        TestCluster::built(builder, |cluster| embedded::join(cluster, &options, &PluginSet::builtin())).await;
    cluster.create_queue("a", i64::from(PODS)).await;
    cluster.sleep(Duration::from_secs(10)).await;
    let before = cluster.backend.journal().lines().len();
    for number in 0..PODS {
        cluster.create_pod(PodBuilder::new(&format!("p{number}"), "a", 1)).await;
    }
    cluster.wait_for_running("p", PODS as usize).await;
    cluster.sleep(Duration::from_secs(30)).await;
    let mut counts = BTreeMap::new();
    for line in cluster.backend.journal().lines().iter().skip(before) {
        if let Some(write) = write_of(line) {
            *counts.entry(write).or_default() += 1;
        }
    }
    counts
}

/// Component, method and resource of a line that is a write of a component.
fn write_of(line: &str) -> Option<String> {
    let mut words = line.split(' ').skip(1);
    let (client, what, method, path) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let is_write = what == "request" && method != "GET" && COMPONENTS.iter().any(|spec| spec.name == client);
    let resource = resource_of(path)?;
    (is_write && resource != "leases").then(|| format!("{client} {method} {resource}"))
}

/// The resource and subresource of a path.
fn resource_of(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('?').next()?.split('/').skip(1).collect();
    // `api/v1` or `apis/GROUP/VERSION`.
    let parts = parts.get(if parts.first() == Some(&"api") { 2 } else { 3 }..)?;
    let parts = if parts.first() == Some(&"namespaces") && parts.len() > 2 { &parts[2..] } else { parts };
    let resource = parts.first()?;
    Some(match parts.get(2) {
        Some(part) => format!("{resource}/{part}"),
        None => (*resource).to_owned(),
    })
}
