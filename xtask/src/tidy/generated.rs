//! Checks that generated files are what the code generates.

use crate::repository::SourceFile;
use kai_api::crds;
use kai_components::{COMPONENTS, rbac};
use kai_testkit::workloads;
use std::path::Path;

const CRDS: &str = "charts/kai-scheduler/crds";
const CHART: &str = "charts/kai-scheduler/Chart.yaml";
const RBAC: &str = "deploy/rbac";

/// Complains about generated files that are missing or stale, and about files beside them that no code generates.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let definitions: Vec<(String, String)> =
        crds::crds().iter().map(|crd| (crds::crd_file_name(crd), crds::crd_yaml(crd))).collect();
    let rights: Vec<(String, String)> =
        COMPONENTS.iter().map(|spec| (rbac::file_name(spec), body(&rbac::yaml(spec)).to_owned())).collect();
    let mut complaints = check_folder(files, CRDS, "kai-api", &definitions);
    complaints.extend(check_folder(files, RBAC, "kai-components", &rights));
    complaints.extend(check_workloads(files));
    complaints.extend(check_chart_version(files));
    complaints
}

/// The chart and the images that it deploys have the version of the workspace.
fn check_chart_version(files: &[SourceFile]) -> Vec<String> {
    let version = env!("CARGO_PKG_VERSION");
    let text = files.iter().find(|file| file.path == CHART).and_then(|file| file.text.as_deref());
    let lines = [format!("version: {version}"), format!("appVersion: \"{version}\"")];
    let missing = lines.into_iter().filter(|line| !text.is_some_and(|text| text.lines().any(|l| l == line)));
    missing.map(|line| format!("{CHART}: not the version of the workspace; hint: write `{line}`")).collect()
}

/// The page of workloads.
fn check_workloads(files: &[SourceFile]) -> Option<String> {
    let stored = files.iter().find(|file| file.path == workloads::PAGE).and_then(|file| file.text.as_deref());
    match workloads::page(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        Ok(page) if stored == Some(&page) => None,
        Ok(_) => {
            Some(format!("{}: stale; hint: `UPDATE=1 cargo test -p kai-testkit` writes it", workloads::PAGE))
        }
        Err(error) => Some(format!("{}: {error:#}", workloads::PAGE)),
    }
}

/// `wanted` has the name of each file of the folder and its text below the heading.
fn check_folder(
    files: &[SourceFile],
    folder: &str,
    package: &str,
    wanted: &[(String, String)],
) -> Vec<String> {
    let found = |path: &str| files.iter().find(|file| file.path == path);
    let mut complaints = Vec::new();
    for (name, text) in wanted {
        let path = format!("{folder}/{name}");
        if found(&path).and_then(|file| file.text.as_deref()).map(body) != Some(text) {
            complaints.push(format!("{path}: stale; hint: `UPDATE=1 cargo test -p {package}` writes it"));
        }
    }
    let in_folder = files.iter().filter_map(|file| file.path.strip_prefix(folder)?.strip_prefix('/'));
    let unknown = in_folder.filter(|name| !wanted.iter().any(|(wanted, _)| wanted == name));
    complaints.extend(unknown.map(|name| format!("{folder}/{name}: no code generates this file")));
    complaints
}

/// The text below the heading comment.
fn body(text: &str) -> &str {
    text.split_once("---\n").map_or(text, |(_, body)| body)
}
