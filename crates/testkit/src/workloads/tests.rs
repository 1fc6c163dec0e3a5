//! Every workload in `tests/grouper` gets the pod groups of its file. `UPDATE=1` writes the files and the page.

use super::*;
use kai_podgrouper::table::{self, TABLE};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

#[test]
fn pods_of_workloads_get_the_groups_of_their_files() {
    for case in cases(&root()).unwrap() {
        let report = group(&case.objects_with_pods().unwrap());
        assert_eq!(report.problems, [], "{}", case.name);
        let groups = as_yaml(&report).unwrap();
        if is_update() {
            case.write_groups(&groups).unwrap();
            continue;
        }
        assert_eq!(groups, case.groups, "{}: UPDATE=1 cargo test -p kai-testkit writes the file", case.name);
    }
}

/// What `kai group` makes of the manifest alone is what becomes of the pods that the controller creates.
#[test]
fn manifests_alone_get_the_same_groups_where_the_pods_of_the_kind_are_known() {
    let mut expanded = 0;
    for case in cases(&root()).unwrap() {
        let report = group(&case.objects().unwrap());
        if report.problems.iter().any(|problem| problem.text.contains("its pods are not known")) {
            continue;
        }
        assert_eq!(report.problems, [], "{}", case.name);
        assert_eq!(
            as_yaml(&report).unwrap(),
            as_yaml(&group(&case.objects_with_pods().unwrap())).unwrap(),
            "{}",
            case.name
        );
        expanded += 1;
    }
    assert!(expanded >= 49, "{expanded}");
}

#[test]
fn every_kind_and_version_of_the_table_has_a_workload() {
    let cases = cases(&root()).unwrap();
    let objects: Vec<Value> = cases.iter().flat_map(|case| case.objects().unwrap()).collect();
    for entry in TABLE {
        let has = |object: &Value| {
            let api_version = object["apiVersion"].as_str().unwrap_or_default();
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let kind = object["kind"].as_str().unwrap_or_default();
            table::find(group, version, kind).is_some_and(|found| {
                (found.group, found.version, found.kind) == (entry.group, entry.version, entry.kind)
            })
        };
        assert!(
            objects.iter().any(has),
            "no workload in `{FOLDER}` is a {} {:?} {}",
            entry.group,
            entry.version,
            entry.kind
        );
    }
}

#[test]
fn files_of_pods_say_where_they_come_from() {
    for case in cases(&root()).unwrap() {
        let first = case.pods.lines().next().unwrap_or_default();
        assert!(
            ["# Created by ", "# Written by hand"].iter().any(|start| first.starts_with(start)),
            "{}: `{first}`",
            case.name
        );
    }
}

#[test]
fn page_of_workloads_is_current() {
    let (root, page) = (root(), page(&root()).unwrap());
    if is_update() {
        fs::write(root.join(PAGE), &page).unwrap();
    }
    let stored = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    assert_eq!(stored, page, "UPDATE=1 cargo test -p kai-testkit writes the page");
}
