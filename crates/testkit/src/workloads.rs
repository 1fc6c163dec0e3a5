//! The workloads in `tests/grouper`: a manifest as users write it, the pods that its controller creates, and the pod groups
//! that the grouper makes of them. `docs/workloads.md` is generated from them and from the table of kinds.

mod page;

use anyhow::{Context, Result, ensure};
use kai_podgrouper::Options;
use kai_podgrouper::offline::{self, Report};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

pub use page::page;

/// Where the page is.
pub const PAGE: &str = "docs/workloads.md";
/// Where the workloads are: a folder for each kind, in it one for each case.
const FOLDER: &str = "tests/grouper";

/// A workload with its pods and groups.
#[derive(Debug)]
pub struct Case {
    /// `jobset/in-order`
    pub name: String,
    folder: PathBuf,
    /// The manifest as text.
    pub manifest: String,
    /// The pods and what is between them and the workload; the first line says where they come from.
    pub pods: String,
    /// The expected pod groups.
    pub groups: String,
}

impl Case {
    /// The objects of the manifest.
    pub fn objects(&self) -> Result<Vec<Value>> {
        parse(&self.manifest).with_context(|| format!("cannot read the manifest of `{}`", self.name))
    }

    /// The objects of the manifest with the pods.
    pub fn objects_with_pods(&self) -> Result<Vec<Value>> {
        let pods = parse(&self.pods).with_context(|| format!("cannot read the pods of `{}`", self.name))?;
        let mut objects = self.objects()?;
        objects.extend(pods);
        Ok(objects)
    }

    /// Writes the pods.
    pub fn write_pods(&self, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.join("pods.yaml"), text)?)
    }

    /// Writes the expected pod groups.
    pub fn write_groups(&self, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.join("podgroups.yaml"), text)?)
    }
}

/// All cases of a repository, in the order of their names.
pub fn cases(root: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for kind in folders(&root.join(FOLDER))? {
        for folder in folders(&kind)? {
            let last = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
            let name = format!("{}/{}", last(&kind), last(&folder));
            let (manifest, pods, groups) = (read("manifest.yaml"), read("pods.yaml"), read("podgroups.yaml"));
            ensure!(!manifest.is_empty() && !pods.is_empty(), "`{name}` needs manifest.yaml and pods.yaml");
            cases.push(Case { name, folder, manifest, pods, groups });
        }
    }
    Ok(cases)
}

fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path).with_context(|| format!("cannot list `{}`", path.display()))?;
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.retain(|path| path.is_dir());
    found.sort();
    Ok(found)
}

/// The objects of a YAML stream.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// Groups objects with the default options of the grouper.
pub fn group(objects: &[Value]) -> Report {
    offline::group(objects, &Options::default())
}

/// The pod groups as `podgroups.yaml` has them. Groups that differ in nothing but uids are counted.
pub fn as_yaml(report: &Report) -> Result<String> {
    let mut parts: Vec<(u32, String)> = Vec::new();
    for group in &report.groups {
        let pods = group.pods();
        let in_sub_group = pods.iter().map(|(name, count)| match *name {
            "" => count.to_string(),
            name => format!("{name} {count}"),
        });
        let pods: Vec<String> = in_sub_group.collect();
        let part = format!("# pods: {}\n{}", pods.join(", "), serde_saphyr::to_string(&group.object())?);
        match parts.iter_mut().find(|(_, known)| *known == part) {
            Some((count, _)) => *count = count.saturating_add(group.groups),
            None => parts.push((group.groups, part)),
        }
    }
    let mut text = String::new();
    for (count, part) in parts {
        let many = if count == 1 { String::new() } else { format!("# {count} such groups\n") };
        write!(text, "---\n{many}{}\n", part.trim_end())?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
