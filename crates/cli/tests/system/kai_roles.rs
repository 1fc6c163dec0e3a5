//! The components with the rights of KAI's roles: what those lack is optional, missing rights are reported, and granted
//! ones are picked up without a restart. `real_control_plane/kai_roles.rs` compares the list below with KAI's roles.

use crate::disruption_budgets::{budget, shielded};
use crate::test_cluster::{PodBuilder, TestCluster};
use crate::{eviction, gpu_sharing, resource_claims};
use kai_api::well_known::name::SCALE_ADJUST;
use kai_cli::embedded;
use kai_components::{COMPONENTS, Component, ComponentOptions, ComponentSpec, name, rbac};
use kai_controllers::node_scale;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::kind::POD;
use kai_sim::{NodeGroup, Right, Rights};
use prometheus::Registry;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// The rights of `deploy/rbac` that KAI's roles lack: component, verb, resource, API group.
pub(crate) const NOT_GRANTED: &[(&str, &str, &str, &str)] = &[
    (name::SCHEDULER, "create", "pods/binding", ""),
    (name::SCHEDULER, "create", "pods/eviction", ""),
    (name::SCHEDULER, "list", "poddisruptionbudgets", "policy"),
    (name::SCHEDULER, "watch", "poddisruptionbudgets", "policy"),
    (name::BINDER, "patch", "persistentvolumes", ""),
    (name::POD_GROUPER, "get", "dynamographdeployments", "nvidia.com"),
    (name::POD_GROUPER, "get", "podgroups", "scheduling.k8s.io"),
    // Without them such owners are read at intervals.
    (name::POD_GROUPER, "list", "dynamographdeployments", "nvidia.com"),
    (name::POD_GROUPER, "watch", "dynamographdeployments", "nvidia.com"),
    (name::POD_GROUPER, "list", "podgroups", "scheduling.k8s.io"),
    (name::POD_GROUPER, "watch", "podgroups", "scheduling.k8s.io"),
    (name::POD_GROUPER, "list", "topologies", "kai.scheduler"),
    (name::POD_GROUP_CONTROLLER, "create", "events", ""),
    (name::QUEUE_CONTROLLER, "create", "events", ""),
    // Only with implicit groups.
    (name::QUEUE_CONTROLLER, "list", "pods", ""),
    (name::QUEUE_CONTROLLER, "watch", "pods", ""),
    (name::QUEUE_CONTROLLER, "list", "priorityclasses", "scheduling.k8s.io"),
    (name::QUEUE_CONTROLLER, "watch", "priorityclasses", "scheduling.k8s.io"),
    (name::ADMISSION, "get", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
    (name::ADMISSION, "create", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
    (name::ADMISSION, "patch", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
    (name::ADMISSION, "get", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    (name::ADMISSION, "create", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    (name::ADMISSION, "patch", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    (name::ADMISSION, "get", "secrets", ""),
    (name::ADMISSION, "create", "secrets", ""),
    (name::ADMISSION, "patch", "secrets", ""),
    (name::NODE_SCALE_ADJUSTER, "list", "podgroups", "scheduling.run.ai"),
    (name::NODE_SCALE_ADJUSTER, "watch", "podgroups", "scheduling.run.ai"),
    (name::NODE_SCALE_ADJUSTER, "list", "bindrequests", "scheduling.run.ai"),
    (name::NODE_SCALE_ADJUSTER, "watch", "bindrequests", "scheduling.run.ai"),
    (name::NODE_SCALE_ADJUSTER, "list", "resourceclaims", "resource.k8s.io"),
    (name::NODE_SCALE_ADJUSTER, "watch", "resourceclaims", "resource.k8s.io"),
    (name::NODE_SCALE_ADJUSTER, "get", "serviceaccounts", ""),
    // It runs beside a kubelet: `crates/numa-exporter/tests` has its test.
    (name::NUMA_EXPORTER, "watch", "pods", ""),
];

const LIST_BUDGETS: &str = "list poddisruptionbudgets.policy";
const EVICT: &str = "create pods/eviction";

fn not_granted(component: &str) -> Vec<Right> {
    let of_component = NOT_GRANTED.iter().filter(|(of, ..)| *of == component);
    of_component.map(|(_, verb, resource, group)| Right::new(verb, resource, group)).collect()
}

/// The rights of a component that KAI's role grants too.
pub(crate) fn rights(spec: &ComponentSpec) -> Rights {
    Rights::of_roles(&rbac::objects(spec)).without(&not_granted(spec.name))
}

/// A cluster whose components have the rights of KAI's roles from the start.
async fn cluster(nodes: NodeGroup) -> TestCluster {
    TestCluster::with_components(1, [nodes], |cluster| {
        // One process stands in for all reservation pods, and reads more than one of them.
        for spec in COMPONENTS.iter().filter(|spec| spec.name != name::RESOURCE_RESERVATION) {
            cluster.faults().set_rights(spec.name, Some(rights(spec)));
        }
        embedded::join(cluster, &ComponentOptions::simulated(), &PluginSet::builtin())
    })
    .await
}

/// The value of `kai_component_degraded` for a right.
fn degraded(cluster: &TestCluster, right: &str) -> Option<f64> {
    degraded_in(cluster.scheduler.metrics().last()?, right)
}

fn degraded_in(metrics: &Registry, right: &str) -> Option<f64> {
    let families = metrics.gather();
    let family = families.iter().find(|family| family.name() == "kai_component_degraded")?;
    let series = family.get_metric().iter().find(|series| series.get_label()[0].value() == right)?;
    Some(series.get_gauge().get_value())
}

fn assert_only_optional_rights_are_missing(cluster: &TestCluster) {
    for spec in COMPONENTS {
        let missing: BTreeSet<Right> = not_granted(spec.name).into_iter().collect();
        let denied = cluster.backend.faults().denied(spec.name);
        assert!(denied.is_subset(&missing), "{} lacks {:?}", spec.name, denied.difference(&missing));
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn components_work_with_the_rights_of_kais_roles() {
    let preempting = cluster(NodeGroup::gpu_nodes(1, 8)).await;
    eviction::preemption(&preempting).await;
    assert_eq!(degraded(&preempting, LIST_BUDGETS), Some(1.0));
    assert_eq!(degraded(&preempting, EVICT), Some(1.0), "victims were deleted");
    assert_only_optional_rights_are_missing(&preempting);
    let sharing = cluster(NodeGroup::gpu_nodes(1, 8)).await;
    gpu_sharing::half_gpus(&sharing).await;
    assert_only_optional_rights_are_missing(&sharing);
    let claiming = cluster(resource_claims::nodes()).await;
    resource_claims::claim_per_pod(&claiming).await;
    assert_only_optional_rights_are_missing(&claiming);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn adjuster_requests_nodes_with_the_rights_of_kais_role_and_reports_what_it_lacks() {
    let (metrics, health) = (Registry::new(), Health::default());
    let (registry, reported) = (metrics.clone(), health.clone());
    let cluster = TestCluster::with_components(1, [NodeGroup::gpu_nodes(1, 2)], |cluster| {
        let spec = Component::NodeScaleAdjuster.spec();
        cluster.faults().set_rights(spec.name, Some(rights(spec)));
        let clock = cluster.clock();
        cluster.run(spec.name, move |client| {
            let api = Api::new(client, spec.name);
            let process = Process::with(api, clock, spec.name, registry.clone(), reported.clone());
            node_scale::run(process, node_scale::Options::default())
        });
        // Without its options, their adjuster does nothing.
        embedded::join(cluster, &ComponentOptions::simulated(), &PluginSet::builtin())
    })
    .await;
    cluster.create_queue("a", 8).await;
    cluster.create_pod(PodBuilder::new("filler", "a", 2)).await;
    cluster.wait_for_running("filler", 1).await;
    cluster.create_pod(PodBuilder::fraction("half", "a", "0.5")).await;
    let scaling_pods = async || cluster.api().list_dynamic(&POD, SCALE_ADJUST).await.unwrap().items.len();
    cluster.wait_until("a node is requested", async || scaling_pods().await == 1).await;
    let lists = ["list podgroups.scheduling.run.ai", "list resourceclaims.resource.k8s.io"];
    for right in lists.into_iter().chain(["get serviceaccounts"]) {
        assert_eq!(degraded_in(&metrics, right), Some(1.0), "{right}");
    }
    assert_eq!(health.problems(), Vec::<String>::new(), "it is ready");
    let missing: BTreeSet<Right> = not_granted(name::NODE_SCALE_ADJUSTER).into_iter().collect();
    let denied = cluster.backend.faults().denied(name::NODE_SCALE_ADJUSTER);
    assert!(denied.is_subset(&missing), "it lacks {:?}", denied.difference(&missing));

    cluster.backend.faults().set_rights(name::NODE_SCALE_ADJUSTER, None);
    cluster
        .wait_until("the granted rights are used", async || {
            lists.iter().all(|right| degraded_in(&metrics, right) == Some(0.0))
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn right_to_disruption_budgets_counts_as_soon_as_it_is_granted_or_taken_away() {
    let cluster = cluster(NodeGroup::gpu_nodes(1, 8)).await;
    cluster.create_queue("a", 8).await;
    shielded(&cluster, 2, 4).await;
    budget(&cluster, "shield", 2, 0).await;
    let faults = cluster.backend.faults();
    faults.set_rights(name::SCHEDULER, None);
    cluster.wait_until("budgets are listed", async || degraded(&cluster, LIST_BUDGETS) == Some(0.0)).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_condition("high", "Resources were not found").await;
    cluster.sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.running("shielded").await, 2, "the budget protects them");

    // An open watch continues without its right, until it ends.
    let scheduler = COMPONENTS.iter().find(|spec| spec.name == name::SCHEDULER).unwrap();
    faults.set_rights(name::SCHEDULER, Some(rights(scheduler)));
    faults.partition(name::SCHEDULER);
    cluster.sleep(Duration::from_secs(30)).await;
    faults.heal(name::SCHEDULER);
    cluster.wait_for_running("high", 1).await;
    assert_eq!(degraded(&cluster, LIST_BUDGETS), Some(1.0));
    assert_eq!(degraded(&cluster, EVICT), Some(1.0));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn known_budgets_are_not_bypassed_without_the_right_to_evict() {
    let cluster = TestCluster::new(1).await;
    let scheduler = COMPONENTS.iter().find(|spec| spec.name == name::SCHEDULER).unwrap();
    let all = Rights::of_roles(&rbac::objects(scheduler));
    let faults = cluster.backend.faults();
    faults
        .set_rights(name::SCHEDULER, Some(all.clone().without(&[Right::new("create", "pods/eviction", "")])));
    cluster.create_queue("a", 8).await;
    cluster.create_gang("low", "a", 8, 1, json!({"minMember": 8, "priorityClassName": "train"})).await;
    cluster.wait_for_running("low", 8).await;
    cluster.create_gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    cluster.wait_for_condition("high", "grant the scheduler `create` on `pods/eviction`").await;
    assert_eq!(cluster.running("low").await, 8);
    assert_eq!(degraded(&cluster, EVICT), Some(1.0));
    faults.set_rights(name::SCHEDULER, Some(all));
    cluster.wait_for_running("high", 1).await;
    assert_eq!(degraded(&cluster, EVICT), Some(0.0));
}
