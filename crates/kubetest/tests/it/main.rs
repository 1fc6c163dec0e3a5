//! Checks that the suite's files and its recordings match; needs no server.

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
fn recordings_have_exactly_the_steps_of_their_features() {
    for feature in features(&folder()).unwrap() {
        let mut steps = Vec::new();
        names(&feature.steps, &mut steps);
        let entries = recorded(&folder(), &feature.name).unwrap();
        let recorded: Vec<String> = entries.into_iter().map(|entry| entry.step).collect();
        assert_eq!(recorded, steps, "{}; hint: `cargo xtask api-suite --record`", feature.name);
    }
}

#[test]
fn every_recorded_step_has_a_response() {
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
fn accepted_differences_name_existing_features() {
    let features: Vec<Feature> = features(&folder()).unwrap();
    for listed in Differences::read(&folder()).unwrap().differences {
        for name in listed.features.iter().filter(|name| !name.contains('*')) {
            assert!(features.iter().any(|feature| feature.name == *name), "{}: {name}", listed.id);
        }
    }
}

#[test]
fn recorded_merge_facts_include_containers() {
    let facts = openapi::recorded(&folder()).unwrap();
    let containers = &facts["io.k8s.api.core.v1.PodSpec"]["containers"];
    assert_eq!(containers.merge_key.as_deref(), Some("name"));
    assert_eq!(containers.list_type.as_deref(), Some("map"));
}
