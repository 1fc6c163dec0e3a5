//! Replays KAI's recorded answers and compares: `cargo xtask conformance [DIR]`.

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_testkit::report;
use std::path::PathBuf;

#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// A folder with some of cases, calls, random, grouper, admission, operator, chart. Without it: `conformance` of the
    /// reference folder, or `tests/conformance` if there is none.
    dir: Option<PathBuf>,
    /// Only sessions and clusters whose id contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let dir = match (&args.dir, repository.reference()) {
        (Some(dir), _) => dir.clone(),
        (None, Ok(reference)) => reference.join("conformance"),
        (None, Err(why)) => {
            println!("replaying the vendored recordings only: {why}");
            repository.root.join("tests/conformance")
        }
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
