//! Every placement satisfies the constraints of the node and of the pods.

use super::after::{After, PlacedPod};
use super::matching::{any_term, clash, selects, tolerates};
use super::{Findings, Invariant};
use crate::cluster::Cluster;
use crate::ids::{NodeIdx, PodIdx};
use crate::input::{AffinityTerm, GpuRequest, MigStrategy, TaintEffect};
use crate::policy::Policy;

pub(super) fn check(before: &Cluster, policy: &Policy, after: &After, findings: &mut Findings) {
    for held in after.placed(before) {
        let description = node_constraints(before, policy, held);
        let neighbours = pod_constraints(before, after, held);
        for why in description.into_iter().chain(neighbours) {
            let (pod, node) = (before.pod_key(held.pod), before.text(before.nodes[held.node].name));
            findings.add(Invariant::Placement, format!("pod `{pod}` is placed on node `{node}`: {why}"));
        }
    }
}

/// Constraints of the node that the pod violates.
fn node_constraints(before: &Cluster, policy: &Policy, held: &PlacedPod) -> Vec<String> {
    let n = &before.nodes[held.node];
    let shape = before.shape(held.pod);
    let spec = &shape.spec;
    let label = |key: &str| before.names.find(key).and_then(|k| n.label(k)).map(|v| before.text(v));
    let mut violations = Vec::new();
    if n.unschedulable {
        violations.push("the node is cordoned".to_owned());
    }
    violations
        .extend(n.bad_conditions.iter().map(|condition| format!("the node has condition {condition:?}")));
    for taint in n.taints.iter().filter(|t| t.effect != TaintEffect::PreferNoSchedule) {
        let (key, value) = (before.text(taint.key), before.text(taint.value));
        if !tolerates(&spec.tolerations, key, value, taint.effect) {
            violations.push(format!("taint `{key}` is not tolerated"));
        }
    }
    if spec.node_selector.iter().any(|(key, value)| label(key) != Some(value.as_str())) {
        violations.push("the node selector does not match".to_owned());
    }
    if !spec.node_terms.is_empty() && !any_term(&spec.node_terms, before.text(n.name), &label) {
        violations.push("the node affinity does not match".to_owned());
    }
    let wants_gpu = !shape.is_cpu_only() || before.pods[held.pod].claim_gpus > 0;
    if policy.params.restrict_nodes && !(if wants_gpu { n.gpu_worker } else { n.cpu_worker }) {
        violations.push("the node lacks the worker role".to_owned());
    }
    let mig = shape.gpu == GpuRequest::Mig;
    let mixed = n.is_mig && n.mig_strategy == MigStrategy::Mixed;
    let single = n.is_mig && n.mig_strategy == MigStrategy::Single;
    if spec.legacy_mig
        || (wants_gpu && ((mig && !n.is_mig) || (mixed && !mig) || (single && (mig || shape.is_shared()))))
    {
        violations.push("the node has another kind of GPU".to_owned());
    }
    if matches!(shape.gpu, GpuRequest::Memory { .. }) && !n.gpu_memory.known {
        violations.push("the GPU memory of the node is unknown".to_owned());
    }
    violations
}

/// Constraints between pods that the placement violates.
fn pod_constraints(before: &Cluster, after: &After, held: &PlacedPod) -> Vec<String> {
    let mut violations = Vec::new();
    let spec = &before.shape(held.pod).spec;
    for other in after.at(held.node).filter(|other| other.pod != held.pod) {
        let theirs = &before.shape(other.pod).spec.ports;
        if spec.ports.iter().any(|a| theirs.iter().any(|b| clash(a, b))) {
            violations.push(format!("pod `{}` uses the same host port", before.pod_key(other.pod)));
        }
    }
    for node in &before.nodes_by_rank {
        for other in after.at(*node).filter(|other| other.pod != held.pod) {
            let theirs = &before.shape(other.pod).spec.anti_affinity;
            let pushed = |terms: &[AffinityTerm], whom: PodIdx| {
                terms
                    .iter()
                    .any(|term| near(before, term, held.node, other.node) && covers(before, term, whom))
            };
            if pushed(&spec.anti_affinity, other.pod) || pushed(theirs, held.pod) {
                violations.push(format!("anti-affinity with pod `{}`", before.pod_key(other.pod)));
            }
        }
    }
    for term in &spec.affinity {
        let met =
            |other: &PlacedPod| near(before, term, held.node, other.node) && covers(before, term, other.pod);
        if !covers(before, term, held.pod) && !after.held.iter().any(|o| o.pod != held.pod && met(o)) {
            violations.push("required pod affinity does not match".to_owned());
        }
    }
    violations
}

/// Whether both nodes have the same value of the term's topology key.
fn near(before: &Cluster, term: &AffinityTerm, a: NodeIdx, b: NodeIdx) -> bool {
    let Some(key) = before.names.find(&term.topology_key) else { return false };
    let value = before.nodes[a].label(key);
    value.is_some() && value == before.nodes[b].label(key)
}

/// Whether the term selects this pod.
fn covers(before: &Cluster, term: &AffinityTerm, pod: PodIdx) -> bool {
    let p = &before.pods[pod];
    let namespace = before.text(p.namespace);
    let labels: Vec<(&str, &str)> =
        before.terms.labels(p.label_set).iter().map(|(k, v)| (before.text(*k), before.text(*v))).collect();
    term.namespaces.as_ref().is_none_or(|all| all.iter().any(|n| n == namespace))
        && term.selector.as_ref().is_some_and(|selector| selects(selector, &labels))
}
