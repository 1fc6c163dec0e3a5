//! Generates clusters of named shapes and any size as snapshot files, for benches and tests.
//!
//! A shape lists queues, running jobs and pending jobs. It has no state and uses no random numbers, so that a name and a
//! number of nodes always give the same file. Objects are streamed; memory does not grow with the cluster.
//! Invariant: creation timestamps are one second apart, so that every order by age is defined.

mod catalog;
mod object;
mod object_writer;
mod snapshot;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use catalog::{BACKLOG, SHAPES, Shape};

pub fn find(name: &str) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

/// Writes a shape of so many nodes as the JSON of a snapshot file.
pub fn write(shape: &Shape, nodes: usize, mut to: impl Write) -> io::Result<()> {
    snapshot::write(shape, nodes, &mut to)
}

/// Writes a shape of so many nodes as a snapshot file: a zip archive that holds `snapshot.json`.
pub fn write_zip(shape: &Shape, nodes: usize, path: &Path) -> io::Result<()> {
    let mut archive = zip::ZipWriter::new(BufWriter::new(File::create(path)?));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .compression_level(Some(1))
        .large_file(true);
    archive.start_file("snapshot.json", options)?;
    let mut buffered = BufWriter::with_capacity(1 << 16, archive);
    write(shape, nodes, &mut buffered)?;
    let archive = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    archive.finish()?.flush()
}

#[cfg(test)]
mod tests;
