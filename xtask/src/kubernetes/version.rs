//! The Go module that builds one version of Kubernetes.
//!
//! `k8s.io/kubernetes` replaces its own libraries (`k8s.io/api` and so on) by folders of its repository, which other modules
//! cannot use; they are published as `v0.MINOR.PATCH`. Its `go.mod` lists them, and the version of etcd that it is tested with.

use super::go;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// A version of Kubernetes: `v1.MINOR.PATCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) minor: u32,
    patch: u32,
}

impl Version {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let parts = text.strip_prefix("v1.").and_then(|rest| rest.split_once('.'));
        let numbers = parts.and_then(|(minor, patch)| Some((minor.parse().ok()?, patch.parse().ok()?)));
        let (minor, patch) = numbers.with_context(|| format!("`{text}` is no version such as v1.34.1"))?;
        Ok(Self { minor, patch })
    }

    /// The version of the libraries.
    fn of_libraries(self) -> String {
        format!("v0.{}.{}", self.minor, self.patch)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}.{}", self.minor, self.patch)
    }
}

/// Writes the module into a folder, unless it is there: a build completes it.
pub(super) fn write_module(version: Version, folder: &Path) -> Result<()> {
    let file = folder.join("go.mod");
    if file.is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let published = std::fs::read_to_string(download(version, folder)?)
        .with_context(|| format!("cannot read the module of Kubernetes {version}"))?;
    // Tidying needs the packages that are built.
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
    };
    write(&folder.join("go.sum"), "")?;
    write(&file, &module(version, &published)?)?;
    let mut tidy = go();
    tidy.current_dir(folder).args(["mod", "tidy"]);
    let status = tidy.status().context("cannot run `go`")?;
    if !status.success() {
        // Otherwise the next call would take it for complete.
        std::fs::remove_file(&file).with_context(|| format!("cannot remove `{}`", file.display()))?;
        bail!("{tidy:?} ended with {status}");
    }
    Ok(())
}

/// Downloads Kubernetes; returns the path of its `go.mod`.
fn download(version: Version, folder: &Path) -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Downloaded {
        go_mod: PathBuf,
    }
    let module = format!("k8s.io/kubernetes@{version}");
    let output = go().current_dir(folder).args(["mod", "download", "-json", &module]).output();
    let output = output.context("cannot run `go`")?;
    ensure!(
        output.status.success(),
        "cannot download `{module}`: {}",
        String::from_utf8_lossy(&output.stdout).trim()
    );
    let downloaded: Downloaded =
        serde_json::from_slice(&output.stdout).context("`go mod download -json` printed something else")?;
    Ok(downloaded.go_mod)
}

/// The text of the module, given Kubernetes' own.
fn module(version: Version, published: &str) -> Result<String> {
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let go = published.lines().find_map(|line| line.strip_prefix("go "));
    let go = go.context("the module of Kubernetes names no version of Go")?;
    // Modules with tools exist since Go 1.24.
    let minor: u32 = go.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    let go = if minor < 24 { "1.24.0" } else { go };
    let etcd = published.lines().map(words).find_map(|words| match &words[..] {
        [module, version, ..] if module == "go.etcd.io/etcd/client/v3" => Some(version.clone()),
        _ => None,
    });
    let etcd = etcd.context("the module of Kubernetes names no version of etcd")?;
    let libraries = version.of_libraries();
    let replaced = published.lines().filter_map(|line| {
        let (module, folder) = line.trim().trim_start_matches("replace ").split_once(" => ")?;
        let module = module.trim();
        folder.trim().starts_with("./staging/").then(|| format!("\t{module} => {module} {libraries}\n"))
    });
    let replaced: String = replaced.collect();
    let tools: Vec<String> = super::PACKAGES.iter().map(|(_, package)| format!("\t{package}\n")).collect();
    let tools = tools.concat();
    Ok(format!(
        "module kubernetes\n\ngo {go}\n\ntool (\n{tools})\n\nrequire (\n\tk8s.io/kubernetes {version}\n\tgo.etcd.io/etcd/server/v3 {etcd}\n)\n\nreplace (\n{replaced})\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_replaces_the_libraries_and_uses_the_same_etcd() {
        let published = "module k8s.io/kubernetes\n\ngo 1.24.0\n\nrequire (\n\tgo.etcd.io/etcd/client/v3 v3.6.4\n)\n\n\
                         replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\texample.com/x => example.com/y v1.0.0\n)\n";
        let text = module(Version::parse("v1.34.1").unwrap(), published).unwrap();
        assert!(text.contains("\ngo 1.24.0\n") && text.contains("\tk8s.io/kubernetes v1.34.1\n"), "{text}");
        assert!(text.contains("\tgo.etcd.io/etcd/server/v3 v3.6.4\n"), "{text}");
        assert!(
            text.contains("\tk8s.io/api => k8s.io/api v0.34.1\n") && !text.contains("example.com"),
            "{text}"
        );
    }

    #[test]
    fn only_versions_of_kubernetes_are_accepted() {
        for text in ["", "1.34.1", "v1.34", "v2.0.0", "v1.34.1/../x", "v1.a.1"] {
            assert!(Version::parse(text).is_err(), "{text}");
        }
    }
}
