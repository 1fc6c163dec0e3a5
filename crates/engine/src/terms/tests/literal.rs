//! Compares the counters with a reference that visits every pod.

use super::*;

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.requirements.iter().all(|(key, op)| {
        let value = labels.iter().find(|(k, _)| k == key).map(|(_, v)| v);
        match op {
            SelectorOp::In(values) => value.is_some_and(|v| values.contains(v)),
            SelectorOp::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            SelectorOp::Exists => value.is_some(),
            SelectorOp::DoesNotExist => value.is_none(),
        }
    })
}

fn matches(term: &AffinityTerm, pod: &PodSpec) -> bool {
    term.namespaces.as_ref().is_none_or(|n| n.contains(&pod.namespace))
        && term.selector.as_ref().is_some_and(|s| selects(s, &pod.labels))
}

fn value<'a>(labels: &'a Labels, key: &str) -> Option<&'a String> {
    labels.iter().find(|(k, _)| k == key).map(|(_, v)| v)
}

fn same_domain(key: &str, a: &Labels, b: &Labels) -> bool {
    value(a, key).is_some() && value(a, key) == value(b, key)
}

impl TestCluster {
    fn literal_filter(&self, pod: &PodSpec, node: usize) -> Result<(), NodeRejection> {
        let labels = &self.nodes[node];
        let terms = &pod.spec.affinity;
        let matches_all = |p: &PodSpec| terms.iter().all(|t| matches(t, p));
        if terms.iter().any(|t| value(labels, &t.topology_key).is_none()) {
            return Err(NodeRejection::PodAffinity);
        }
        let company = terms.iter().all(|t| {
            self.pods
                .iter()
                .any(|p| matches_all(&p.pod) && same_domain(&t.topology_key, labels, &self.nodes[p.node]))
        });
        let anyone = self.pods.iter().any(|p| {
            matches_all(&p.pod) && terms.iter().any(|t| value(&self.nodes[p.node], &t.topology_key).is_some())
        });
        if !(company || !anyone && matches_all(pod)) {
            return Err(NodeRejection::PodAffinity);
        }
        let near = |t: &AffinityTerm, p: &PodOn| same_domain(&t.topology_key, labels, &self.nodes[p.node]);
        if self.pods.iter().any(|p| pod.spec.anti_affinity.iter().any(|t| matches(t, &p.pod) && near(t, p))) {
            return Err(NodeRejection::PodAntiAffinity);
        }
        if self.pods.iter().any(|p| p.pod.spec.anti_affinity.iter().any(|t| matches(t, pod) && near(t, p))) {
            return Err(NodeRejection::ExistingAntiAffinity);
        }
        Ok(())
    }

    fn literal_score(&self, pod: &PodSpec, node: usize) -> i64 {
        let near = |t: &AffinityTerm, p: &PodOn| {
            same_domain(&t.topology_key, &self.nodes[node], &self.nodes[p.node])
        };
        let mut sum = 0;
        for p in &self.pods {
            for w in &pod.spec.preferred_affinity {
                sum += i64::from(w.weight) * i64::from(matches(&w.term, &p.pod) && near(&w.term, p));
            }
            for w in &p.pod.spec.preferred_affinity {
                sum += i64::from(w.weight) * i64::from(matches(&w.term, pod) && near(&w.term, p));
            }
        }
        sum
    }

    fn literal_spread(&self, pod: &PodSpec, eligible: &[(bool, bool)], node: usize) -> bool {
        let hard: Vec<&SpreadConstraint> = pod.spec.spread.iter().filter(|s| s.hard).collect();
        hard.iter().all(|c| {
            let Some(here) = value(&self.nodes[node], &c.topology_key) else { return false };
            let mut domains: std::collections::BTreeMap<&String, i64> = std::collections::BTreeMap::new();
            for (n, labels) in self.nodes.iter().enumerate() {
                let usable = (eligible[n].0 || !c.honor_affinity) && (eligible[n].1 || !c.honor_taints);
                if !usable || hard.iter().any(|other| value(labels, &other.topology_key).is_none()) {
                    continue;
                }
                let counts = |p: &&PodOn| {
                    p.node == n
                        && p.presence == Presence::Active
                        && p.pod.namespace == c.namespace
                        && !c.selector.requirements.is_empty()
                        && selects(&c.selector, &p.pod.labels)
                };
                let key = value(labels, &c.topology_key).expect("checked above");
                *domains.entry(key).or_default() += self.pods.iter().filter(counts).count() as i64;
            }
            let few = domains.len() < c.min_domains.unwrap_or(1) as usize;
            let smallest = if few { 0 } else { domains.values().copied().min().unwrap_or(0) };
            let own = i64::from(selects(&c.selector, &pod.labels));
            domains.get(here).copied().unwrap_or(0) + own - smallest <= i64::from(c.max_skew)
        })
    }
}

fn any_labels() -> impl Strategy<Value = Labels> {
    (prop::option::of(0..3u8), prop::option::of(0..2u8)).prop_map(|(x, y)| {
        let x = x.map(|v| ("x".to_owned(), v.to_string()));
        let y = y.map(|v| ("y".to_owned(), v.to_string()));
        x.into_iter().chain(y).collect()
    })
}

