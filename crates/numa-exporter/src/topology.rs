//! The NUMA zones of the CPUs of this machine, from sysfs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// No machine has more; a range beyond is not read.
const CPUS_MAX: u32 = 1 << 16;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{path}`\nhint: mount the sysfs of the node, and name it with --sysfs-root")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{path}` has `{text}`, which is no list of CPUs such as 0-3,8")]
    Malformed { path: PathBuf, text: String },
    #[error("`{path}` has no NUMA zone with CPUs")]
    NoCpus { path: PathBuf },
}

/// The zone of every CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuZones(BTreeMap<u64, u64>);

impl CpuZones {
    pub fn zone(&self, cpu: u64) -> Option<u64> {
        self.0.get(&cpu).copied()
    }

    /// The number of zones with CPUs.
    pub fn zones(&self) -> usize {
        self.0.values().collect::<BTreeSet<_>>().len()
    }
}

impl FromIterator<(u64, u64)> for CpuZones {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(pairs: T) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// Reads `devices/system/node/node*/cpulist` below the root. Zones without CPUs, which have only memory, are left out.
pub fn read(sysfs: &Path) -> Result<CpuZones, Error> {
    let folder = sysfs.join("devices/system/node");
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Unreadable { path, source }
    };
    let mut zones = CpuZones::default();
    for entry in std::fs::read_dir(&folder).map_err(unreadable(&folder))? {
        let entry = entry.map_err(unreadable(&folder))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u64>().ok());
        let Some(zone) = number else { continue };
        let path = entry.path().join("cpulist");
        let text = std::fs::read_to_string(&path).map_err(unreadable(&path))?;
        let cpus =
            cpu_list(text.trim()).ok_or_else(|| Error::Malformed { path, text: text.trim().to_owned() })?;
        zones.0.extend(cpus.into_iter().map(|cpu| (u64::from(cpu), zone)));
    }
    if zones.0.is_empty() { Err(Error::NoCpus { path: folder }) } else { Ok(zones) }
}

/// The CPUs of a list such as `0-3,8`; none where it is malformed.
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_numbers_and_ranges() {
        for (text, expected) in [
            ("0-3,8", Some(vec![0, 1, 2, 3, 8])),
            (" 1 , 4 - 5 ", Some(vec![1, 4, 5])),
            ("", Some(vec![])),
            ("3-1", None),
            ("a", None),
            ("0-4294967295", None),
            ("-1", None),
        ] {
            assert_eq!(cpu_list(text), expected, "{text}");
        }
    }
}
