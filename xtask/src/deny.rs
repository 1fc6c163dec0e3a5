//! Checks licences, duplicate versions and sources of dependencies with cargo-deny: `cargo xtask deny`.
//!
//! The policy is `deny.toml`. Advisories are left out: their database is not a registry package.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

pub(crate) fn run(repository: &Repository) -> Result<()> {
    let program = installed(repository)?;
    let check = ["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    let status = Command::new(&program)
        .args(check)
        .current_dir(&repository.root)
        .status()
        .with_context(|| format!("cannot run `{}`", program.display()))?;
    if !status.success() {
        bail!("a dependency breaks the policy in `deny.toml`");
    }
    Ok(())
}

/// cargo-deny of the pinned version: the one on the search path, or one installed under `target/tools`.
fn installed(repository: &Repository) -> Result<PathBuf> {
    let root = repository.metadata()?.target_directory.join("tools");
    let own = root.join("bin").join("cargo-deny");
    if let Some(found) = [PathBuf::from("cargo-deny"), own.clone()].into_iter().find(|path| is_pinned(path)) {
        return Ok(found);
    }
    println!("installing cargo-deny {VERSION}");
    // Unoptimised: building it with optimisation takes longer than all its runs together.
    let status = repository
        .cargo()
        .args(["install", "--quiet", "--locked", "--debug", "--root"])
        .arg(&root)
        .arg(format!("cargo-deny@{VERSION}"))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo-deny cannot be installed; hint: install version {VERSION} by hand");
    }
    Ok(own)
}

fn is_pinned(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(VERSION))
}
