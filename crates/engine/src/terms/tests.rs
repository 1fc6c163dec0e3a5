//! Terms on small clusters: each rule by example, and all rules against a reference that visits every pod.

use super::*;
use crate::input::{AffinityTerm, LabelSelector, Labels, SelectorOp, SpreadConstraint, WeightedTerm};
use proptest::prelude::*;

mod examples;
mod literal;

/// A small cluster: nodes by number, pods with their labels and terms.
#[derive(Default)]
struct TestCluster {
    names: Interner,
    terms: Terms,
    nodes: Vec<Labels>,
    resolved: Vec<Vec<(Sym, Sym)>>,
    pods: Vec<PodOn>,
}

#[derive(Clone, Debug, Default)]
struct PodSpec {
    namespace: String,
    labels: Labels,
    spec: SpecInput,
}

#[derive(Clone, Debug)]
struct PodOn {
    pod: PodSpec,
    node: usize,
    presence: Presence,
}

impl TestCluster {
    fn new(nodes: &[&[(&str, &str)]]) -> Self {
        let mut fixture = Self::default();
        for labels in nodes {
            let labels = pairs(labels);
            let resolved = fixture.symbols(&labels);
            fixture.resolved.push(resolved);
            fixture.nodes.push(labels);
        }
        fixture
    }
    fn symbols(&mut self, labels: &Labels) -> Vec<(Sym, Sym)> {
        let mut symbols: Vec<_> =
            labels.iter().map(|(k, v)| (self.names.intern(k), self.names.intern(v))).collect();
        symbols.sort_unstable();
        symbols
    }
    fn resolve(&mut self, pod: &PodSpec) -> (LabelSetIdx, TermRefs) {
        let labels = self.symbols(&pod.labels);
        let namespace = self.names.intern(&pod.namespace);
        let set = self.terms.label_set(namespace, &labels);
        (set, self.terms.resolve(&pod.spec, &mut self.names))
    }
    fn place(&mut self, pod: &PodSpec, node: usize) -> usize {
        self.place_as(pod, node, Presence::Active)
    }
    fn place_as(&mut self, pod: &PodSpec, node: usize, presence: Presence) -> usize {
        let (label_set, refs) = self.resolve(pod);
        self.terms.place(&Placed {
            label_set,
            terms: &refs,
            node: NodeIdx::new(node),
            node_labels: &self.resolved[node],
            presence,
        });
        self.pods.push(PodOn { pod: pod.clone(), node, presence });
        self.pods.len() - 1
    }
    fn unplace(&mut self, at: usize) {
        let PodOn { pod, node, presence } = self.pods.swap_remove(at);
        let (label_set, refs) = self.resolve(&pod);
        self.terms.unplace(&Placed {
            label_set,
            terms: &refs,
            node: NodeIdx::new(node),
            node_labels: &self.resolved[node],
            presence,
        });
    }
    /// Resolved values of the pods on nodes.
    fn on_nodes(&mut self) -> Vec<(LabelSetIdx, TermRefs, usize, Presence)> {
        let pods = self.pods.clone();
        pods.iter()
            .map(|p| {
                let (set, refs) = self.resolve(&p.pod);
                (set, refs, p.node, p.presence)
            })
            .collect()
    }
    fn count_new(&mut self) {
        if self.terms.has_uncounted() {
            let pods = self.on_nodes();
            let resolved = &self.resolved;
            self.terms.count_new(pods.iter().map(|p| as_placed(p, resolved)));
        }
    }
    fn filter(&mut self, pod: &PodSpec, node: usize) -> Result<(), NodeRejection> {
        let (set, refs) = self.resolve(pod);
        self.count_new();
        self.terms.filter(set, &refs, &self.resolved[node])
    }
    /// The nodes that accept a pod, as far as affinity goes.
    fn fitting(&mut self, pod: &PodSpec) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&n| self.filter(pod, n).is_ok()).collect()
    }
    fn score(&mut self, pod: &PodSpec, node: usize) -> i64 {
        let (set, refs) = self.resolve(pod);
        self.count_new();
        self.terms.score(set, &refs, &self.resolved[node])
    }
    fn spread(&mut self, pod: &PodSpec, eligible: &[(bool, bool)]) -> SpreadState {
        let (set, refs) = self.resolve(pod);
        self.count_new();
        let nodes = self.resolved.iter().enumerate().map(|(n, labels)| SpreadNode {
            node: NodeIdx::new(n),
            labels,
            affinity: eligible.get(n).is_none_or(|e| e.0),
            taints: eligible.get(n).is_none_or(|e| e.1),
        });
        self.terms.spread_state(set, &refs, nodes)
    }
    /// The nodes that hard spread constraints allow.
    fn spread_allows(&mut self, pod: &PodSpec, eligible: &[(bool, bool)]) -> Vec<usize> {
        let state = self.spread(pod, eligible);
        (0..self.nodes.len()).filter(|&n| state.allows(&self.resolved[n]).is_ok()).collect()
    }
}

fn as_placed<'a>(
    pod: &'a (LabelSetIdx, TermRefs, usize, Presence),
    nodes: &'a [Vec<(Sym, Sym)>],
) -> Placed<'a> {
    Placed {
        label_set: pod.0,
        terms: &pod.1,
        node: NodeIdx::new(pod.2),
        node_labels: &nodes[pod.2],
        presence: pod.3,
    }
}

fn pairs(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn pod(labels: &[(&str, &str)]) -> PodSpec {
    PodSpec { namespace: "ns".into(), labels: pairs(labels), spec: SpecInput::default() }
}

fn equals(key: &str, value: &str) -> LabelSelector {
    LabelSelector { requirements: vec![(key.into(), SelectorOp::In(vec![value.into()]))] }
}

/// An affinity term for pods of namespace `ns` with a label.
fn near(topology_key: &str, key: &str, value: &str) -> AffinityTerm {
    AffinityTerm {
        selector: Some(equals(key, value)),
        namespaces: Some(vec!["ns".into()]),
        topology_key: topology_key.into(),
    }
}

fn affinity(mut pod: PodSpec, term: AffinityTerm) -> PodSpec {
    pod.spec.affinity.push(term);
    pod
}

fn anti(mut pod: PodSpec, term: AffinityTerm) -> PodSpec {
    pod.spec.anti_affinity.push(term);
    pod
}

fn preferred(mut pod: PodSpec, weight: i32, term: AffinityTerm) -> PodSpec {
    pod.spec.preferred_affinity.push(WeightedTerm { weight, term });
    pod
}

fn spread(mut pod: PodSpec, constraint: SpreadConstraint) -> PodSpec {
    pod.spec.spread.push(constraint);
    pod
}

fn evenly(topology_key: &str, key: &str, value: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: topology_key.into(),
        hard: true,
        selector: equals(key, value),
        namespace: "ns".into(),
        min_domains: None,
        honor_affinity: true,
        honor_taints: false,
    }
}
