//! The node scale adjuster with Karpenter, whose kwok provider creates nodes in the API; simulated kubelets report them as
//! ready.
//!
//! Every node that Karpenter adds is needed, and what it must not disrupt stays, although all of it would fit elsewhere.

use super::autoscaling::{ADJUSTER, ADJUSTER_FLAGS};
use super::control_plane::{NAMESPACE, Plane, wait_until};
use super::workload_controllers::{RealCluster, start};
use crate::test_cluster::PodBuilder;
use kai_api::well_known::annotation::KARPENTER_DO_NOT_DISRUPT;
use kai_api::well_known::label;
use kai_api::well_known::name::SCALE_ADJUST as SCALING;
use kai_kubetest::control_plane::Programs;
use kai_kubetest::third_party::{KARPENTER, karpenter};
use kai_object as object;
use kai_runtime::kind::{EVENT, Key, NODE, POD};
use kai_runtime::{ResourceKind, api::Part};
use kai_sim::{NodeGroup, node, well_known};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const POOL: &str = "karpenter";
const NODE_CLASS: ResourceKind =
    cluster_kind("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses");
const NODE_POOL: ResourceKind = cluster_kind("karpenter.sh", "v1", "NodePool", "nodepools");
const NODE_CLAIM: ResourceKind = cluster_kind("karpenter.sh", "v1", "NodeClaim", "nodeclaims");
/// Longer than the cool-down of the adjuster, and than several periods in which Karpenter looks at pods and nodes.
const QUIET: Duration = Duration::from_secs(75);

const fn cluster_kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> ResourceKind {
    ResourceKind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        kind: Cow::Borrowed(kind),
        plural: Cow::Borrowed(plural),
        namespaced: false,
    }
}

#[test]
#[ignore = "needs Karpenter: cargo xtask kubernetes --with karpenter --test"]
fn karpenter_adds_the_nodes_that_pods_need_and_disrupts_no_shared_gpu_and_no_marked_gang() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, POOL).await);
        plane.kubeconfig_of(NAMESPACE, ADJUSTER).await;
        plane.start_component(ADJUSTER, ADJUSTER, &ADJUSTER_FLAGS);
        let mut karpenter = start(&plane, &programs, KARPENTER).await;
        let cluster = plane.test_cluster(POOL, NodeGroup::gpu_nodes(1, karpenter::GPUS)).await;
        wait_until("Karpenter's kinds are served", || async { create_node_pool(&cluster).await.is_ok() })
            .await;
        // It ends where its definitions were not served when it started.
        karpenter.keep_running(plane.control()).await.unwrap();
        let run = async {
            nothing_causes_a_node_in_vain(&cluster).await;
            fractions_and_gangs_get_their_nodes(&cluster).await;
            shared_gpus_and_marked_gangs_are_not_disrupted(&cluster).await;
            unmarked_gangs_are_disrupted(&cluster).await;
            unused_nodes_are_removed(&cluster).await;
        };
        let restarts = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                karpenter.keep_running(plane.control()).await.unwrap();
            }
        };
        tokio::select! {
            () = run => {}
            () = restarts => {}
        }
        plane.assert_no_panic();
    });
}

/// New nodes belong to the pool of the test, and simulated kubelets run them. None is removed yet.
async fn create_node_pool(cluster: &RealCluster) -> kai_runtime::api::Result<()> {
    let simulated = node::node(&NodeGroup::gpu_nodes(1, karpenter::GPUS), 0, "");
    let labels = simulated["metadata"]["labels"].as_object().unwrap().clone();
    let mut labels: Value = labels.into_iter().filter(|(key, _)| key.starts_with("nvidia.com/")).collect();
    labels[label::NODE_POOL] = json!(POOL);
    let class =
        json!({"apiVersion": NODE_CLASS.api_version(), "kind": "KWOKNodeClass", "metadata": {"name": POOL}});
    let pool = json!({
        "apiVersion": NODE_POOL.api_version(), "kind": "NodePool", "metadata": {"name": POOL},
        "spec": {
            "template": {
                "metadata": {"labels": labels, "annotations": {well_known::SIMULATED: "true"}},
                "spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL},
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never",
                "budgets": [{"nodes": "100%"}],
            },
        },
    });
    cluster.api().ensure_dynamic(&NODE_CLASS, "", &class).await?;
    cluster.api().ensure_dynamic(&NODE_POOL, "", &pool).await.map(drop)
}

/// What no node would run stays pending until the end, beside what needs nodes.
async fn nothing_causes_a_node_in_vain(cluster: &RealCluster) {
    cluster.create_queue("a", 100).await;
    cluster.create_pod(PodBuilder::new("filler", "a", karpenter::GPUS)).await;
    cluster.wait_for_running("filler", 1).await;
    // The queue may have no GPU.
    let limited = json!({"quota": 0, "limit": 0, "overQuotaWeight": 1});
    cluster.create_queue_under(Some("teams"), "limited", &limited, json!({})).await;
    let fraction =
        |queue: &'static str| move |name: &str| PodBuilder::unprepared_fraction(name, queue, "0.5");
    cluster.create_group("blocked-shared", "limited", 2, json!({}), fraction("limited")).await;
    cluster.create_gang("blocked-whole", "limited", 2, 1, json!({"markUnschedulable": false})).await;
    // A gang of which one pod does not exist.
    cluster.create_group("incomplete", "a", 1, json!({"minMember": 2}), fraction("a")).await;
    let gates = json!([{"name": "example.com/g"}]);
    cluster.create_pod(fraction("a")("gated").spec_field("schedulingGates", gates)).await;
    cluster.wait_for_condition("blocked-shared", "limit").await;
    cluster.sleep(QUIET).await;
    assert_eq!((claims(cluster).await, scaling_pods(cluster).await), (0, 0), "{}", cluster.dump().await);
}

