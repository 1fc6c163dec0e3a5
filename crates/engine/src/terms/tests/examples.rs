//! Each rule by example.

use super::*;

const ZONES: [&[(&str, &str)]; 3] =
    [&[("host", "h0"), ("zone", "a")], &[("host", "h1"), ("zone", "a")], &[("host", "h2"), ("zone", "b")]];

#[test]
fn pods_without_terms_are_not_filtered() {
    let mut fixture = TestCluster::new(&ZONES);
    fixture.place(&pod(&[("app", "web")]), 0);
    let (set, refs) = fixture.resolve(&pod(&[("app", "web")]));
    assert!(refs.is_empty());
    assert!(!fixture.terms.affects(set, &refs));
    assert!(!fixture.terms.scores(set, &refs));
    assert_eq!(fixture.terms.filter(set, &refs, &fixture.resolved[0]), Ok(()));
}

#[test]
fn anti_affinity_keeps_a_pod_out_of_the_domain_of_matching_pods() {
    let mut fixture = TestCluster::new(&ZONES);
    fixture.place(&pod(&[("app", "web")]), 0);
    let shy = anti(pod(&[]), near("zone", "app", "web"));
    assert_eq!(fixture.filter(&shy, 1), Err(NodeRejection::PodAntiAffinity));
    assert_eq!(fixture.fitting(&shy), [2]);
}

#[test]
fn anti_affinity_of_a_placed_pod_keeps_matching_pods_out_of_its_domain() {
    let mut fixture = TestCluster::new(&ZONES);
    fixture.place(&anti(pod(&[]), near("zone", "app", "web")), 0);
    let web = pod(&[("app", "web")]);
    assert_eq!(fixture.filter(&web, 1), Err(NodeRejection::ExistingAntiAffinity));
    assert_eq!(fixture.fitting(&web), [2]);
    let (set, refs) = fixture.resolve(&web);
    assert!(fixture.terms.affects(set, &refs));
    assert_eq!(fixture.fitting(&pod(&[("app", "db")])), [0, 1, 2]);
}

#[test]
fn self_anti_affinity_places_one_pod_per_host() {
    let mut fixture = TestCluster::new(&ZONES);
    let job = anti(pod(&[("job", "j")]), near("host", "job", "j"));
    for expected in [vec![0, 1, 2], vec![1, 2], vec![2], vec![]] {
        let fitting = fixture.fitting(&job);
        assert_eq!(fitting, expected);
        if let Some(&node) = fitting.first() {
            fixture.place(&job, node);
        }
    }
}

#[test]
fn anti_affinity_ignores_nodes_without_the_label() {
    let mut fixture = TestCluster::new(&[&[("zone", "a")], &[]]);
    let shy = anti(pod(&[("app", "web")]), near("zone", "app", "web"));
    fixture.place(&shy, 0);
    fixture.place(&shy, 1);
    assert_eq!(fixture.fitting(&shy), [1]);
}

#[test]
fn affinity_requires_matching_pods_in_the_domain() {
    let mut fixture = TestCluster::new(&ZONES);
    let fond = affinity(pod(&[]), near("zone", "app", "web"));
    assert_eq!(fixture.filter(&fond, 0), Err(NodeRejection::PodAffinity));
    fixture.place(&pod(&[("app", "web")]), 0);
    assert_eq!(fixture.fitting(&fond), [0, 1]);
}

#[test]
fn first_pod_with_self_affinity_fits_any_node_with_the_label() {
    let mut fixture = TestCluster::new(&[&[("zone", "a")], &[("zone", "b")], &[]]);
    let kind = affinity(pod(&[("app", "web")]), near("zone", "app", "web"));
    assert_eq!(fixture.fitting(&kind), [0, 1]);
    fixture.place(&kind, 1);
    assert_eq!(fixture.fitting(&kind), [1]);
}

#[test]
fn a_match_on_a_node_without_the_label_leaves_the_first_pod_exception_open() {
    let mut fixture = TestCluster::new(&[&[("zone", "a")], &[]]);
    let kind = affinity(pod(&[("app", "web")]), near("zone", "app", "web"));
    fixture.place(&kind, 1);
    assert_eq!(fixture.fitting(&kind), [0]);
}

#[test]
fn a_pod_counts_for_affinity_only_if_it_matches_every_term() {
    let mut fixture = TestCluster::new(&ZONES);
    let fond = affinity(affinity(pod(&[]), near("zone", "app", "web")), near("host", "tier", "front"));
    fixture.place(&pod(&[("app", "web")]), 0);
    fixture.place(&pod(&[("tier", "front")]), 0);
    assert_eq!(fixture.fitting(&fond), [] as [usize; 0]);
    fixture.place(&pod(&[("app", "web"), ("tier", "front")]), 1);
    assert_eq!(fixture.fitting(&fond), [1]);
}

