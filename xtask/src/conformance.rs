//! KAI's recorded cases, replayed: `cargo xtask conformance [DIR]`.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_testkit::report;
use std::path::PathBuf;

/// Options of `cargo xtask conformance`.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// The folder of cases; `conformance` of the reference folder unless given.
    dir: Option<PathBuf>,
    /// Only sessions and clusters whose id contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Runs every case and prints the report.
pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let dir = match (&args.dir, repository.reference()) {
        (Some(dir), _) => dir.clone(),
        (None, Ok(reference)) => reference.join("conformance"),
        (None, Err(why)) => bail!("{why}; hint: name the folder of cases"),
    };
    let out = &mut std::io::stdout().lock();
    let ran = match &args.only {
        Some(text) => report::sessions(&dir, text, out),
        None => report::conformance(&dir, out),
    };
    if !ran.with_context(|| format!("cannot run the cases in `{}`", dir.display()))? {
        bail!("cases failed");
    }
    Ok(())
}
