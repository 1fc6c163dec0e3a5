//! Tests of signatures and of comparisons with failed groups.

use super::*;
use crate::delta::Delta;
use crate::input::{
    self, GpuRequest, GroupInput, Key, PodInput, PodPhase, PodVolume, TopologyConstraint, VolumeClaimInput,
};
use crate::test_cluster::{TestCluster, sub_group};

/// Whether two groups of two pods each have equal signatures after the second one was edited.
fn have_equal_signatures(group: impl Fn(&mut GroupInput), pod: impl Fn(&mut PodInput)) -> bool {
    let mut fixture = TestCluster::default();
    for bytes in [10, 20] {
        let key = Key::new("test", format!("claim-{bytes}"));
        let claim = VolumeClaimInput { key, class: "fast".to_owned(), bytes, ..VolumeClaimInput::default() };
        fixture.cluster.apply(Delta::VolumeClaim(claim));
    }
    for name in ["left", "right"] {
        fixture.group(name, |g| {
            if name == "right" {
                group(g);
            }
        });
        for i in 0..2 {
            fixture.pod(&format!("{name}-{i}"), name, |p| {
                p.volumes = vec![PodVolume { claim: "claim-10".to_owned() }];
                if name == "right" {
                    pod(p);
                }
            });
        }
    }
    fixture.refresh();
    let mut signatures = Signatures::default();
    let left = signatures.of_group(&fixture.cluster, fixture.find("left"));
    left == signatures.of_group(&fixture.cluster, fixture.find("right"))
}

fn same(_: &mut GroupInput) {}

#[test]
fn signature_ignores_amounts_names_and_minimums() {
    assert!(have_equal_signatures(same, |_| {}));
    assert!(have_equal_signatures(same, |pod| pod.spec.request = vec![(input::CPU.to_owned(), 5000)]));
    assert!(have_equal_signatures(same, |pod| pod.spec.gpu = GpuRequest::Memory { mib: 500, devices: 1 }));
    assert!(have_equal_signatures(|group| group.min_member = Some(2), |_| {}));
    assert!(have_equal_signatures(
        |group| group.sub_groups = vec![sub_group("workers", 2)],
        |pod| pod.sub_group = Some("workers".to_owned())
    ));
}

#[test]
fn signature_contains_scheduling_constraints() {
    assert!(!have_equal_signatures(same, |pod| pod.spec.node_selector =
        vec![("zone".to_owned(), "a".to_owned())]));
    assert!(!have_equal_signatures(same, |pod| pod.spec.priority_class = ("high".to_owned(), 100)));
    assert!(!have_equal_signatures(same, |pod| pod.spec.spread = vec![SpreadConstraint::default()]));
    assert!(!have_equal_signatures(same, |pod| pod.spec.anti_affinity = vec![AffinityTerm::default()]));
    assert!(!have_equal_signatures(same, |pod| pod.spec.preferred_affinity = vec![WeightedTerm::default()]));
    let port = HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: 80 };
    assert!(!have_equal_signatures(same, |pod| pod.spec.ports = vec![port.clone()]));
}

#[test]
fn signature_contains_class_size_and_phase_of_volume_claims() {
    let with = |claims: &'static [&str]| {
        move |pod: &mut PodInput| {
            pod.volumes = claims.iter().map(|claim| PodVolume { claim: (*claim).to_owned() }).collect();
        }
    };
    assert!(!have_equal_signatures(same, with(&["claim-20"])), "another size");
    assert!(!have_equal_signatures(same, with(&["absent"])), "a missing claim");
    assert!(!have_equal_signatures(same, with(&[])), "no claim");
    assert!(!have_equal_signatures(same, with(&["claim-10", "claim-20"])), "more claims");
}

#[test]
fn signature_contains_topology_constraints_with_their_level() {
    let rack = TopologyConstraint {
        topology: "net".to_owned(),
        required: Some("rack".to_owned()),
        ..TopologyConstraint::default()
    };
    let on_root = |group: &mut GroupInput| group.topology = Some(rack.clone());
    assert!(!have_equal_signatures(on_root, |_| {}));
    let in_set = |pod: &mut PodInput| pod.sub_group = Some("workers".to_owned());
    let on_set = |group: &mut GroupInput| {
        group.sub_groups = vec![sub_group("workers", 2)];
        group.sub_groups[0].topology = Some(rack.clone());
    };
    assert!(!have_equal_signatures(on_set, in_set));
}

#[test]
fn signature_counts_only_unplaced_pods() {
    assert!(!have_equal_signatures(same, |pod| if pod.uid == "right-0" {
        pod.phase = PodPhase::Running;
    }));
    assert!(have_equal_signatures(same, |pod| if pod.uid == "right-0" {
        pod.phase = PodPhase::Failed;
    }));
}

