//! Saves all objects to a stream and loads them, with uids and resourceVersions but without the change log.
//!
//! The first line is a header; each following line is an object with the name of its table.

use crate::crd;
use crate::object;
use crate::server::Core;
use crate::store::StoredObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, Write};

/// The format name in the header.
const FORMAT: &str = "kai-apiserver/v1";

/// Why a state cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream failed.
    #[error("cannot read the saved state")]
    Read(#[source] io::Error),
    /// The line is malformed.
    #[error("line {line} of the saved state is malformed\nhint: a state is written by `--save`")]
    Malformed { line: usize },
    /// The server already has objects.
    #[error("`{table}` already has `{key}`: a state is loaded into an empty server")]
    NotEmpty { table: String, key: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    revision: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    table: String,
    object: Value,
}

/// Writes a consistent copy of all objects.
pub fn save(core: &Core, mut to: impl Write) -> io::Result<()> {
    let (revision, records) = core.store.all_objects();
    serde_json::to_writer(&mut to, &Head { format: FORMAT.to_owned(), revision })?;
    to.write_all(b"\n")?;
    for StoredObject { table, record } in records {
        write!(to, "{{\"table\":{},\"object\":", Value::from(&*table))?;
        to.write_all(&record.json())?;
        to.write_all(b"}\n")?;
    }
    to.flush()
}

/// Loads a state into an empty server; `CustomResourceDefinition`s take effect.
pub fn load(core: &Core, from: impl BufRead) -> Result<(), Error> {
    let mut lines = from.lines().enumerate();
    let malformed = |index: usize| Error::Malformed { line: index + 1 };
    let (_, first) = lines.next().ok_or_else(|| malformed(0))?;
    let head: Head = serde_json::from_str(&first.map_err(Error::Read)?).map_err(|_| malformed(0))?;
    if head.format != FORMAT {
        return Err(malformed(0));
    }
    for (index, line) in lines {
        let row: Row = serde_json::from_str(&line.map_err(Error::Read)?).map_err(|_| malformed(index))?;
        let revision =
            object::meta_str(&row.object, "resourceVersion").parse().map_err(|_| malformed(index))?;
        let (namespace, name) = (object::namespace(&row.object), object::name(&row.object));
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let table = core.store.table(&row.table);
        if !core.store.restore(table, &key, revision, &row.object) {
            return Err(Error::NotEmpty { table: row.table, key });
        }
    }
    core.store.resume_from(head.revision);
    let definitions = core.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let page = core.store.list(definitions.table, &crate::store::ListRange::default(), |_| true);
    for record in page.into_iter().flat_map(|page| page.records) {
        crd::on_stored(core, &record);
    }
    Ok(())
}
