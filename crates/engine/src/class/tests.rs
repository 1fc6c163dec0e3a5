//! Node acceptance, one rule per test.

use super::*;
use crate::input::{NodePreference, NodeTerm, Requirement, RequirementOp, Toleration, TolerationOp};

#[derive(Default)]
struct TestCluster {
    names: Interner,
    classes: Classes,
}

/// A node: name, labels, taints.
type NodeRow<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str, TaintEffect)]);

impl TestCluster {
    fn node(&mut self, (name, labels, taints): NodeRow<'_>) -> (Sym, Vec<(Sym, Sym)>, Vec<Taint>) {
        let names = &mut self.names;
        let mut labels: Vec<_> = labels.iter().map(|(k, v)| (names.intern(k), names.intern(v))).collect();
        labels.sort_unstable();
        let taints = taints.iter().map(|(key, value, effect)| Taint {
            key: names.intern(key),
            value: names.intern(value),
            effect: *effect,
        });
        let taints = taints.collect();
        (names.intern(name), labels, taints)
    }
    fn accepts(&mut self, spec: &SpecInput, node: NodeRow<'_>) -> Result<(), NodeRejection> {
        let class = self.classes.resolve(spec, &mut self.names);
        let (name, labels, taints) = self.node(node);
        self.classes.accepts(class, name, &labels, &taints, &self.names)
    }
    fn soft(&mut self, spec: &SpecInput, node: NodeRow<'_>) -> f64 {
        let class = self.classes.resolve(spec, &mut self.names);
        let (name, labels, taints) = self.node(node);
        self.classes.soft_score(class, name, &labels, &taints, &self.names)
    }
}

fn selecting(pairs: &[(&str, &str)]) -> SpecInput {
    let node_selector = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    SpecInput { node_selector, ..SpecInput::default() }
}

fn term(key: &str, op: RequirementOp) -> NodeTerm {
    NodeTerm { labels: vec![Requirement { key: key.into(), op }], names: Vec::new() }
}

fn affine(terms: Vec<NodeTerm>) -> SpecInput {
    SpecInput { node_terms: terms, ..SpecInput::default() }
}

fn tolerating(key: &str, op: TolerationOp, effect: Option<TaintEffect>) -> SpecInput {
    SpecInput { tolerations: vec![Toleration { key: key.into(), op, effect }], ..SpecInput::default() }
}

fn values(list: &[&str]) -> Vec<String> {
    list.iter().map(|v| (*v).to_owned()).collect()
}

const GPU_NODE: NodeRow<'static> = ("n1", &[("gpu", "h100"), ("slots", "8")], &[]);
const TAINTED: NodeRow<'static> = ("n2", &[], &[("team", "blue", TaintEffect::NoSchedule)]);

#[test]
fn every_pair_of_the_selector_must_be_there() {
    let mut fixture = TestCluster::default();
    assert_eq!(fixture.accepts(&selecting(&[("gpu", "h100"), ("slots", "8")]), GPU_NODE), Ok(()));
    assert_eq!(fixture.accepts(&selecting(&[("gpu", "a100")]), GPU_NODE), Err(NodeRejection::NodeAffinity));
    assert_eq!(fixture.accepts(&selecting(&[("zone", "a")]), GPU_NODE), Err(NodeRejection::NodeAffinity));
}

#[test]
fn each_operator_of_node_affinity() {
    use RequirementOp::{DoesNotExist, Exists, Gt, In, Lt, Never, NotIn};
    let rows = [
        ("gpu", In(values(&["h100", "b200"])), true),
        ("gpu", In(values(&["a100"])), false),
        ("zone", In(values(&["a"])), false),
        ("gpu", NotIn(values(&["a100"])), true),
        ("gpu", NotIn(values(&["h100"])), false),
        ("zone", NotIn(values(&["a"])), true),
        ("gpu", Exists, true),
        ("zone", Exists, false),
        ("gpu", DoesNotExist, false),
        ("zone", DoesNotExist, true),
        ("slots", Gt(7), true),
        ("slots", Gt(8), false),
        ("slots", Lt(9), true),
        ("slots", Lt(8), false),
        ("gpu", Gt(0), false),
        ("zone", Lt(9), false),
        ("gpu", Never, false),
    ];
    let mut fixture = TestCluster::default();
    for (key, op, expected) in rows {
        let spec = affine(vec![term(key, op.clone())]);
        assert_eq!(fixture.accepts(&spec, GPU_NODE).is_ok(), expected, "{key} {op:?}");
    }
}

