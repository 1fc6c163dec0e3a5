//! Checks that the README's commands and `cargo xtask` build dependencies with the same features.
//!
//! Cargo unifies features over the packages that a command builds. A feature that only a test enables would make
//! `cargo test --workspace` build the dependency, and all of its dependents, a second time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::Command;

/// Packages that are run on their own.
const RUN: [&str; 2] = ["kai-cli", "xtask"];

pub(super) fn check() -> Vec<String> {
    let compare = || -> io::Result<Vec<String>> {
        let all = features(&["--workspace", "--edges", "normal,build,dev"])?;
        let mut complaints = Vec::new();
        for package in RUN {
            let alone = features(&["--package", package, "--edges", "normal,build"])?;
            complaints.extend(differences(package, &alone, &all));
        }
        Ok(complaints)
    };
    compare().unwrap_or_else(|error| vec![format!("the features of dependencies are not known: {error}")])
}

/// Feature sets by package; a package has several where it is built for the host and for the target.
type Features = BTreeMap<String, BTreeSet<String>>;

fn features(selection: &[&str]) -> io::Result<Features> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}"])
        .args(selection)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines such as `serde v1.0.0 (proc-macro)|default,std (*)`.
fn parse(text: &str) -> Features {
    let mut features = Features::new();
    for (package, enabled) in text.lines().filter_map(|line| line.split_once('|')) {
        let name = package.split(" (").next().unwrap_or(package);
        let enabled = enabled.trim_end_matches("(*)").trim();
        features.entry(name.to_owned()).or_default().insert(enabled.to_owned());
    }
    features
}

fn differences(package: &str, alone: &Features, all: &Features) -> Vec<String> {
    alone
        .iter()
        .filter(|(name, enabled)| all.get(*name).is_some_and(|all| !enabled.is_subset(all)))
        .map(|(name, _)| {
            format!(
                "`{name}` has other features in `{package}` alone than in the workspace, so it is built twice"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_of_tests_alone_is_reported() {
        let alone = parse("tokio v1.0.0|rt,time (*)\nserde v1.0.0 (proc-macro)|std\n");
        let all = parse("tokio v1.0.0|rt,test-util,time\nserde v1.0.0|std\nproptest v1.0.0|\n");
        assert_eq!(
            differences("app", &alone, &all),
            ["`tokio v1.0.0` has other features in `app` alone than in the workspace, so it is built twice"]
        );
        assert!(differences("app", &alone, &alone).is_empty());
    }
}
