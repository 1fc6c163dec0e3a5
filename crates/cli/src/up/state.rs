//! The files of `--load` and `--save`.

use super::revive;
use anyhow::{Context, Result, anyhow, ensure};
use kai_apiserver::ApiServer;
use kai_cache::snapshot;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How a saved state begins; everything else is read as a snapshot.
const SAVED: &[u8] = b"{\"format\":\"kai-apiserver/";

/// A state to begin with.
pub(super) struct Loaded {
    /// What the server reads.
    pub(super) state: Vec<u8>,
    /// What to tell about it, in lines.
    pub(super) notes: String,
}

/// Reads a file. Must be called in a tokio runtime.
pub(super) async fn load(path: &Path, seed: u64) -> Result<Loaded> {
    let name = path.display();
    let failed = |cause: std::io::Error| {
        anyhow!("cannot read `{name}`: {cause}; hint: --load takes what --save wrote, or a snapshot")
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    (&mut file).take(SAVED.len() as u64).read_to_end(&mut head).map_err(failed)?;
    if head == SAVED {
        let mut state = head;
        file.read_to_end(&mut state).map_err(failed)?;
        return Ok(Loaded { state, notes: format!("begins with the state in {name}\n") });
    }
    let snapshot = snapshot::read_file(path)?;
    let revived = revive::revive(&snapshot, seed).await.with_context(|| format!("cannot use `{name}`"))?;
    Ok(Loaded { state: revived.state, notes: revived.report.text(&name.to_string()) })
}

/// Where the state goes at the end.
pub(super) struct Saving {
    path: PathBuf,
    partial: PathBuf,
}

impl Saving {
    /// Makes sure that the file can be written, before anybody does work that would be lost.
    pub(super) fn prepare(path: &Path) -> Result<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let saving = Self { path: path.to_owned(), partial: partial.into() };
        ensure!(
            !path.is_dir(),
            "cannot write `{}`: it is a folder; hint: --save takes a file",
            path.display()
        );
        saving.open()?;
        std::fs::remove_file(&saving.partial).map_err(|cause| saving.failed(&cause))?;
        Ok(saving)
    }

    /// Writes the whole state. A file that is there is replaced only by a complete one.
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

    /// Where it goes.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Secrets are part of the state: the file is its owner's alone.
    fn open(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&self.partial).map_err(|cause| self.failed(&cause))
    }

    fn failed(&self, cause: &std::io::Error) -> anyhow::Error {
        let path = self.path.display();
        anyhow!(
            "cannot write `{path}`: {cause}; hint: --save takes a file in a folder that can be written to"
        )
    }
}
