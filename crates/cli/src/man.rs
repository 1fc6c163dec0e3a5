//! `kai man`: a manual page for each command.

use crate::args::{Args, Man};
use anyhow::{Context as _, Result, bail};
use clap::CommandFactory as _;

pub(crate) fn write(args: &Man) -> Result<()> {
    let folder = &args.directory;
    let name = folder.display();
    if !folder.is_dir() {
        bail!("`{name}` is not a directory; hint: mkdir -p {name}");
    }
    clap_mangen::generate_to(Args::command(), folder)
        .with_context(|| format!("cannot write pages to `{name}`"))
}
