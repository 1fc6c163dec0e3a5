//! The file with which `kubectl` reaches the cluster: where it goes, what it must not overwrite, and its end.

use anyhow::{Context, Result, anyhow, bail};
use kai_apiserver::Listening;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Only we call the administrator so: a file without it is somebody else's.
const OURS: &str = "kai-admin";

/// A file that was written for a running cluster.
pub(super) struct Kubeconfig {
    path: PathBuf,
    text: String,
}

impl Kubeconfig {
    /// Writes the administrator's access.
    pub(super) fn write(path: PathBuf, listening: &Listening) -> Result<Self> {
        check(&path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
        }
        listening.write_kubeconfig(&path).map_err(|error| {
            anyhow!("{:#}; hint: choose another file with --kubeconfig", anyhow::Error::from(error))
        })?;
        Ok(Self { path, text: listening.kubeconfig() })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file away, unless another cluster wrote its own there meanwhile.
    pub(super) fn remove(self) {
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // What is left leads nowhere and harms nobody.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses to write over a file that `kai up` did not write, such as one's own `~/.kube/config`.
pub(super) fn check(path: &Path) -> Result<()> {
    let Ok(text) = std::fs::read(path) else { return Ok(()) };
    let is_ours = String::from_utf8_lossy(&text).contains(OURS);
    if !is_ours && !text.is_empty() {
        bail!(
            "`{}` is there and is not from `kai up`, so it is left alone; hint: choose another file with --kubeconfig",
            path.display()
        );
    }
    Ok(())
}

/// Where the file goes when nobody says.
pub(super) fn default_path(var: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let folder = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .map_or_else(|| PathBuf::from("kai-kubeconfig"), |state| state.join("kai/kubeconfig"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_goes_to_the_state_folder() {
        let path = |variables: &[(&str, &str)]| {
            default_path(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(path(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Path::new("/s/kai/kubeconfig"));
        assert_eq!(
            path(&[("XDG_STATE_HOME", ""), ("HOME", "/h")]),
            Path::new("/h/.local/state/kai/kubeconfig")
        );
        assert_eq!(path(&[]), Path::new("kai-kubeconfig"));
    }
}
