//! Clusters of chosen shape and size, written as snapshot files: the same work for whoever reads them.
//!
//! A shape is a short drawing: queues, jobs that run, jobs that wait. It holds no state and draws no random number,
//! so that a name and a number of nodes mean the same file everywhere. Objects are streamed; memory does not grow
//! with the cluster.
//! Invariant: every object is created one second after the one before it, so that no order is left to chance.

mod catalog;
mod object;
mod sketch;
mod snapshot;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use catalog::{SHAPES, Shape};

/// The shape of a name.
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