fn any_selector() -> impl Strategy<Value = LabelSelector> {
    let values = prop::collection::vec((0..3u8).prop_map(|v| v.to_string()), 1..3);
    let op = (0..4u8, values).prop_map(|(kind, values)| match kind {
        0 => SelectorOp::NotIn(values),
        1 => SelectorOp::Exists,
        2 => SelectorOp::DoesNotExist,
        _ => SelectorOp::In(values),
    });
    prop::collection::vec((prop_oneof![Just("x".to_owned()), Just("y".to_owned())], op), 0..3)
        .prop_map(|requirements| LabelSelector { requirements })
}

fn any_namespace() -> impl Strategy<Value = String> {
    prop_oneof![Just("a".to_owned()), Just("b".to_owned())]
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![Just("zone".to_owned()), Just("host".to_owned())]
}

fn any_term() -> impl Strategy<Value = AffinityTerm> {
    let namespaces = prop::option::of(prop::collection::vec(any_namespace(), 1..3));
    (prop::option::weighted(0.9, any_selector()), namespaces, any_key())
        .prop_map(|(selector, namespaces, topology_key)| AffinityTerm { selector, namespaces, topology_key })
}

fn any_pod() -> impl Strategy<Value = PodSpec> {
    let spread =
        (1..3i32, any_key(), any::<bool>(), any_selector(), prop::option::of(1..4u32), any::<(bool, bool)>());
    let spread = prop::collection::vec(spread, 0..3);
    let few = || prop::collection::vec(any_term(), 0..3);
    let preferred = prop::collection::vec((-9..9i32, any_term()), 0..3);
    (any_namespace(), any_labels(), few(), few(), preferred, spread).prop_map(
        |(namespace, labels, affinity, anti_affinity, preferred, spread)| {
            let spread =
                spread.into_iter().map(|(max_skew, topology_key, hard, selector, min_domains, honor)| {
                    SpreadConstraint {
                        max_skew,
                        topology_key,
                        hard,
                        selector,
                        namespace: namespace.clone(),
                        min_domains,
                        honor_affinity: honor.0,
                        honor_taints: honor.1,
                    }
                });
            let spread = spread.collect();
            let preferred_affinity =
                preferred.into_iter().map(|(weight, term)| WeightedTerm { weight, term }).collect();
            let spec =
                SpecInput { affinity, anti_affinity, preferred_affinity, spread, ..SpecInput::default() };
            PodSpec { namespace, labels, spec }
        },
    )
}

/// Place a pod on a node, or take one away.
#[derive(Clone, Debug)]
enum Move {
    Place(usize, usize, Presence),
    Unplace(usize),
    Count,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (0..6usize, 0..4usize, any::<bool>()).prop_map(|(pod, node, leaves)| {
            Move::Place(pod, node, if leaves { Presence::Releasing } else { Presence::Active })
        }),
        2 => (0..64usize).prop_map(Move::Unplace),
        1 => Just(Move::Count),
    ]
}

fn nodes() -> TestCluster {
    TestCluster::new(&[
        &[("host", "h0"), ("zone", "a")],
        &[("host", "h1"), ("zone", "a")],
        &[("host", "h2"), ("zone", "b")],
        &[("zone", "b")],
    ])
}

fn play(fixture: &mut TestCluster, pods: &[PodSpec], moves: &[Move]) {
    for step in moves {
        match step {
            Move::Place(pod, node, presence) => {
                fixture.place_as(&pods[pod % pods.len()], *node, *presence);
            }
            Move::Unplace(at) if !fixture.pods.is_empty() => fixture.unplace(at % fixture.pods.len()),
            Move::Unplace(_) => {}
            Move::Count => fixture.count_new(),
        }
    }
}

proptest! {
    #[test]
    fn counters_equal_a_recount_after_any_moves(
        pods in prop::collection::vec(any_pod(), 1..6),
        moves in prop::collection::vec(any_move(), 0..40),
    ) {
        let mut fixture = nodes();
        play(&mut fixture, &pods, &moves);
        fixture.count_new();
        let kept = fixture.terms.counters.clone();
        let placed = fixture.on_nodes();
        let resolved = fixture.resolved.clone();
        fixture.terms.recount(placed.iter().map(|p| as_placed(p, &resolved)));
        prop_assert_eq!(&kept, &fixture.terms.counters);
        while !fixture.pods.is_empty() {
            fixture.unplace(0);
        }
        let left = fixture.terms.counters.clone();
        fixture.terms.recount(std::iter::empty());
        prop_assert_eq!(left, fixture.terms.counters);
    }

    #[test]
    fn counters_answer_as_a_walk_over_all_pods_does(
        pods in prop::collection::vec(any_pod(), 1..6),
        moves in prop::collection::vec(any_move(), 0..24),
        eligible in prop::array::uniform4(any::<(bool, bool)>()),
    ) {
        let mut fixture = nodes();
        play(&mut fixture, &pods, &moves);
        for pod in &pods {
            let (set, refs) = fixture.resolve(pod);
            fixture.count_new();
            let state = fixture.spread(pod, &eligible);
            for node in 0..fixture.nodes.len() {
                let filter = fixture.filter(pod, node);
                prop_assert_eq!(&filter, &fixture.literal_filter(pod, node));
                prop_assert!(filter.is_ok() || fixture.terms.affects(set, &refs));
                let score = fixture.score(pod, node);
                prop_assert_eq!(score, fixture.literal_score(pod, node));
                prop_assert!(score == 0 || fixture.terms.scores(set, &refs));
                let allowed = state.allows(&fixture.resolved[node]).is_ok();
                prop_assert_eq!(allowed, fixture.literal_spread(pod, &eligible, node));
                prop_assert!((0.0..=0.3).contains(&state.soft_score(&fixture.resolved[node])));
            }
        }
    }
}
