//! The scenarios on a real control plane, in real time: every component is a process with its own service account and
//! the permissions in `deploy/rbac`. Every granted permission must be used.
//!
//! Each scenario has its own node pool and scheduler shard, so that scenarios run concurrently.

mod autoscaling;
mod component_scenarios;
mod control_plane;
mod etcd_restore;
mod hostile_tenants;
mod kai_roles;
mod karpenter;
mod late_conditions;
mod leader_failover;
mod minimal_permissions;
mod missing_permissions;
mod rbac;
mod soak;
mod webhook_outage;
mod webhooks;
mod workload_controllers;

use crate::kai_suites::{
    conditions, consolidation as suite_consolidation, devices, elastic as suite_elastic, node_order, numa,
    predicates, preempt, quota, reclaim, resources as suite_resources, subgroups, topology as suite_topology,
};
use crate::test_cluster::TestCluster;
use crate::{
    admission, bind_failures, consolidation, disruption_budgets, eviction, gang_scheduling, gpu_sharing,
    historical_usage, implicit_groups, node_failure, queue_limits, quick_start, resource_claims,
    time_based_transitions, time_limits, topology, workload_kinds,
};
use control_plane::Plane;
use futures::{FutureExt as _, StreamExt as _};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::Programs;
use kai_sim::NodeGroup;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

type Run = for<'a> fn(&'a TestCluster<Arc<Plane>>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Concurrent scenarios; they spend most of the time waiting.
const CONCURRENCY: usize = 8;

struct Scenario {
    name: &'static str,
    nodes: fn() -> NodeGroup,
    run: Run,
}

const fn scenario(name: &'static str, nodes: fn() -> NodeGroup, run: Run) -> Scenario {
    Scenario { name, nodes, run }
}

fn one() -> NodeGroup {
    NodeGroup::gpu_nodes(1, 8)
}

fn two() -> NodeGroup {
    NodeGroup::gpu_nodes(2, 8)
}

/// One node with two GPUs.
fn two_gpus() -> NodeGroup {
    NodeGroup::gpu_nodes(1, 2)
}

fn four_gpus() -> NodeGroup {
    NodeGroup::gpu_nodes(1, 4)
}

