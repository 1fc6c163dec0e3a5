//! What makes groups look alike, and what a failed search says about the others.

use super::*;
use crate::delta::Delta;
use crate::input::{
    self, GpuRequest, GroupInput, Key, PodInput, PodPhase, PodVolume, TopologyConstraint, VolumeClaimInput,
};
use crate::small_world::{World, sub_group};

/// Two groups of two pods each, the second one's edited; whether they look alike.
fn alike(group: impl Fn(&mut GroupInput), pod: impl Fn(&mut PodInput)) -> bool {
    let mut world = World::default();
    for bytes in [10, 20] {
        let key = Key::new("test", format!("claim-{bytes}"));
        let claim = VolumeClaimInput { key, class: "fast".to_owned(), bytes, ..VolumeClaimInput::default() };
        world.cluster.apply(Delta::VolumeClaim(claim));
    }
    for name in ["left", "right"] {
        world.group(name, |g| {
            if name == "right" {
                group(g);
            }
        });
        for i in 0..2 {
            world.pod(&format!("{name}-{i}"), name, |p| {
                p.volumes = vec![PodVolume { claim: "claim-10".to_owned() }];
                if name == "right" {
                    pod(p);
                }
            });
        }
    }
    world.settle();
    let mut signatures = Signatures::default();
    let left = signatures.of_group(&world.cluster, world.find("left"));
    left == signatures.of_group(&world.cluster, world.find("right"))
}

fn same(_: &mut GroupInput) {}

#[test]
fn amounts_names_and_minimums_do_not_tell_groups_apart() {
    assert!(alike(same, |_| {}));
    assert!(alike(same, |pod| pod.spec.request = vec![(input::CPU.to_owned(), 5000)]));
    assert!(alike(same, |pod| pod.spec.gpu = GpuRequest::Memory { mib: 500, devices: 1 }));
    assert!(alike(|group| group.min_member = Some(2), |_| {}));
    assert!(alike(
        |group| group.sub_groups = vec![sub_group("workers", 2)],
        |pod| pod.sub_group = Some("workers".to_owned())
    ));
}

#[test]
fn what_pods_ask_of_their_surroundings_tells_groups_apart() {
    assert!(!alike(same, |pod| pod.spec.node_selector = vec![("zone".to_owned(), "a".to_owned())]));
    assert!(!alike(same, |pod| pod.spec.priority_class = ("high".to_owned(), 100)));
    assert!(!alike(same, |pod| pod.spec.spread = vec![SpreadConstraint::default()]));
    assert!(!alike(same, |pod| pod.spec.anti_affinity = vec![AffinityTerm::default()]));
    assert!(!alike(same, |pod| pod.spec.preferred_affinity = vec![WeightedTerm::default()]));
    let port = HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: 80 };
    assert!(!alike(same, |pod| pod.spec.ports = vec![port.clone()]));
}

#[test]
fn volume_claims_count_by_what_they_are() {
    let with = |claims: &'static [&str]| {
        move |pod: &mut PodInput| {
            pod.volumes = claims.iter().map(|claim| PodVolume { claim: (*claim).to_owned() }).collect();
        }
    };
    assert!(!alike(same, with(&["claim-20"])), "another size");
    assert!(!alike(same, with(&["absent"])), "a claim that is not there");
    assert!(!alike(same, with(&[])), "no claim");
    assert!(!alike(same, with(&["claim-10", "claim-20"])), "more claims");
}

#[test]
fn topology_constraints_tell_groups_apart_by_where_they_are() {
    let rack = TopologyConstraint {
        topology: "net".to_owned(),
        required: Some("rack".to_owned()),
        ..TopologyConstraint::default()
    };
    let on_root = |group: &mut GroupInput| group.topology = Some(rack.clone());
    assert!(!alike(on_root, |_| {}));
    let in_set = |pod: &mut PodInput| pod.sub_group = Some("workers".to_owned());
    let on_set = |group: &mut GroupInput| {
        group.sub_groups = vec![sub_group("workers", 2)];
        group.sub_groups[0].topology = Some(rack.clone());
    };
    assert!(!alike(on_set, in_set));
}

#[test]
fn only_pods_without_a_place_count() {
    assert!(!alike(same, |pod| if pod.uid == "right-0" {
        pod.phase = PodPhase::Running;
    }));
    assert!(alike(same, |pod| if pod.uid == "right-0" {
        pod.phase = PodPhase::Failed;
    }));
}