#[test]
fn terms_match_their_namespaces_only() {
    let mut fixture = TestCluster::new(&ZONES);
    let mut web = pod(&[("app", "web")]);
    web.namespace = "other".into();
    fixture.place(&web, 0);
    let shy = anti(pod(&[]), near("zone", "app", "web"));
    assert_eq!(fixture.fitting(&shy), [0, 1, 2]);
    let mut term = near("zone", "app", "web");
    term.namespaces = None;
    assert_eq!(fixture.fitting(&anti(pod(&[]), term)), [2]);
}

#[test]
fn a_term_without_a_selector_matches_nothing() {
    let mut fixture = TestCluster::new(&ZONES);
    fixture.place(&pod(&[("app", "web")]), 0);
    let mut term = near("zone", "app", "web");
    term.selector = None;
    assert_eq!(fixture.fitting(&anti(pod(&[]), term.clone())), [0, 1, 2]);
    assert_eq!(fixture.fitting(&affinity(pod(&[]), term)), [] as [usize; 0]);
}

#[test]
fn an_empty_selector_matches_every_pod_of_its_namespaces() {
    let mut fixture = TestCluster::new(&ZONES);
    let mut term = near("zone", "app", "web");
    term.selector = Some(LabelSelector::default());
    fixture.place(&pod(&[]), 0);
    assert_eq!(fixture.fitting(&anti(pod(&[]), term)), [2]);
}

#[test]
fn preferences_of_both_sides_add_up() {
    let mut fixture = TestCluster::new(&ZONES);
    let web = pod(&[("app", "web")]);
    fixture.place(&web, 0);
    fixture.place(&web, 1);
    fixture.place(&preferred(pod(&[]), -7, near("host", "app", "db")), 1);
    let db = preferred(pod(&[("app", "db")]), 10, near("zone", "app", "web"));
    assert_eq!([0, 1, 2].map(|n| fixture.score(&db, n)), [20, 13, 0]);
    let (set, refs) = fixture.resolve(&db);
    assert!(fixture.terms.scores(set, &refs));
    assert!(!fixture.terms.affects(set, &refs));
}

#[test]
fn pods_that_came_before_a_term_are_counted_for_it() {
    let mut fixture = TestCluster::new(&ZONES);
    let first = fixture.place(&pod(&[("app", "web")]), 0);
    fixture.place(&pod(&[("app", "web")]), 2);
    let shy = anti(pod(&[]), near("host", "app", "web"));
    fixture.resolve(&shy);
    assert!(fixture.terms.has_uncounted());
    fixture.unplace(first);
    assert_eq!(fixture.fitting(&shy), [0, 1]);
    assert!(!fixture.terms.has_uncounted());
}

#[test]
fn a_term_that_no_placed_pod_matches_needs_no_counting() {
    let mut fixture = TestCluster::new(&ZONES);
    fixture.place(&pod(&[("app", "db")]), 0);
    fixture.resolve(&pod(&[("app", "web")]));
    fixture.resolve(&anti(pod(&[]), near("zone", "app", "web")));
    assert!(!fixture.terms.has_uncounted());
}

#[test]
fn hard_spread_keeps_the_skew() {
    let mut fixture = TestCluster::new(&ZONES);
    let web = spread(pod(&[("app", "web")]), evenly("zone", "app", "web"));
    assert_eq!(fixture.spread_allows(&web, &[]), [0, 1, 2]);
    fixture.place(&web, 0);
    assert_eq!(fixture.spread_allows(&web, &[]), [2]);
    fixture.place(&web, 2);
    assert_eq!(fixture.spread_allows(&web, &[]), [0, 1, 2]);
}

#[test]
fn a_pod_that_its_own_constraint_does_not_select_adds_nothing() {
    let mut fixture = TestCluster::new(&ZONES);
    let other = spread(pod(&[]), evenly("zone", "app", "web"));
    fixture.place(&pod(&[("app", "web")]), 0);
    assert_eq!(fixture.spread_allows(&other, &[]), [0, 1, 2]);
    fixture.place(&pod(&[("app", "web")]), 0);
    assert_eq!(fixture.spread_allows(&other, &[]), [2]);
}

