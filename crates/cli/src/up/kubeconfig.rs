//! The kubeconfig of the embedded cluster: its default path, and protection of files that `kai up` did not write.

use anyhow::{Context, Result, anyhow, bail};
use kai_apiserver::Listening;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the administrator, by which a kubeconfig of `kai up` is recognised.
const MARKER: &str = "kai-admin";

pub(super) struct Kubeconfig {
    path: PathBuf,
    text: String,
}

impl Kubeconfig {
    pub(super) fn write(path: PathBuf, listening: &Listening) -> Result<Self> {
        check(&path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create directory `{}`", folder.display()))?;
        }
        listening.write_kubeconfig(&path).map_err(|error| {
            anyhow!("{:#}; hint: select another file with --kubeconfig", anyhow::Error::from(error))
        })?;
        Ok(Self { path, text: listening.kubeconfig() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, unless another cluster has overwritten it.
    pub(super) fn remove(self) {
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // A stale file refers to a stopped cluster and is overwritten by the next one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Rejects a path with a file that `kai up` did not write, such as `~/.kube/config`.
pub(super) fn check(path: &Path) -> Result<()> {
    let Ok(text) = std::fs::read(path) else { return Ok(()) };
    let is_own = String::from_utf8_lossy(&text).contains(MARKER);
    if !is_own && !text.is_empty() {
        bail!(
            "`{}` exists and was not written by `kai up`, so it is not overwritten; hint: select another file with --kubeconfig",
            path.display()
        );
    }
    Ok(())
}

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
    fn default_path_is_in_the_state_directory() {
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
