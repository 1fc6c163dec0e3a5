//! What the program is made of: a list of packages (CycloneDX) and the texts of their licences.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A package as `cargo metadata` describes it.
#[derive(Deserialize)]
pub(super) struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

/// The packages that are linked into the program, by name and version.
pub(super) fn packages(repository: &Repository, triple: &str) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let mut tree = repository.cargo();
    tree.args([
        "tree",
        "--locked",
        "--package",
        "kai-cli",
        "--no-default-features",
        "--features",
        "mimalloc",
    ]);
    tree.args(["--edges", "normal", "--target", triple, "--prefix", "none", "--format", "{p}"]);
    let listed = output(&mut tree)?;
    // `name v1.2.3 (where)`
    let linked: BTreeSet<(&str, &str)> = listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let mut metadata = repository.cargo();
    metadata.args(["metadata", "--format-version", "1", "--locked"]);
    let all: Metadata =
        serde_json::from_str(&output(&mut metadata)?).context("cannot read what `cargo metadata` printed")?;
    let mut packages = all.packages;
    packages.retain(|package| linked.contains(&(package.name.as_str(), package.version.as_str())));
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

fn output(command: &mut std::process::Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("cargo printed what is not UTF-8")
}

/// The list of packages as CycloneDX. It has neither time nor serial number, so that two builds are equal.
pub(super) fn cyclonedx(packages: &[Package]) -> String {
    let component = |package: &Package| -> Value {
        let mut component = json!({
            "type": "library", "name": package.name, "version": package.version,
            "purl": format!("pkg:cargo/{}@{}", package.name, package.version),
        });
        if let Some(license) = &package.license {
            // An old way to write `OR`.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        component
    };
    let (own, others): (Vec<_>, Vec<_>) = packages.iter().partition(|package| package.name == "kai-cli");
    let version = own.first().map(|package| package.version.as_str());
    let document = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": "kai", "version": version}},
        "components": others.into_iter().map(component).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

/// The texts of the licences of all foreign packages; each text once, after the packages that it belongs to.
pub(super) fn licences(packages: &[Package]) -> Result<String> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let title = format!(
            "{} {} ({})",
            package.name,
            package.version,
            package.license.as_deref().unwrap_or("licence as below")
        );
        let mut found = false;
        for text in texts(package)? {
            users.entry(text).or_default().push(title.clone());
            found = true;
        }
        if !found {
            users.entry("(the package has no file with its licence)\n".to_owned()).or_default().push(title);
        }
    }
    let mut blocks: Vec<(Vec<String>, String)> =
        users.into_iter().map(|(text, titles)| (titles, text)).collect();
    blocks.sort();
    let mut document = String::new();
    for (titles, text) in blocks {
        document.push_str(&titles.join("\n"));
        document.push_str("\n\n");
        document.push_str(text.trim_end());
        document.push_str("\n\n----------------------------------------\n\n");
    }
    Ok(document)
}

fn texts(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let list = folder.read_dir().with_context(|| format!("cannot list `{}`", folder.display()))?;
    let mut paths = list.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT"];
        path.is_file() && starts.iter().any(|start| name.starts_with(start))
    };
    let texts = paths.into_iter().filter(is_licence).map(|path| {
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    });
    texts.collect()
}
