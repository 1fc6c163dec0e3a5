//! Third-party controllers, built from `tests/workload-controllers/go.mod` and `tests/karpenter/go.mod`.
//!
//! Their custom resource definitions are copied from the module cache of Go beside the programs, not into the repository.

use super::go;
use crate::repository::Repository;
use anyhow::{Context, Result, bail, ensure};
use kai_clock::Stopwatch;
use kai_kubetest::control_plane::CACHE_VARIABLE;
use kai_kubetest::third_party::{DEFINITIONS, Definition, KARPENTER, folder as programs_of};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tests that need the controllers of workloads, and those that need Karpenter.
pub(crate) const TESTS: [&str; 2] =
    ["real_control_plane::workload_controllers::", "real_control_plane::karpenter::"];

/// Builds the named controllers, unless they are there.
pub(super) fn build(repository: &Repository, folder: &Path, names: &[String]) -> Result<()> {
    let modules = repository.root.join("tests");
    let folder = programs_of(folder);
    for name in names {
        let definition = DEFINITIONS.iter().find(|of| of.name == name).with_context(|| {
            let known: Vec<&str> = DEFINITIONS.iter().map(|of| of.name).collect();
            format!("there is no controller `{name}`; hint: it is one of {}", known.join(", "))
        })?;
        build_one(&modules.join(definition.built_by), &folder, definition)?;
    }
    Ok(())
}

/// Runs the tests of the named controllers on the built programs.
pub(super) fn test(folder: &Path, names: &[String]) -> Result<()> {
    let [workloads, karpenter] = TESTS;
    let mut tests = Vec::new();
    if names.iter().any(|name| name != KARPENTER) {
        tests.push(workloads);
    }
    if names.iter().any(|name| name == KARPENTER) {
        tests.push(karpenter);
    }
    let status = Command::new(env!("CARGO"))
        .args(["test", "-p", "kai-cli", "--test", "system", "--", "--ignored", "--nocapture"])
        .args(tests)
        .env(CACHE_VARIABLE, folder)
        .status()
        .context("cannot run `cargo`")?;
    ensure!(status.success(), "the tests ended with {status}");
    Ok(())
}

fn build_one(module: &Path, folder: &Path, definition: &Definition) -> Result<()> {
    let wanted = read(&module.join("go.mod"))?;
    let files = folder.join(format!("{}.files", definition.name));
    let stamp = files.join("go.mod");
    let program = folder.join(definition.name);
    if program.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    println!("building {}; the first time takes some minutes", definition.name);
    let watch = Stopwatch::start();
    std::fs::create_dir_all(&files).with_context(|| format!("cannot create `{}`", files.display()))?;
    let status = go()
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
        .arg(&program)
        .arg(definition.package)
        .status()
        .context("cannot run `go`; hint: the controllers need Go 1.26")?;
    if !status.success() {
        bail!("building `{}` ended with {status}", definition.package);
    }
    let source = PathBuf::from(of_module(module, definition, "{{.Dir}}")?);
    for crds in definition.crds {
        copy(&source.join(crds), &files.join("crds"))?;
    }
    if let Some(webhooks) = definition.webhooks {
        copy(&source.join(webhooks), &files.join("webhooks"))?;
    }
    write(&files.join("version"), &of_module(module, definition, "{{.Version}}")?)?;
    write(&stamp, &wanted)?;
    println!("built {} in {:.0} s", definition.name, watch.elapsed().as_secs_f64());
    Ok(())
}

/// A property of the module of a controller.
fn of_module(module: &Path, definition: &Definition, format: &str) -> Result<String> {
    let output = go()
        .current_dir(module)
        .args(["list", "-m", "-f", format, definition.module])
        .output()
        .context("cannot run `go`")?;
    ensure!(output.status.success(), "`go list` of `{}` ended with {}", definition.module, output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Copies the YAML files of a folder, or one file, into a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot create `{}`", to.display()))?;
    let mut files = Vec::new();
    if from.is_dir() {
        for entry in from.read_dir()? {
            files.push(entry?.path());
        }
    } else {
        files.push(from.to_owned());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    ensure!(!files.is_empty(), "there is no YAML file in `{}`", from.display());
    for file in files {
        let name = file.file_name().context("a file has a name")?;
        // Files of the module cache are read-only, which a copy would be, too.
        write(&to.join(name), &read(&file)?)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
