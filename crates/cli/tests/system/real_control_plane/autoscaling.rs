//! The node scale adjuster on a real control plane, as a process with its own permissions.

use super::control_plane::{NAMESPACE, Plane};
use super::rbac::{self, Permission};
use crate::autoscaling;
use kai_api::well_known::label;
use kai_clock::Clock;
use kai_kubetest::control_plane::Programs;
use kai_sim::NodeGroup;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const ADJUSTER: &str = "node-scale-adjuster";
pub(super) const ADJUSTER_FLAGS: [&str; 1] = ["--scaling-pod-service-account=kai-scale-adjust"];
const POOL: &str = "scaling";

#[test]
#[ignore = "needs a real control plane: cargo xtask ci runs it"]
fn adjuster_causes_nodes_on_a_real_control_plane_with_minimal_permissions() {
    let programs = Programs::required(env!("CARGO_TARGET_TMPDIR"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs, "autoscaling").await);
        plane.kubeconfig_of(NAMESPACE, ADJUSTER).await;
        plane.start_component(ADJUSTER, ADJUSTER, &ADJUSTER_FLAGS);
        let cluster = plane.test_cluster(POOL, NodeGroup::gpu_nodes(1, 2)).await;
        let labels = BTreeMap::from([(label::NODE_POOL.to_owned(), POOL.to_owned())]);
        let template = NodeGroup { labels, name: format!("{POOL}-new"), ..NodeGroup::gpu_nodes(1, 2) };
        autoscaling::hidden_requests_get_nodes(&cluster, Clock::system(), template).await;
        let requests = plane.requests().await;
        let of_adjuster = |(account, ..): &Permission| account == ADJUSTER;
        let forbidden: Vec<_> =
            rbac::with_decision(&requests, "forbid").into_iter().filter(of_adjuster).collect();
        assert_eq!(forbidden, [], "these permissions are missing");
        let used = rbac::with_decision(&requests, "allow");
        let granted = rbac::all_roles().into_iter().filter(|role| role.account == ADJUSTER);
        let granted: BTreeSet<Permission> =
            granted.flat_map(|role| role.permissions().collect::<Vec<_>>()).collect();
        let unused: Vec<_> = granted.difference(&used).collect();
        // No event was repeated.
        assert_eq!(unused, [&(ADJUSTER.to_owned(), "events".to_owned(), "patch".to_owned())]);
        plane.assert_no_panic();
    });
}