#[test]
fn one_term_suffices_and_an_empty_term_never_holds() {
    let mut fixture = TestCluster::default();
    let absent = || term("zone", RequirementOp::Exists);
    let present = || term("gpu", RequirementOp::Exists);
    assert!(fixture.accepts(&affine(vec![absent(), present()]), GPU_NODE).is_ok());
    assert!(fixture.accepts(&affine(vec![NodeTerm::default()]), GPU_NODE).is_err());
    let both = NodeTerm { labels: [present().labels, absent().labels].concat(), names: Vec::new() };
    assert!(fixture.accepts(&affine(vec![both]), GPU_NODE).is_err());
}

#[test]
fn selector_and_affinity_must_both_hold() {
    let mut fixture = TestCluster::default();
    let mut spec = selecting(&[("gpu", "a100")]);
    spec.node_terms = vec![term("gpu", RequirementOp::Exists)];
    assert!(fixture.accepts(&spec, GPU_NODE).is_err());
}

#[test]
fn terms_on_the_name_read_the_name() {
    let mut fixture = TestCluster::default();
    let named =
        |op| NodeTerm { labels: Vec::new(), names: vec![Requirement { key: "metadata.name".into(), op }] };
    assert!(fixture.accepts(&affine(vec![named(RequirementOp::In(values(&["n1"])))]), GPU_NODE).is_ok());
    assert!(fixture.accepts(&affine(vec![named(RequirementOp::In(values(&["n2"])))]), GPU_NODE).is_err());
    assert!(fixture.accepts(&affine(vec![named(RequirementOp::NotIn(values(&["n1"])))]), GPU_NODE).is_err());
}

#[test]
fn an_untolerated_taint_is_named() {
    let mut fixture = TestCluster::default();
    let miss = fixture.accepts(&SpecInput::default(), TAINTED);
    assert_eq!(miss, Err(NodeRejection::Taint("team".into(), "blue".into())));
}

#[test]
fn each_way_to_tolerate_a_taint() {
    use TaintEffect::{NoExecute, NoSchedule};
    let rows = [
        ("team", TolerationOp::Equal("blue".into()), Some(NoSchedule), true),
        ("team", TolerationOp::Equal("red".into()), Some(NoSchedule), false),
        ("team", TolerationOp::Exists, None, true),
        ("team", TolerationOp::Exists, Some(NoExecute), false),
        ("other", TolerationOp::Exists, None, false),
        ("", TolerationOp::Exists, None, true),
    ];
    let mut fixture = TestCluster::default();
    for (key, op, effect, expected) in rows {
        let spec = tolerating(key, op.clone(), effect);
        assert_eq!(fixture.accepts(&spec, TAINTED).is_ok(), expected, "{key} {op:?} {effect:?}");
    }
    let level: NodeRow<'_> = ("n3", &[], &[("level", "5", NoSchedule)]);
    assert!(fixture.accepts(&tolerating("level", TolerationOp::Gt(4), None), level).is_ok());
    assert!(fixture.accepts(&tolerating("level", TolerationOp::Gt(5), None), level).is_err());
    assert!(fixture.accepts(&tolerating("level", TolerationOp::Lt(6), None), level).is_ok());
}

#[test]
fn a_soft_taint_costs_a_little_and_rules_nothing_out() {
    let mut fixture = TestCluster::default();
    let soft: NodeRow<'_> = ("n4", &[], &[("spot", "", TaintEffect::PreferNoSchedule)]);
    assert_eq!(fixture.accepts(&SpecInput::default(), soft), Ok(()));
    assert!((fixture.soft(&SpecInput::default(), soft) + 0.15).abs() < 1e-9);
    assert!(fixture.soft(&tolerating("spot", TolerationOp::Exists, None), soft).abs() < 1e-9);
    assert!(fixture.soft(&SpecInput::default(), TAINTED).abs() < 1e-9);
}

#[test]
fn preferences_score_by_the_share_of_their_weight() {
    let mut fixture = TestCluster::default();
    let wish = |weight, key: &str| NodePreference { weight, term: term(key, RequirementOp::Exists) };
    let spec =
        SpecInput { node_preferences: vec![wish(30, "gpu"), wish(10, "zone")], ..SpecInput::default() };
    assert!((fixture.soft(&spec, GPU_NODE) - 0.225).abs() < 1e-9);
    assert!(fixture.soft(&spec, TAINTED).abs() < 1e-9);
}

#[test]
fn specifications_with_equal_node_requirements_share_a_class() {
    let mut fixture = TestCluster::default();
    let mut one = tolerating("team", TolerationOp::Exists, None);
    one.tolerations.push(Toleration { key: "spot".into(), op: TolerationOp::Exists, effect: None });
    let mut other = one.clone();
    other.tolerations.reverse();
    other.request = vec![("cpu".into(), 1000)];
    let class = fixture.classes.resolve(&one, &mut fixture.names);
    assert_eq!(fixture.classes.resolve(&other, &mut fixture.names), class);
    assert_ne!(fixture.classes.resolve(&SpecInput::default(), &mut fixture.names), class);
}
