//! The objects of an installation of KAI, as its operator and chart create them.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::io::{Cursor, Read as _};
use zip::ZipArchive;

const ARCHIVE: &[u8] = include_bytes!("../../../tests/conformance/kai-installed.zip");

/// `Config` and shard first: the others name them as their owners, without uids.
pub fn objects() -> Result<Vec<Value>> {
    let mut archive = ZipArchive::new(Cursor::new(ARCHIVE)).context("the recording is an archive")?;
    let mut text = String::new();
    archive.by_name("objects.json").context("it has objects")?.read_to_string(&mut text)?;
    serde_json::from_str(&text).context("objects.json")
}
