//! Tar files (ustar): sorted, owned by root, without times.

use std::io;

const BLOCK: usize = 512;

/// A file or symbolic link of an image.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Without a leading `/`.
    path: String,
    mode: u32,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Folder,
    Link(String),
    File(Vec<u8>),
}

impl Entry {
    pub fn file(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode: 0o644, content: Content::File(bytes) }
    }

    pub fn program(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode: 0o755, content: Content::File(bytes) }
    }

    pub fn link(path: &str, target: &str) -> Self {
        Self { path: path.to_owned(), mode: 0o777, content: Content::Link(target.to_owned()) }
    }

    fn folder(path: &str) -> Self {
        Self { path: format!("{path}/"), mode: 0o755, content: Content::Folder }
    }
}

/// Packs entries with the folders that they are in.
pub(super) fn pack(mut entries: Vec<Entry>) -> io::Result<Vec<u8>> {
    let mut folders = std::collections::BTreeSet::new();
    for entry in &entries {
        let mut rest = entry.path.as_str();
        while let Some((folder, _)) = rest.rsplit_once('/') {
            folders.insert(folder.to_owned());
            rest = folder;
        }
    }
    entries.extend(folders.iter().map(|folder| Entry::folder(folder)));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut packed = Vec::new();
    for entry in entries {
        let (kind, target, bytes): (u8, &str, &[u8]) = match &entry.content {
            Content::Folder => (b'5', "", &[]),
            Content::Link(target) => (b'2', target, &[]),
            Content::File(bytes) => (b'0', "", bytes),
        };
        packed.extend_from_slice(&header(&entry, kind, target, bytes.len())?);
        packed.extend_from_slice(bytes);
        packed.resize(packed.len().next_multiple_of(BLOCK), 0);
    }
    packed.resize(packed.len() + 2 * BLOCK, 0);
    Ok(packed)
}

fn header(entry: &Entry, kind: u8, target: &str, size: usize) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, width: usize, bytes: &[u8]| {
        if bytes.len() > width {
            return Err(io::Error::other(format!("`{}` does not fit into a tar header", entry.path)));
        }
        header[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    put(0, 100, entry.path.as_bytes())?;
    put(100, 8, format!("{:07o}", entry.mode).as_bytes())?;
    put(108, 8, b"0000000")?; // owner: root
    put(116, 8, b"0000000")?;
    put(124, 12, format!("{size:011o}").as_bytes())?;
    put(136, 12, b"00000000000")?; // time: the epoch
    put(148, 8, b"        ")?; // the checksum counts as blanks
    put(156, 1, &[kind])?;
    put(157, 100, target.as_bytes())?;
    put(257, 8, b"ustar\x0000")?;
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}