async fn fractions_and_gangs_get_their_nodes(cluster: &RealCluster) {
    let fraction = |name: &str, part: &str| PodBuilder::unprepared_fraction(name, "a", part);
    // One GPU for both.
    for name in ["half-0", "half-1"] {
        cluster.create_pod(fraction(name, "0.5")).await;
    }
    cluster.wait_for_running("half-", 2).await;
    wait_for_no_scaling_pod(cluster).await;
    assert_eq!(claims(cluster).await, 1, "one GPU of its two is used");
    // No two of the gang share a GPU, and one GPU is free: two are missing.
    cluster.create_group("shared", "a", 3, json!({}), |name| fraction(name, "0.6")).await;
    cluster.wait_for_running("shared-", 3).await;
    wait_for_no_scaling_pod(cluster).await;
    assert_eq!(claims(cluster).await, 2, "each GPU of both is used");
    let marked =
        |name: &str| PodBuilder::new(name, "a", karpenter::GPUS).annotation(KARPENTER_DO_NOT_DISRUPT, "true");
    cluster.create_group("whole", "a", 2, json!({}), marked).await;
    cluster.wait_for_running("whole-", 2).await;
    cluster.sleep(QUIET).await;
    assert_eq!((claims(cluster).await, scaling_pods(cluster).await), (4, 0), "{}", cluster.dump().await);
    for blocked in ["blocked-", "incomplete-", "gated"] {
        assert_eq!(cluster.bound_pods(blocked).await, [], "{blocked}");
    }
}

/// The first node is free again: what runs on any other would fit there.
async fn shared_gpus_and_marked_gangs_are_not_disrupted(cluster: &RealCluster) {
    let before = uids(cluster).await;
    let consolidate = json!({"spec": {"disruption": {"consolidateAfter": "5s"}}});
    cluster.api().patch_dynamic(&NODE_POOL, &Key::new("", POOL), Part::Main, &consolidate).await.unwrap();
    cluster.delete_pod("filler").await;
    cluster
        .wait_until("Karpenter reports that it must not disrupt its four nodes", async || {
            blocked_nodes(cluster).await.len() == 4
        })
        .await;
    cluster.sleep(QUIET).await;
    assert_eq!(claims(cluster).await, 4);
    assert_eq!(uids(cluster).await, before, "the same pods run");
}

async fn unmarked_gangs_are_disrupted(cluster: &RealCluster) {
    let unmarked = json!({"metadata": {"annotations": {KARPENTER_DO_NOT_DISRUPT: null}}});
    for name in ["whole-0", "whole-1"] {
        cluster.patch(&POD, name, &unmarked).await;
    }
    cluster.wait_until("a node of the gang is removed", async || claims(cluster).await == 3).await;
    assert_eq!((cluster.running("half-").await, cluster.running("shared-").await), (2, 3));
}

async fn unused_nodes_are_removed(cluster: &RealCluster) {
    for pod in cluster.list(&POD).await {
        let deleted = cluster.try_delete(&POD, object::name(&pod)).await;
        // The rest of a gang that was disrupted may be evicted meanwhile.
        assert!(deleted.as_ref().err().is_none_or(kai_runtime::api::Error::is_not_found), "{deleted:?}");
    }
    cluster
        .wait_until("only the first node is left", async || {
            claims(cluster).await == 0 && cluster.list(&NODE).await.len() == 1
        })
        .await;
    assert_eq!(scaling_pods(cluster).await, 0);
}

/// The nodes that Karpenter has ordered and not removed.
async fn claims(cluster: &RealCluster) -> usize {
    cluster.list(&NODE_CLAIM).await.len()
}

async fn scaling_pods(cluster: &RealCluster) -> usize {
    cluster.api().list_dynamic(&POD, SCALING).await.unwrap().items.len()
}

async fn wait_for_no_scaling_pod(cluster: &RealCluster) {
    cluster.wait_until("no scaling pod is left", async || scaling_pods(cluster).await == 0).await;
}

/// The uids of the pods that run, without the filler.
async fn uids(cluster: &RealCluster) -> BTreeSet<String> {
    let pods = cluster.list(&POD).await;
    let running = pods.iter().filter(|pod| object::str_at(pod, "/status/phase") == "Running");
    running.filter(|pod| object::name(pod) != "filler").map(|pod| object::uid(pod).to_owned()).collect()
}

/// The nodes with an event that says that a pod on them must not be disrupted.
async fn blocked_nodes(cluster: &RealCluster) -> BTreeSet<String> {
    let events = cluster.api().list_dynamic(&EVENT, "").await.unwrap().items;
    let blocked = events.iter().filter(|event| {
        object::str_at(event, "/reason") == "DisruptionBlocked"
            && object::str_at(event, "/involvedObject/kind") == "Node"
            && object::str_at(event, "/message").contains("do-not-disrupt")
    });
    blocked.map(|event| object::str_at(event, "/involvedObject/name").to_owned()).collect()
}
