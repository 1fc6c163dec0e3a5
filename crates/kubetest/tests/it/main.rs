//! The suite's files and its recordings belong together, which needs no server to check.

use kai_kubetest::suite::compare::Differences;
use kai_kubetest::suite::{Feature, Step, features, openapi, recorded};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/api-suite")
}

fn names(steps: &[Step], all: &mut Vec<String>) {
    for step in steps {
        all.push(step.step.clone());
        names(&step.during, all);
    }
}

#[test]
fn every_step_is_recorded_and_nothing_else() {
    for feature in features(&folder()).unwrap() {
        let mut steps = Vec::new();
        names(&feature.steps, &mut steps);
        let entries = recorded(&folder(), &feature.name).unwrap();
        let recorded: Vec<String> = entries.into_iter().map(|entry| entry.step).collect();
        assert_eq!(recorded, steps, "{}; hint: `cargo xtask api-suite --record`", feature.name);
    }
}

#[test]
fn the_real_server_answered_every_step() {
    for feature in features(&folder()).unwrap() {
        for entry in recorded(&folder(), &feature.name).unwrap() {
            assert_ne!(entry.code, 0, "{}: {}: {:?}", feature.name, entry.step, entry.end);
        }
    }
}

#[test]
fn features_do_not_share_namespaces() {
    let mut seen: Vec<String> =
        features(&folder()).unwrap().into_iter().flat_map(|one| one.namespaces).collect();
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all);
}

#[test]
fn listed_differences_name_features_that_are_there() {
    let features: Vec<Feature> = features(&folder()).unwrap();
    for listed in Differences::read(&folder()).unwrap().differences {
        for name in listed.features.iter().filter(|name| !name.contains('*')) {
            assert!(features.iter().any(|feature| feature.name == *name), "{}: {name}", listed.id);
        }
    }
}

#[test]
fn the_recorded_facts_about_merging_know_containers() {
    let facts = openapi::recorded(&folder()).unwrap();
    let containers = &facts["io.k8s.api.core.v1.PodSpec"]["containers"];
    assert_eq!(containers.merge_key.as_deref(), Some("name"));
    assert_eq!(containers.list_type.as_deref(), Some("map"));
}
