//! Unexpected objects on a real control plane, against components that are processes: none ends or panics, a neighbour's
//! pods are bound in time, memory stays bounded, and the problem of every object is reported on it.
//!
//! Half of the seeds meet the admission webhooks; the others run without, as in a cluster whose webhooks are switched off.
//! `KAI_HOSTILE_SEEDS=100..110` selects other seeds.

use super::control_plane::{Plane, memory_kib, wait_until};
use super::webhook_outage;
use super::webhooks::{ADMISSION, ADMISSION_2};
use crate::fault_injection::seeds_from;
use crate::hostile_tenants::reports::Reports;
use crate::hostile_tenants::{KINDS, create_all, key, resource_kind, submit};
use crate::test_cluster::{PodBuilder, TestCluster};
use kai_kubetest::control_plane::Programs;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions, Part};
use kai_runtime::kind::{PERSISTENT_VOLUME_CLAIM, POD, ResourceKind};
use kai_scheduler::resources::{BIND_REQUEST, POD_GROUP};
use kai_sim::NodeGroup;
use kai_testkit::hostile::{self, Hostile, NAMESPACE};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Cluster = TestCluster<Arc<Plane>>;

/// More than the valid ones among the generated pods need.
const NODES: usize = 8;
/// How much longer than without hostile objects a neighbour may wait, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the report of a problem may take: the backoff of pods that cannot be grouped is a minute.
const REPORTED_WITHIN: Duration = Duration::from_secs(100);
/// How much more memory a component may use than before the first hostile object; those of a seed have a few MB.
const MEMORY_MAX_KIB: u64 = 128 * 1024;

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn hostile_objects_end_no_component_and_delay_no_neighbour() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "hostile").await);
        let cluster = plane.default_pool_cluster("neighbour", NodeGroup::gpu_nodes(NODES, 8)).await;
        plane.create_namespace(NAMESPACE).await;
        cluster.create_queue("good", 16).await;
        cluster.create_pod(PodBuilder::new("early", "good", 1)).await;
        cluster.wait_for_running("early", 1).await;
        let early = object::uid(&cluster.get(&POD, "early").await.unwrap()).to_owned();
        let alone = round(&cluster, &KINDS, 0).await;
        let memory = memory(&plane, "VmRSS:");

        let seeds = seeds_from("KAI_HOSTILE_SEEDS", 0..6);
        let with_webhooks = (seeds.end - seeds.start).div_ceil(2);
        for (number, seed) in seeds.enumerate() {
            let number = number as u64;
            if number == with_webhooks {
                remove_webhooks(&plane).await;
            }
            // A webhook prepares the pods that share a GPU.
            let kinds = if number < with_webhooks { &KINDS[..] } else { &KINDS[..2] };
            run(&cluster, seed, kinds, alone + PATIENCE).await;
            let early_now = cluster.get(&POD, "early").await.unwrap_or_default();
            assert_eq!(
                object::uid(&early_now),
                early,
                "seed {seed}: a running pod of a neighbour is not evicted"
            );
        }
        assert_memory(&plane, &memory);
    });
}

/// Runs the neighbour's workloads beside the objects of a seed, which are deleted at the end.
async fn run(cluster: &Cluster, seed: u64, kinds: &[(&str, usize)], patience: Duration) {
    let plane = &cluster.backend;
    let generated = hostile::generate(seed);
    let accepted = create_all(plane.api(), &generated).await;
    assert!(accepted > generated.objects.len() / 4, "seed {seed}: only {accepted} objects were accepted");
    let waited = round(cluster, kinds, seed as usize + 1).await;
    eprintln!("seed {seed}: {accepted} objects; the slowest neighbour was bound after {waited:?}");
    assert!(waited <= patience, "seed {seed}: a neighbour waited for {waited:?}, more than {patience:?}");

    let deadline = tokio::time::Instant::now() + REPORTED_WITHIN;
    loop {
        let reports = Reports::read(plane.api()).await;
        assert_eq!(reports.too_long(), [""; 0], "seed {seed}: messages");
        let missing = reports.missing();
        if missing.is_empty() {
            break;
        }
        let is_late = tokio::time::Instant::now() > deadline;
        assert!(!is_late, "seed {seed}: problems that are not reported:\n{}", missing.join("\n"));
        cluster.sleep(Duration::from_secs(1)).await;
    }
    // Components that meet the same objects again after each relist.
    cluster.sleep(Duration::from_secs(3)).await;
    assert_eq!(plane.start_ended_again(), Vec::<String>::new(), "seed {seed}: these processes ended");
    plane.assert_no_panic();
    delete_all(plane.api(), &generated).await;
    assert_eq!(plane.start_ended_again(), Vec::<String>::new(), "seed {seed}: these processes ended");
    plane.assert_no_panic();
}

