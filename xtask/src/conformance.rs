//! Replays KAI's recorded answers and compares: `cargo xtask conformance [DIR]`.

mod admission;
mod chart;
mod operator;
mod server;

use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_testkit::report::{self, Replay};
use std::path::PathBuf;

/// Kinds of recordings whose replay needs more than the engine.
const REPLAYS: &[Replay] = &[
    Replay { kind: "admission", run: admission::run },
    Replay { kind: "grouper", run: kai_testkit::grouper::run },
    Replay { kind: "operator", run: operator::run },
    Replay { kind: "chart", run: chart::run },
];

#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// A folder with some of cases, calls, random, grouper, admission, operator, chart. Without it: `conformance` of the
    /// reference folder, or `tests/conformance` if there is none.
    dir: Option<PathBuf>,
    /// Only cases whose id contains this, without recorded calls.
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
        Some(text) => report::selected(&dir, REPLAYS, text, out),
        None => report::conformance(&dir, REPLAYS, out),
    };
    if !ran.with_context(|| format!("cannot run the cases in `{}`", dir.display()))? {
        bail!("cases failed");
    }
    Ok(())
}
