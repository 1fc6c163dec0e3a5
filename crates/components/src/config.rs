//! Reads the scheduler configuration file.

use anyhow::{Context, Result};
use kai_cache::config_file::{self, SchedulerConfig};
use kai_engine::plugin::PluginSet;
use std::path::Path;

/// The plugins may add actions.
pub fn read(path: &Path, plugins: &PluginSet) -> Result<SchedulerConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    config_file::read(&text, plugins).with_context(|| format!("cannot use `{}`", path.display()))
}
