//! Helm, built from its own packages as the real control plane is.
//!
//! `tests/helm/go.mod` names the version. The program goes to the folder of the control plane's programs.

use crate::kubernetes;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";

/// The program, built if it is missing.
pub(crate) fn program(repository: &Repository) -> Result<PathBuf> {
    let module = repository.root.join("tests/helm");
    let wanted = std::fs::read_to_string(module.join("go.mod"))
        .with_context(|| format!("cannot read the module in `{}`", module.display()))?;
    let folder = kubernetes::folder(repository)?;
    let (built, stamp) = (folder.join("helm"), folder.join("helm.go.mod"));
    if built.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        return Ok(built);
    }
    if let Some(why) = kubernetes::missing() {
        bail!("{why}");
    }
    println!("building helm; the first time takes some minutes");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let status = kubernetes::go()
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
        .arg(&built)
        .arg(PACKAGE)
        .status()
        .context("cannot run `go`")?;
    if !status.success() {
        bail!("building `{PACKAGE}` ended with {status}");
    }
    std::fs::write(&stamp, &wanted).with_context(|| format!("cannot write `{}`", stamp.display()))?;
    Ok(built)
}
