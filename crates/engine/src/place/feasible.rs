//! The start nodes of a victim search: those that are feasible for a group without evictions there.

use crate::cluster::Cluster;
use crate::ids::{GroupIdx, NodeIdx};
use crate::node_set::NodeSet;

/// Nodes that are feasible for a group without evictions there. If any pod of the group, in any status, requests no
/// GPU, these are all nodes; otherwise those with a whole or partial GPU that is idle or releasing.
pub fn feasible_nodes(cluster: &Cluster, group: GroupIdx) -> NodeSet {
    if allows_any_node(cluster, group) {
        return NodeSet::All;
    }
    let open = cluster.nodes_by_rank.iter().copied().filter(|node| offers_gpus(cluster, *node));
    NodeSet::Some(open.collect())
}

/// Whether a pod of the group requests no GPU.
pub(crate) fn allows_any_node(cluster: &Cluster, group: GroupIdx) -> bool {
    cluster.groups[group].pod_sets().any(|(_, set)| {
        set.pods.iter().any(|pod| cluster.shape(*pod).is_cpu_only() && cluster.pods[*pod].claim_gpus == 0)
    })
}

/// Whether a node has a whole or partial GPU that is idle or releasing.
pub(crate) fn offers_gpus(cluster: &Cluster, node: NodeIdx) -> bool {
    let node = &cluster.nodes[node];
    node.idle_gpu_sum(&cluster.dims).0 > 0 || node.releasing_gpu_sum(&cluster.dims).0 > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::GpuRequest;
    use crate::test_cluster::TestCluster;

    fn with_shared_gpu() -> TestCluster {
        let mut fixture = TestCluster::default();
        fixture.node("cpus", 0);
        fixture.node("gpus", 2);
        fixture.group("train", |_| {});
        let half = GpuRequest::Fraction { hundredths: 50, devices: 1 };
        fixture.pod("train-0", "train", |pod| pod.spec.gpu = half);
        fixture
    }

    #[test]
    fn groups_that_request_gpus_start_from_nodes_with_gpus() {
        let mut fixture = with_shared_gpu();
        fixture.refresh();
        let gpus = fixture.cluster.node("gpus").unwrap();
        assert_eq!(feasible_nodes(&fixture.cluster, fixture.find("train")), NodeSet::Some([gpus].into()));
    }

    #[test]
    fn one_pod_without_gpus_makes_all_nodes_feasible() {
        let mut fixture = with_shared_gpu();
        fixture.pod("train-1", "train", |_| {});
        fixture.refresh();
        assert_eq!(feasible_nodes(&fixture.cluster, fixture.find("train")), NodeSet::All);
    }
}