#[test]
fn releasing_pods_count_for_affinity_but_not_for_spread() {
    let mut fixture = TestCluster::new(&ZONES);
    let web = spread(pod(&[("app", "web")]), evenly("zone", "app", "web"));
    fixture.place_as(&web, 0, Presence::Releasing);
    assert_eq!(fixture.spread_allows(&web, &[]), [0, 1, 2]);
    assert_eq!(fixture.fitting(&anti(pod(&[]), near("zone", "app", "web"))), [2]);
}

#[test]
fn too_few_domains_make_the_smallest_one_empty() {
    let mut fixture = TestCluster::new(&ZONES);
    let mut constraint = evenly("zone", "app", "web");
    constraint.min_domains = Some(3);
    let web = spread(pod(&[("app", "web")]), constraint);
    fixture.place(&web, 0);
    fixture.place(&web, 2);
    assert_eq!(fixture.spread_allows(&web, &[]), [] as [usize; 0]);
}

#[test]
fn nodes_that_the_pod_cannot_use_form_no_domain() {
    let mut fixture = TestCluster::new(&ZONES);
    let web = spread(pod(&[("app", "web")]), evenly("zone", "app", "web"));
    fixture.place(&web, 0);
    let zone_b_excluded = [(true, true), (true, true), (false, true)];
    assert_eq!(fixture.spread_allows(&web, &zone_b_excluded), [0, 1, 2]);
    let zone_b_tainted = [(true, true), (true, true), (true, false)];
    assert_eq!(fixture.spread_allows(&web, &zone_b_tainted), [2], "taints are not looked at by default");
    let mut honoring = evenly("zone", "app", "web");
    honoring.honor_taints = true;
    let honoring = spread(pod(&[("app", "web")]), honoring);
    assert_eq!(fixture.spread_allows(&honoring, &zone_b_tainted), [0, 1, 2]);
}

#[test]
fn a_node_without_the_key_is_refused_and_not_counted() {
    let mut fixture = TestCluster::new(&[&[("zone", "a")], &[("zone", "b")], &[]]);
    let web = spread(pod(&[("app", "web")]), evenly("zone", "app", "web"));
    fixture.place(&web, 2);
    assert_eq!(fixture.spread_allows(&web, &[]), [0, 1]);
}

#[test]
fn an_empty_spread_selector_counts_no_pods() {
    let mut fixture = TestCluster::new(&ZONES);
    let mut constraint = evenly("zone", "app", "web");
    constraint.selector = LabelSelector::default();
    let web = spread(pod(&[("app", "web")]), constraint);
    fixture.place(&web, 0);
    fixture.place(&web, 0);
    assert_eq!(fixture.spread_allows(&web, &[]), [0, 1, 2]);
}

#[test]
fn soft_spread_prefers_emptier_domains_and_rules_nothing_out() {
    let mut fixture = TestCluster::new(&ZONES);
    let mut constraint = evenly("zone", "app", "web");
    constraint.hard = false;
    let web = spread(pod(&[("app", "web")]), constraint);
    fixture.place(&web, 0);
    fixture.place(&web, 0);
    let state = fixture.spread(&web, &[]);
    assert_eq!(fixture.spread_allows(&web, &[]), [0, 1, 2]);
    let scores: Vec<f64> = fixture.resolved.iter().map(|labels| state.soft_score(labels)).collect();
    assert_eq!(scores, [0.0, 0.0, 0.3]);
}

#[test]
fn labels_and_terms_find_each_other_in_either_order() {
    for selector in [
        equals("app", "web"),
        LabelSelector { requirements: vec![("app".into(), SelectorOp::Exists)] },
        LabelSelector { requirements: vec![("app".into(), SelectorOp::NotIn(vec!["db".into()]))] },
        LabelSelector { requirements: vec![("no".into(), SelectorOp::DoesNotExist)] },
        LabelSelector::default(),
    ] {
        for namespaces in
            [None, Some(vec!["ns".to_owned()]), Some((0..40).map(|i| format!("n{i}")).collect())]
        {
            let term = AffinityTerm {
                selector: Some(selector.clone()),
                namespaces: namespaces.clone(),
                topology_key: "zone".into(),
            };
            let mut web = pod(&[("app", "web")]);
            web.namespace = namespaces.as_ref().map_or("any", |n| n.last().expect("not empty")).to_owned();
            let carrier = anti(pod(&[]), term);
            let mut labels_first = TestCluster::new(&ZONES);
            labels_first.resolve(&web);
            labels_first.place(&carrier, 0);
            let mut terms_first = TestCluster::new(&ZONES);
            terms_first.place(&carrier, 0);
            assert_eq!(labels_first.fitting(&web), [2], "{selector:?} {namespaces:?}");
            assert_eq!(terms_first.fitting(&web), [2], "{selector:?} {namespaces:?}");
        }
    }
}
