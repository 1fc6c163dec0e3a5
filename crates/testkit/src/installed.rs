//! The objects of an installation of KAI, as its operator and chart create them.

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};
use zip::ZipArchive;

const OF_OPERATOR: &[u8] = include_bytes!("../../../tests/conformance/kai-installed.zip");
const OF_CHART: &[u8] = include_bytes!("../../../tests/conformance/kai-chart.zip");

/// What the operator creates. `Config` and shard first: the others name them as their owners, without uids.
pub fn objects() -> Result<Vec<Value>> {
    read(OF_OPERATOR)
}

/// What the chart renders with its own values, hooks included; roles have `$permissions` in place of rules.
pub fn chart_objects() -> Result<Vec<Value>> {
    let by_key: BTreeMap<String, Value> = read(OF_CHART)?;
    Ok(by_key.into_values().filter(Value::is_object).collect())
}

fn read<T: DeserializeOwned>(archive: &[u8]) -> Result<T> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).context("the recording is an archive")?;
    let mut text = String::new();
    archive.by_name("objects.json").context("it has objects")?.read_to_string(&mut text)?;
    serde_json::from_str(&text).context("objects.json")
}