/// Submits the neighbour's workloads and deletes them; returns how long the slowest waited to be bound.
async fn round(cluster: &Cluster, kinds: &[(&str, usize)], round: usize) -> Duration {
    let delays = submit(cluster, kinds, round).await;
    for (kind, _) in kinds {
        let prefix = format!("{kind}-{round}");
        for pod in cluster.list(&POD).await.iter().map(object::name).filter(|name| name.starts_with(&prefix))
        {
            cluster.delete_pod(pod).await;
        }
    }
    cluster.wait_until("only one pod is left", async || cluster.list(&POD).await.len() == 1).await;
    delays.into_iter().map(|(_, delay)| delay).max().unwrap_or_default()
}

/// No webhook reviews the objects any more.
async fn remove_webhooks(plane: &Plane) {
    for replica in [ADMISSION, ADMISSION_2] {
        assert!(plane.kill_component(replica), "{replica} had ended");
    }
    webhook_outage::delete_configurations(plane.api()).await;
}

/// Deletes the objects of a seed, and waits until nothing is left of them.
async fn delete_all(api: &Api, generated: &Hostile) {
    let remaining = async || {
        let mut remaining = Vec::new();
        for kind in [&POD, &*POD_GROUP, &*BIND_REQUEST, &PERSISTENT_VOLUME_CLAIM] {
            remaining.extend(
                api.list_dynamic(kind, NAMESPACE)
                    .await
                    .unwrap()
                    .items
                    .into_iter()
                    .map(|one| (kind.clone(), one)),
            );
        }
        remaining
    };
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    wait_until("nothing is left of the hostile objects", || async {
        let mut is_done = true;
        let generated = generated.objects.iter().map(|one| (resource_kind(one), key(one)));
        let others = remaining().await;
        is_done &= others.is_empty();
        let others =
            others.into_iter().map(|(kind, one): (ResourceKind, _)| (kind, kai_runtime::key_of(&one)));
        for (kind, key) in generated.chain(others) {
            if api
                .get_dynamic(&kind, &key)
                .await
                .is_err_and(|error| error.is_not_found() || error.code() == 400)
            {
                continue;
            }
            is_done = false;
            // A webhook refuses to delete a queue that is in use: it is repeated.
            let how = DeleteOptions::default().immediately().propagate("Background");
            let _ = api.delete_dynamic(&kind, &key, &how).await;
            let _ = api.patch_dynamic(&kind, &key, Part::Main, &no_finalizers).await;
        }
        is_done
    })
    .await;
}

/// Memory of each component in KiB.
fn memory(plane: &Plane, field: &str) -> BTreeMap<String, u64> {
    let processes = plane.component_processes().into_iter();
    processes.map(|(name, process)| (name, memory_kib(process, field))).collect()
}

/// Compares the peaks with what the components used before.
fn assert_memory(plane: &Plane, before: &BTreeMap<String, u64>) {
    for (name, peak) in memory(plane, "VmHWM:") {
        let before = before.get(&name).copied().unwrap_or(0);
        eprintln!("{name}: {} MiB before, at most {} MiB", before / 1024, peak / 1024);
        assert!(peak <= before + MEMORY_MAX_KIB, "{name} used {peak} KiB, and {before} KiB before");
    }
}
