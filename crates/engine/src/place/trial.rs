//! Per-pod inputs of filters and scores, computed once per placement.

use crate::cluster::Cluster;
use crate::cluster::node::{Load, When};
use crate::cluster::pod::GpuGroups;
use crate::ids::{NodeIdx, PodIdx, QueueIdx};
use crate::input::GpuRequest;
use crate::numa::{Ignored, NumaRequests};
use crate::policy::Policy;
use crate::share::Preemptibility;
use crate::terms::{SpreadNode, SpreadState};
use crate::topology::NodeScores;

/// A pod to be placed.
pub(crate) struct Trial<'p> {
    pub policy: &'p Policy,
    pub pod: PodIdx,
    pub queue: Option<QueueIdx>,
    pub preemptibility: Preemptibility,
    /// Pod affinity or anti-affinity can reject nodes.
    pub uses_terms: bool,
    /// Preferred pod affinity can differ between nodes.
    pub term_scores: bool,
    pub spread: Option<SpreadState>,
    pub has_claims: bool,
    pub has_volumes: bool,
    /// A request by GPU memory: its queue charge depends on the node.
    pub cost_varies: bool,
    pub numa: Option<(NumaRequests, Ignored)>,
    pub nominated: Option<NodeIdx>,
    /// Scores of the innermost member with a preferred topology level.
    pub topology: Option<&'p NodeScores>,
    no_groups: GpuGroups,
}

impl<'p> Trial<'p> {
    pub(crate) fn new(
        cluster: &Cluster,
        policy: &'p Policy,
        pod: PodIdx,
        topology: Option<&'p NodeScores>,
    ) -> Self {
        let p = &cluster.pods[pod];
        let shape = cluster.shape(pod);
        let group = p.group.map(|g| &cluster.groups[g]);
        let builtin = &policy.registry.builtin;
        let needs_spread =
            builtin.predicates && (shape.terms.has_hard_spread() || shape.terms.has_soft_spread());
        let extra = p.extra.as_deref();
        let has_claims = builtin.dynamic_resources
            && (extra.is_some_and(|e| !e.claims.is_empty()) || cluster.requests_devices(pod));
        Self {
            policy,
            pod,
            queue: group.and_then(|g| g.queue),
            preemptibility: match group {
                Some(g) if !g.preemptible => Preemptibility::NonPreemptible,
                _ => Preemptibility::Preemptible,
            },
            uses_terms: builtin.predicates && cluster.terms.affects(p.label_set, &shape.terms),
            term_scores: builtin.pod_affinity && cluster.terms.scores(p.label_set, &shape.terms),
            spread: needs_spread.then(|| spread_state(cluster, pod)),
            has_claims,
            has_volumes: cluster.has_volumes(pod),
            cost_varies: matches!(shape.gpu, GpuRequest::Memory { .. }),
            numa: numa_requests(cluster, policy, pod),
            nominated: if builtin.nominated_node {
                p.nominated.and_then(|n| cluster.node_of(n))
            } else {
                None
            },
            topology,
            no_groups: GpuGroups::new(),
        }
    }

    /// The pod's load, without GPU groups.
    pub(crate) fn load<'a>(&'a self, cluster: &'a Cluster) -> Load<'a> {
        cluster.load(self.pod, &self.no_groups)
    }

    /// The pod's request fits a node.
    pub(crate) fn fits(&self, cluster: &Cluster, node: NodeIdx, when: When) -> bool {
        let n = &cluster.nodes[node];
        n.fits(&self.load(cluster), when, &cluster.dims, &|r| cluster.is_device_backed(r))
            && (!self.has_volumes || cluster.storage_fits(self.pod, node, when))
    }
}

fn spread_state(cluster: &Cluster, pod: PodIdx) -> SpreadState {
    let p = &cluster.pods[pod];
    let shape = cluster.shape(pod);
    let nodes = cluster.nodes_by_rank.iter().map(|&node| {
        let n = &cluster.nodes[node];
        SpreadNode {
            node,
            labels: &n.labels,
            affinity: cluster.classes.matches_affinity(shape.class, n.name, &n.labels, &cluster.names),
            taints: cluster.classes.tolerates(shape.class, &n.taints, &cluster.names),
        }
    });
    cluster.terms.spread_state(p.label_set, &shape.terms, nodes)
}

fn numa_requests(cluster: &Cluster, policy: &Policy, pod: PodIdx) -> Option<(NumaRequests, Ignored)> {
    let args = policy.registry.builtin.numa.as_ref()?;
    if cluster.figures.numa_zones == 0 {
        return None;
    }
    let requests = cluster.shape(pod).numa.clone();
    Some((requests, Ignored::parse(&args.ignore, &cluster.dims, &cluster.names)))
}