/// A queue of groups with the given requests per pod: millicores and GPUs.
fn groups_requesting(groups: &[(&str, &[(i64, GpuRequest)])]) -> TestCluster {
    let mut fixture = TestCluster::default();
    for (name, pods) in groups {
        fixture.group(name, |group| group.queue = "team".to_owned());
        for (i, (cpu, gpu)) in pods.iter().enumerate() {
            fixture.pod(&format!("{name}-{i}"), name, |pod| {
                pod.spec.request = vec![(input::CPU.to_owned(), *cpu)];
                pod.spec.gpu = *gpu;
            });
        }
    }
    fixture.queue("team");
    fixture.queue("other");
    fixture.refresh();
    fixture
}

fn cpu(millicores: i64) -> (i64, GpuRequest) {
    (millicores, GpuRequest::None)
}

/// Compares `asked` after the search for `failed` failed, in order.
fn compare_after(fixture: &TestCluster, failed: &[&str], asked: &str) -> Comparison {
    let mut signatures = Signatures::default();
    let mut representatives = Representatives::new(Scope::Queue);
    for name in failed {
        representatives.note(&fixture.cluster, &mut signatures, fixture.find(name), 1);
    }
    representatives.compare(&fixture.cluster, &mut signatures, fixture.find(asked))
}

#[test]
fn search_is_skipped_unless_the_group_is_easier_than_a_failed_one() {
    let fixture = groups_requesting(&[
        ("even", &[cpu(100), cpu(100)]),
        ("equal", &[cpu(100), cpu(100)]),
        ("larger", &[cpu(100), cpu(200)]),
        ("smaller", &[cpu(50), cpu(100)]),
        ("mixed", &[cpu(300), cpu(50)]),
    ]);
    let even = fixture.find("even");
    assert_eq!(compare_after(&fixture, &[], "equal"), Comparison::NoRepresentative);
    assert_eq!(compare_after(&fixture, &["even"], "equal"), Comparison::NotEasier(even));
    assert_eq!(compare_after(&fixture, &["even"], "larger"), Comparison::NotEasier(even));
    assert_eq!(compare_after(&fixture, &["even"], "smaller"), Comparison::Easier(even));
    assert_eq!(compare_after(&fixture, &["even"], "mixed"), Comparison::Easier(even));
    assert!(compare_after(&fixture, &["even"], "larger").may_skip());
    assert!(!compare_after(&fixture, &["even"], "smaller").may_skip());
}

#[test]
fn smallest_failed_group_represents_its_signature() {
    let fixture = groups_requesting(&[
        ("large", &[cpu(200), cpu(200)]),
        ("small", &[cpu(100), cpu(100)]),
        ("mixed", &[cpu(50), cpu(900)]),
        ("asked", &[cpu(150), cpu(150)]),
    ]);
    let small = fixture.find("small");
    assert_eq!(compare_after(&fixture, &["large", "small"], "asked"), Comparison::NotEasier(small));
    assert_eq!(compare_after(&fixture, &["small", "large"], "asked"), Comparison::NotEasier(small));
    assert_eq!(
        compare_after(&fixture, &["small", "mixed"], "asked"),
        Comparison::NotEasier(small),
        "incomparable"
    );
}

#[test]
fn gpu_fractions_count_by_portion_and_memory_requests_do_not_count() {
    let part = |hundredths| (0, GpuRequest::Fraction { hundredths, devices: 1 });
    let memory = |mib| (0, GpuRequest::Memory { mib, devices: 1 });
    let fixture = groups_requesting(&[
        ("half", &[part(50)]),
        ("quarter", &[part(25)]),
        ("large", &[memory(2000)]),
        ("small", &[memory(1000)]),
    ]);
    assert_eq!(compare_after(&fixture, &["half"], "quarter"), Comparison::Easier(fixture.find("half")));
    assert_eq!(compare_after(&fixture, &["quarter"], "half"), Comparison::NotEasier(fixture.find("quarter")));
    assert_eq!(compare_after(&fixture, &["large"], "small"), Comparison::NotEasier(fixture.find("large")));
}

#[test]
fn failures_represent_one_queue_or_the_whole_cluster() {
    let mut fixture = groups_requesting(&[("here", &[cpu(100)]), ("there", &[cpu(100)])]);
    fixture.group("there", |group| group.queue = "other".to_owned());
    fixture.refresh();
    let mut signatures = Signatures::default();
    for (scope, skipped) in [(Scope::Queue, false), (Scope::Cluster, true)] {
        let mut representatives = Representatives::new(scope);
        representatives.note(&fixture.cluster, &mut signatures, fixture.find("here"), 1);
        let comparison = representatives.compare(&fixture.cluster, &mut signatures, fixture.find("there"));
        assert_eq!(comparison.may_skip(), skipped);
    }
}