/// Ordered by duration, longest first.
const SCENARIOS: [Scenario; 65] = [
    scenario("third-party", one, |cluster| Box::pin(workload_kinds::third_party(cluster))),
    scenario("kubernetes-kinds", one, |cluster| Box::pin(workload_kinds::kubernetes_kinds(cluster))),
    scenario("third-party-gang", one, |cluster| Box::pin(workload_kinds::third_party_gang(cluster))),
    scenario("repeated-events", one, |cluster| Box::pin(component_scenarios::repeated_events(cluster))),
    scenario("node-deleted", two, |cluster| Box::pin(node_failure::deleted(cluster))),
    scenario("node-not-ready", two, |cluster| Box::pin(node_failure::not_ready(cluster))),
    scenario("late-shards", one, |cluster| Box::pin(late_conditions::two_shards(cluster))),
    scenario("late-report", one, |cluster| Box::pin(late_conditions::bound_pod(cluster))),
    scenario("bind-group-backoff", one, |cluster| Box::pin(bind_failures::group_backoff(cluster))),
    scenario("bind-backoff-limit", one, |cluster| {
        Box::pin(bind_failures::retries_up_to_backoff_limit(cluster))
    }),
    scenario("preempt-min-runtime", one, |cluster| {
        Box::pin(time_based_transitions::preempt_min_runtime(cluster))
    }),
    scenario("reclaim-min-runtime", one, |cluster| {
        Box::pin(time_based_transitions::reclaim_min_runtime(cluster))
    }),
    scenario("time-limit-end", one, |cluster| Box::pin(time_limits::end(cluster))),
    scenario("time-limit-preemptible", one, |cluster| Box::pin(time_limits::preemptible(cluster))),
    scenario("staleness", one, |cluster| Box::pin(time_based_transitions::staleness(cluster))),
    scenario("preemption-delay", one, |cluster| Box::pin(time_based_transitions::preemption_delay(cluster))),
    scenario("suite-reclaim-groups", reclaim::nodes, |cluster| Box::pin(reclaim::groups(cluster))),
    scenario("suite-reclaim", one, |cluster| Box::pin(reclaim::single_pods(cluster))),
    scenario("suite-preempt-matrix", one, |cluster| Box::pin(preempt::matrix(cluster))),
    scenario("suite-numa-evictions", numa::nodes, |cluster| Box::pin(numa::evictions(cluster))),
    scenario("suite-preempt-groups", preempt::nodes, |cluster| Box::pin(preempt::groups(cluster))),
    scenario("suite-subtree", one, |cluster| Box::pin(subgroups::trees(cluster))),
    scenario("suite-topology", suite_topology::nodes, |cluster| Box::pin(suite_topology::domains(cluster))),
    scenario("suite-subgroups", one, |cluster| Box::pin(subgroups::minimums(cluster))),
    scenario("suite-predicates", predicates::nodes, |cluster| Box::pin(predicates::predicates(cluster))),
    scenario("suite-claims", devices::nodes, |cluster| Box::pin(devices::claims(cluster))),
    scenario("suite-extended", devices::nodes, |cluster| Box::pin(devices::extended(cluster))),
    scenario("suite-numa", numa::nodes, |cluster| Box::pin(numa::policies(cluster))),
    scenario("suite-quota", one, |cluster| Box::pin(quota::quota(cluster))),
    scenario("suite-order", node_order::nodes, |cluster| Box::pin(node_order::binpack(cluster))),
    scenario("suite-consolidation", suite_consolidation::nodes, |cluster| {
        Box::pin(suite_consolidation::consolidate(cluster))
    }),
    scenario("suite-priority", two_gpus, |cluster| Box::pin(suite_elastic::priority_order(cluster))),
    scenario("suite-elastic", one, |cluster| Box::pin(suite_elastic::elastic(cluster))),
    scenario("suite-conditions", one, |cluster| Box::pin(conditions::reasons(cluster))),
    scenario("suite-restricted-nodes", predicates::nodes, |cluster| {
        Box::pin(predicates::restricted(cluster))
    }),
    scenario("suite-order-spread", node_order::nodes, |cluster| Box::pin(node_order::spread(cluster))),
    scenario("suite-resources", four_gpus, |cluster| Box::pin(suite_resources::requests(cluster))),
    scenario("suite-reclaim-hierarchy", two_gpus, |cluster| Box::pin(reclaim::hierarchy(cluster, true))),
    scenario("suite-reclaim-flat", two_gpus, |cluster| Box::pin(reclaim::hierarchy(cluster, false))),
    scenario("gang", two, |cluster| Box::pin(gang_scheduling::all_or_nothing(cluster))),
    scenario("eviction-rejected", one, |cluster| Box::pin(disruption_budgets::eviction_is_rejected(cluster))),
    scenario("budget", one, |cluster| Box::pin(disruption_budgets::budget_protects_pods(cluster))),
    scenario("topology", topology::nodes, |cluster| Box::pin(topology::required_rack(cluster))),
    scenario("consolidation", two, |cluster| Box::pin(consolidation::defragmentation(cluster))),
    scenario(control_plane::IMPLICIT_GROUPS, one, |cluster| Box::pin(implicit_groups::plain_pods(cluster))),
    scenario("limits", one, |cluster| Box::pin(queue_limits::limits_are_enforced(cluster))),
    scenario("claims", resource_claims::nodes, |cluster| Box::pin(resource_claims::claim_per_pod(cluster))),
    scenario("claim-shared", resource_claims::nodes, |cluster| {
        Box::pin(resource_claims::shared_claim(cluster))
    }),
    scenario("one-pod", two, |cluster| Box::pin(quick_start::one_pod(cluster))),
    scenario("one-job", one, |cluster| Box::pin(quick_start::one_job(cluster))),
    scenario("elastic", one, |cluster| Box::pin(gang_scheduling::elastic(cluster))),
    scenario("reclaim", one, |cluster| Box::pin(eviction::reclaim(cluster))),
    scenario("preemption", one, |cluster| Box::pin(eviction::preemption(cluster))),
    scenario("queue-deletion", one, |cluster| Box::pin(admission::queue_deletion(cluster))),
    scenario("prepared-pods", one, |cluster| Box::pin(admission::prepared_pods(cluster))),
    scenario("refusals", one, |cluster| {
        Box::pin(async move {
            admission::refusals(cluster).await;
            let file = cluster.backend.control().kubeconfig_file();
            let config = kai_runtime::connect::config(Some(file), None).await.unwrap();
            admission::warned_minimum(cluster, &kai_runtime::connect::client(config).unwrap()).await;
        })
    }),
    scenario("half-gpus", one, |cluster| Box::pin(gpu_sharing::half_gpus(cluster))),
    scenario("owners", one, |cluster| Box::pin(component_scenarios::owners(cluster))),
    scenario("rejections", one, |cluster| Box::pin(component_scenarios::rejections(cluster))),
    scenario("volumes", one, |cluster| Box::pin(component_scenarios::volumes(cluster))),
    scenario("pod-group-repair", one, |cluster| Box::pin(component_scenarios::pod_group_repair(cluster))),
    scenario("extended-resources", one, |cluster| Box::pin(component_scenarios::extended_resources(cluster))),
    scenario(control_plane::USAGE_LEDGER, one, |cluster| Box::pin(historical_usage::usage_ledger(cluster))),
    scenario("config-maps", one, |cluster| Box::pin(component_scenarios::config_maps(cluster))),
    scenario(control_plane::EVICTION_BY_DELETION, one, |cluster| Box::pin(eviction::preemption(cluster))),
];

