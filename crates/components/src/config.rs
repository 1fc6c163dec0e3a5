//! Reads the scheduler configuration file.

use anyhow::{Context, Result};
use kai_cache::config_file::{self, ConfigError, SchedulerConfig};
use kai_engine::plugin::PluginSet;
use std::path::Path;

/// The configuration of a process, as lenient as KAI's. The plugins may add actions.
pub fn read(path: &Path, plugins: &PluginSet) -> Result<SchedulerConfig> {
    read_with(path, |text| config_file::read(text, plugins))
}

/// The configuration that a user names on a command line: any other file is an error.
pub fn read_named(path: &Path, plugins: &PluginSet) -> Result<SchedulerConfig> {
    read_with(path, |text| config_file::read_named(text, plugins))
}

fn read_with(
    path: &Path,
    read: impl FnOnce(&str) -> Result<SchedulerConfig, ConfigError>,
) -> Result<SchedulerConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    read(&text).with_context(|| format!("cannot use `{}`", path.display()))
}
