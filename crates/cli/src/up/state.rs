//! The files of `--load` and `--save`.

use super::snapshot_import;
use anyhow::{Context, Result, anyhow, ensure};
use kai_apiserver::ApiServer;
use kai_cache::snapshot;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// First bytes of a saved state; other files are read as snapshots.
const SAVED: &[u8] = b"{\"format\":\"kai-apiserver/";

pub(super) struct Loaded {
    /// In the format of the API server.
    pub(super) state: Vec<u8>,
    /// Lines to print.
    pub(super) notes: String,
}

/// Must be called in a tokio runtime.
pub(super) async fn load(path: &Path, seed: u64) -> Result<Loaded> {
    let name = path.display();
    let failed = |cause: std::io::Error| {
        anyhow!("cannot read `{name}`: {cause}; hint: --load accepts a file of --save, or a snapshot")
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    (&mut file).take(SAVED.len() as u64).read_to_end(&mut head).map_err(failed)?;
    if head == SAVED {
        let mut state = head;
        file.read_to_end(&mut state).map_err(failed)?;
        return Ok(Loaded { state, notes: format!("state loaded from {name}\n") });
    }
    let snapshot = snapshot::read_file(path)?;
    let imported =
        snapshot_import::import(&snapshot, seed).await.with_context(|| format!("cannot use `{name}`"))?;
    Ok(Loaded { state: imported.state, notes: imported.report.text(&name.to_string()) })
}

/// Writes the state when the cluster stops.
pub(super) struct Saving {
    path: PathBuf,
    partial: PathBuf,
}

impl Saving {
    /// Verifies at the start that the file can be written at the end.
    pub(super) fn prepare(path: &Path) -> Result<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let saving = Self { path: path.to_owned(), partial: partial.into() };
        ensure!(
            !path.is_dir(),
            "cannot write `{}`: it is a directory; hint: --save accepts a file",
            path.display()
        );
        saving.open()?;
        std::fs::remove_file(&saving.partial).map_err(|cause| saving.failed(&cause))?;
        Ok(saving)
    }

    /// Writes to a temporary file and renames it, so that an existing file is replaced only by a complete one.
    pub(super) fn write(&self, server: &ApiServer) -> Result<()> {
        let mut out = BufWriter::new(self.open()?);
        server.save(&mut out).and_then(|()| out.flush()).map_err(|cause| self.failed(&cause))?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .map_err(|cause| self.failed(&cause))?;
        file.sync_all().map_err(|cause| self.failed(&cause))?;
        std::fs::rename(&self.partial, &self.path).map_err(|cause| self.failed(&cause))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Only readable by its owner: the state contains secrets.
    fn open(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&self.partial).map_err(|cause| self.failed(&cause))
    }

    fn failed(&self, cause: &std::io::Error) -> anyhow::Error {
        let path = self.path.display();
        anyhow!("cannot write `{path}`: {cause}; hint: --save accepts a file in a writable directory")
    }
}