/// Groups named by what their pods ask for, in order: millicores, or (millicores, GPU request).
fn asking(groups: &[(&str, &[(i64, GpuRequest)])]) -> World {
    let mut world = World::default();
    for (name, pods) in groups {
        world.group(name, |group| group.queue = "team".to_owned());
        for (i, (cpu, gpu)) in pods.iter().enumerate() {
            world.pod(&format!("{name}-{i}"), name, |pod| {
                pod.spec.request = vec![(input::CPU.to_owned(), *cpu)];
                pod.spec.gpu = *gpu;
            });
        }
    }
    world.queue("team");
    world.queue("other");
    world.settle();
    world
}

fn cpu(millicores: i64) -> (i64, GpuRequest) {
    (millicores, GpuRequest::None)
}

/// What the failure of `failed`, in order, says about `asked`.
fn prospect(world: &World, failed: &[&str], asked: &str) -> Comparison {
    let mut signatures = Signatures::default();
    let mut representatives = Representatives::new(Scope::Queue);
    for name in failed {
        representatives.note(&world.cluster, &mut signatures, world.find(name), 1);
    }
    representatives.compare(&world.cluster, &mut signatures, world.find(asked))
}

#[test]
fn a_group_is_skipped_unless_it_is_easier_than_one_that_failed() {
    let world = asking(&[
        ("even", &[cpu(100), cpu(100)]),
        ("equal", &[cpu(100), cpu(100)]),
        ("larger", &[cpu(100), cpu(200)]),
        ("smaller", &[cpu(50), cpu(100)]),
        ("mixed", &[cpu(300), cpu(50)]),
    ]);
    let even = world.find("even");
    assert_eq!(prospect(&world, &[], "equal"), Comparison::NoRepresentative);
    assert_eq!(prospect(&world, &["even"], "equal"), Comparison::NotEasier(even));
    assert_eq!(prospect(&world, &["even"], "larger"), Comparison::NotEasier(even));
    assert_eq!(prospect(&world, &["even"], "smaller"), Comparison::Easier(even));
    assert_eq!(prospect(&world, &["even"], "mixed"), Comparison::Easier(even));
    assert!(prospect(&world, &["even"], "larger").may_skip());
    assert!(!prospect(&world, &["even"], "smaller").may_skip());
}

#[test]
fn the_smallest_failed_group_speaks_for_its_like() {
    let world = asking(&[
        ("large", &[cpu(200), cpu(200)]),
        ("small", &[cpu(100), cpu(100)]),
        ("mixed", &[cpu(50), cpu(900)]),
        ("asked", &[cpu(150), cpu(150)]),
    ]);
    let small = world.find("small");
    assert_eq!(prospect(&world, &["large", "small"], "asked"), Comparison::NotEasier(small));
    assert_eq!(prospect(&world, &["small", "large"], "asked"), Comparison::NotEasier(small));
    assert_eq!(prospect(&world, &["small", "mixed"], "asked"), Comparison::NotEasier(small), "incomparable");
}

#[test]
fn shared_gpus_count_by_portion_and_memory_requests_do_not_count() {
    let part = |hundredths| (0, GpuRequest::Fraction { hundredths, devices: 1 });
    let memory = |mib| (0, GpuRequest::Memory { mib, devices: 1 });
    let world = asking(&[
        ("half", &[part(50)]),
        ("quarter", &[part(25)]),
        ("large", &[memory(2000)]),
        ("small", &[memory(1000)]),
    ]);
    assert_eq!(prospect(&world, &["half"], "quarter"), Comparison::Easier(world.find("half")));
    assert_eq!(prospect(&world, &["quarter"], "half"), Comparison::NotEasier(world.find("quarter")));
    assert_eq!(prospect(&world, &["large"], "small"), Comparison::NotEasier(world.find("large")));
}

#[test]
fn failures_speak_for_one_queue_or_for_all() {
    let mut world = asking(&[("here", &[cpu(100)]), ("there", &[cpu(100)])]);
    world.group("there", |group| group.queue = "other".to_owned());
    world.settle();
    let mut signatures = Signatures::default();
    for (scope, skipped) in [(Scope::Queue, false), (Scope::Cluster, true)] {
        let mut representatives = Representatives::new(scope);
        representatives.note(&world.cluster, &mut signatures, world.find("here"), 1);
        let prospect = representatives.compare(&world.cluster, &mut signatures, world.find("there"));
        assert_eq!(prospect.may_skip(), skipped);
    }
}
