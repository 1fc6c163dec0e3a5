//! The definitions in the chart are those generated from the types.

use kai_api::{crd_file_name, crd_yaml, crds, crds_yaml};
use std::{collections::BTreeSet, fs, path::PathBuf};

const HEADER: &str =
    "# Generated from the types in crates/api by `UPDATE=1 cargo test -p kai-api`; edits are lost.\n";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../charts/kai-scheduler/crds")
}

#[test]
fn chart_files_are_current() {
    let update = std::env::var_os("UPDATE").is_some();
    for crd in crds() {
        let path = folder().join(crd_file_name(&crd));
        let wanted = format!("{HEADER}---\n{}", crd_yaml(&crd));
        if update {
            fs::write(&path, &wanted).expect("the chart folder can be written");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == wanted, "`{}` is not current\nhint: UPDATE=1 cargo test -p kai-api", path.display());
    }
    let known: BTreeSet<_> = crds().iter().map(crd_file_name).collect();
    let kept: BTreeSet<_> = fs::read_dir(folder())
        .expect("the chart folder exists")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(kept, known, "the chart holds these definitions and no others");
}

#[test]
fn stream_holds_every_definition_in_order() {
    let stream = crds_yaml();
    let names: Vec<_> = stream.lines().filter_map(|line| line.strip_prefix("  name: ")).collect();
    let sorted = [
        "configs.kai.scheduler",
        "schedulingshards.kai.scheduler",
        "topologies.kai.scheduler",
        "bindrequests.scheduling.run.ai",
        "podgroups.scheduling.run.ai",
        "queues.scheduling.run.ai",
    ];
    assert_eq!(names, sorted);
    assert_eq!(stream.lines().filter(|line| *line == "---").count(), sorted.len());
}

#[test]
fn definitions_fit_into_the_annotation_of_a_client_side_apply() {
    for crd in crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 250 * 1024, "`{}` takes {size} bytes", crd.metadata.name.unwrap());
    }
}
