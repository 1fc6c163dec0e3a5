//! The repository on disk: its root, its files, and what cargo knows about it.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder that holds the reference material; only `.ci/run` sets it.
pub(crate) const REFERENCE_VARIABLE: &str = "KAI_REFERENCE";

/// Directories that hold no sources of ours.
const SKIPPED: [&str; 5] = [".git", "target", "corpus", "artifacts", "node_modules"];

/// The checked-out repository.
pub(crate) struct Repository {
    pub(crate) root: PathBuf,
}

/// A file with its path relative to the root and, where it is UTF-8, its text.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: Option<String>,
}

impl SourceFile {
    /// Whether the file's name ends in `.extension`.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

impl Repository {
    /// The repository that this program was built from.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
        Ok(Self { root: root.to_owned() })
    }

    /// The reference folder, if one is named and there; otherwise why not.
    pub(crate) fn reference(&self) -> Result<PathBuf, String> {
        let Some(named) = std::env::var_os(REFERENCE_VARIABLE) else {
            return Err(format!("`{REFERENCE_VARIABLE}` is not set"));
        };
        let folder = self.root.join(named);
        if folder.is_dir() {
            Ok(folder)
        } else {
            Err(format!("`{REFERENCE_VARIABLE}` names `{}`, which is not a folder", folder.display()))
        }
    }

    /// Every file of the repository, by path.
    pub(crate) fn files(&self) -> Result<Vec<SourceFile>> {
        let mut found = Vec::new();
        self.collect(&self.root, &mut found)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn collect(&self, folder: &Path, found: &mut Vec<SourceFile>) -> Result<()> {
        let entries = folder.read_dir().with_context(|| format!("cannot list `{}`", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.collect(&path, found)?;
                }
            } else if kind.is_file() {
                let bytes =
                    std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
                let relative = path.strip_prefix(&self.root).expect("the walk began at the root");
                found.push(SourceFile {
                    path: relative.to_string_lossy().into_owned(),
                    text: String::from_utf8(bytes).ok(),
                });
            }
        }
        Ok(())
    }

    /// A cargo command that runs at the root, with the toolchain that runs this program.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }

    /// All packages and how they depend on each other.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let output = self
            .cargo()
            .args(["metadata", "--format-version", "1", "--locked", "--no-deps"])
            .output()
            .context("cannot run `cargo metadata`")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("cannot read what `cargo metadata` printed")
    }
}

/// What `cargo metadata` prints, as far as it is read here.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
}

/// One package of the dependency tree.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency as a manifest declares it.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// The packages of the workspace itself.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}