/// Scenarios with device claims, which they write in `resource.k8s.io/v1`: Kubernetes 1.34 and newer serve it.
const WITH_CLAIMS: [&str; 5] =
    ["claims", "claim-shared", "extended-resources", "suite-claims", "suite-extended"];

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn scenarios_pass_on_a_real_control_plane_with_minimal_permissions() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    // `KAI_REAL_SCENARIOS=limits,claims` runs only these.
    let selected = std::env::var("KAI_REAL_SCENARIOS").ok();
    let is_selected = |scenario: &&Scenario| {
        selected.as_ref().is_none_or(|names| names.split(',').any(|name| name == scenario.name))
    };
    let mut scenarios: Vec<&Scenario> = SCENARIOS.iter().filter(is_selected).collect();
    assert!(!scenarios.is_empty(), "`KAI_REAL_SCENARIOS` names no scenario: {selected:?}");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "real").await);
        println!("kube-apiserver {}", plane.version().await);
        if !plane.serves_resource_claims().await {
            println!("scenarios {WITH_CLAIMS:?} are left out: the server has no resource.k8s.io/v1");
            scenarios.retain(|scenario| !WITH_CLAIMS.contains(&scenario.name));
        }
        let slots = Semaphore::new(CONCURRENCY);
        let all = futures::stream::iter(&scenarios).map(|scenario| run_scenario(&plane, &slots, scenario));
        let mut all = all.buffer_unordered(SCENARIOS.len());
        let mut failed = Vec::new();
        while let Some(result) = all.next().await {
            let ScenarioResult { name, ran_ms, total_ms } = result;
            match ran_ms {
                Some(ran) => println!("{name}: {:.1} s, {:.1} s with clean-up", ran / 1e3, total_ms / 1e3),
                None => println!("{name}: failed after {:.1} s", total_ms / 1e3),
            }
            failed.extend(ran_ms.is_none().then_some(name));
        }
        assert!(failed.is_empty(), "these scenarios failed: {failed:?}");
        if selected.is_none() {
            webhooks::wait_until_rotated(&plane).await;
        }
        let requests = plane.requests().await;
        if scenarios.len() < SCENARIOS.len() {
            println!("permissions are not checked: only all scenarios together use each of them");
        } else {
            rbac::check(&requests);
            let removed = minimal_permissions::each_permission_is_required(&plane, &requests).await;
            println!("{removed} permissions were removed, one by one");
            let reported = missing_permissions::denied_requests_are_reported(&plane).await;
            println!("{reported} missing permissions were reported after a start without any");
        }
    });
}

struct ScenarioResult {
    name: &'static str,
    /// `None` where it failed.
    ran_ms: Option<f64>,
    /// Includes the clean-up.
    total_ms: f64,
}

async fn run_scenario(plane: &Arc<Plane>, slots: &Semaphore, scenario: &Scenario) -> ScenarioResult {
    let slot = slots.acquire().await.unwrap();
    let watch = Stopwatch::start();
    let run = async {
        let cluster = plane.test_cluster(scenario.name, (scenario.nodes)()).await;
        (scenario.run)(&cluster).await;
        let ran_ms = watch.elapsed_ms();
        drop(slot);
        plane.clean_up(&cluster).await;
        ran_ms
    };
    // A failed scenario prints its panic; the others continue.
    let ran_ms = AssertUnwindSafe(run).catch_unwind().await.ok();
    ScenarioResult { name: scenario.name, ran_ms, total_ms: watch.elapsed_ms() }
}
