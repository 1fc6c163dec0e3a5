//! Reads the scheduler configuration file.

use anyhow::{Context, Result};
use kai_cache::config_file::{self, SchedulerConfig};
use std::path::Path;

pub fn read(path: &Path) -> Result<SchedulerConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    config_file::read(&text).with_context(|| format!("cannot use `{}`", path.display()))
}
