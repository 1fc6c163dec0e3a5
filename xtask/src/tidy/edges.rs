//! Checks the dependencies between crates.
//!
//! `ALLOWED` lists the dependencies between workspace crates; `BANNED` lists external crates that must not be linked
//! into a workspace crate, directly or transitively.

use crate::repository::{Metadata, Package};
use std::process::Command;

/// Allowed dependencies of each workspace crate. A crate that is missing here is a complaint.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kai-units", &[]),
    ("kai-clock", &[]),
    ("kai-engine", &["kai-units"]),
    ("kai-admission", &["kai-api", "kai-clock", "kai-object", "kai-runtime", "kai-units"]),
    ("kai-api", &["kai-object", "kai-units"]),
    ("kai-object", &[]),
    ("kai-apiserver", &["kai-clock", "kai-object"]),
    ("kai-binder", &["kai-api", "kai-clock", "kai-object", "kai-runtime", "kai-units"]),
    ("kai-cache", &["kai-api", "kai-engine", "kai-units"]),
    (
        "kai-components",
        &[
            "kai-admission",
            "kai-api",
            "kai-binder",
            "kai-cache",
            "kai-clock",
            "kai-controllers",
            "kai-engine",
            "kai-numa-exporter",
            "kai-object",
            "kai-operator",
            "kai-podgrouper",
            "kai-reservation",
            "kai-runtime",
            "kai-scheduler",
            "kai-units",
        ],
    ),
    ("kai-controllers", &["kai-api", "kai-clock", "kai-object", "kai-runtime", "kai-units"]),
    ("kai-kubetest", &[]),
    (
        "kai-migrate",
        &["kai-admission", "kai-api", "kai-cache", "kai-engine", "kai-object", "kai-operator", "kai-units"],
    ),
    ("kai-numa-exporter", &["kai-api", "kai-runtime"]),
    ("kai-operator", &["kai-admission", "kai-api", "kai-clock", "kai-object", "kai-runtime", "kai-units"]),
    ("kai-podgrouper", &["kai-api", "kai-object", "kai-runtime", "kai-units"]),
    ("kai-replay", &["kai-engine", "kai-units"]),
    ("kai-reservation", &["kai-api", "kai-object", "kai-runtime"]),
    ("kai-runtime", &["kai-clock", "kai-object", "kai-units"]),
    (
        "kai-scheduler",
        &[
            "kai-api",
            "kai-cache",
            "kai-clock",
            "kai-engine",
            "kai-object",
            "kai-runtime",
            "kai-units",
            "kai-whatif",
        ],
    ),
    ("kai-sim", &["kai-apiserver", "kai-clock", "kai-object", "kai-runtime", "kai-units"]),
    (
        "kai-cli",
        &[
            "kai-admission",
            "kai-api",
            "kai-apiserver",
            "kai-cache",
            "kai-clock",
            "kai-components",
            "kai-engine",
            "kai-migrate",
            "kai-object",
            "kai-operator",
            "kai-podgrouper",
            "kai-replay",
            "kai-runtime",
            "kai-scheduler",
            "kai-sim",
            "kai-units",
            "kai-view",
            "kai-whatif",
        ],
    ),
    (
        "kai-view",
        &[
            "kai-api",
            "kai-cache",
            "kai-clock",
            "kai-engine",
            "kai-object",
            "kai-runtime",
            "kai-scheduler",
            "kai-units",
            "kai-whatif",
        ],
    ),
    ("kai-whatif", &["kai-api", "kai-cache", "kai-engine", "kai-units"]),
    (
        "kai-testkit",
        &[
            "kai-api",
            "kai-cache",
            "kai-engine",
            "kai-migrate",
            "kai-object",
            "kai-operator",
            "kai-podgrouper",
            "kai-runtime",
            "kai-units",
        ],
    ),
    (
        "xtask",
        &[
            "kai-admission",
            "kai-api",
            "kai-apiserver",
            "kai-cache",
            "kai-cli",
            "kai-clock",
            "kai-components",
            "kai-engine",
            "kai-kubetest",
            "kai-object",
            "kai-runtime",
            "kai-testkit",
            "kai-units",
        ],
    ),
    ("license-plugin", &["kai-binder", "kai-cli", "kai-engine", "kai-runtime"]),
    ("operations-plugin", &["kai-cli", "kai-engine", "kai-units"]),
    ("render-job-plugin", &["kai-api", "kai-cli", "kai-podgrouper"]),
    ("team-nodes-plugin", &["kai-cli", "kai-engine"]),
];

/// Clients and runtimes: a pure crate must not be able to wait or to write.
const SHELL: [&str; 6] = ["tokio", "hyper", "tower", "kube-client", "kube-runtime", "tracing"];

/// External crates that must not be linked into a crate, in addition to [`SHELL`].
const BANNED: [(&str, &[&str]); 7] = [
    ("kai-units", &["kube", "k8s-openapi", "serde_json", "jiff"]),
    ("kai-engine", &["kube", "k8s-openapi", "serde_json", "serde", "jiff", "kai-clock"]),
    ("kai-api", &["kai-engine"]),
    ("kai-cache", &["kai-clock"]),
    ("kai-whatif", &["kai-clock"]),
    ("kai-replay", &["kube", "k8s-openapi", "serde_json", "serde", "jiff", "kai-clock"]),
    ("kai-cli", &["kai-testkit"]),
];

pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in metadata.members() {
        complaints.extend(own_edges(package));
        let Some((_, banned)) = BANNED.iter().find(|(name, _)| *name == package.name) else { continue };
        let shell: &[&str] = if package.name == "kai-cli" { &[] } else { &SHELL };
        let linked = match linked_into(&package.name) {
            Ok(linked) => linked,
            Err(error) => {
                complaints.push(format!("what crate `{}` links is not known: {error}", package.name));
                continue;
            }
        };
        complaints.extend(
            banned
                .iter()
                .chain(shell)
                .filter(|name| linked.iter().any(|linked| linked == *name))
                .map(|name| format!("crate `{}` must not link `{name}`", package.name)),
        );
    }
    complaints
}

/// Names of all packages that are linked into a package: its transitive normal dependencies.
///
/// `cargo metadata` does not suffice: it unifies the features of all workspace members.
fn linked_into(package: &str) -> std::io::Result<Vec<String>> {
    let arguments =
        ["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", package];
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().skip(1).filter_map(|line| line.split(' ').next()).map(str::to_owned);
    Ok(names.collect())
}

fn own_edges(package: &Package) -> Vec<String> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
        return vec![format!("crate `{}` is missing in the table of crate dependencies", package.name)];
    };
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .filter(|dependency| dependency.name.starts_with("kai-"))
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| format!("crate `{}` must not use `{}`", package.name, dependency.name))
        .collect()
}
