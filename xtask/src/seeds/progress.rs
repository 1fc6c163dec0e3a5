//! Which seeds have passed and failed: counts by family, and a file from which an interrupted run goes on.

use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Passed and failed seeds of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

/// The results of a run.
pub(super) struct Progress {
    /// One line for each passed seed: `FAMILY SEED`.
    file: Mutex<File>,
    counts: Mutex<BTreeMap<&'static str, Count>>,
}

impl Progress {
    pub(super) fn append_to(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(Self { file: Mutex::new(file), counts: Mutex::default() })
    }

    /// Counts passed seeds, and records them for [`passed_before`].
    pub(super) fn passed(&self, family: &'static str, seeds: Range<u64>) -> Result<()> {
        self.counts.lock().entry(family).or_default().passed += seeds.end - seeds.start;
        let mut lines = String::new();
        for seed in seeds {
            writeln!(lines, "{family} {seed}")?;
        }
        // One write, so that an interruption does not leave half a line.
        self.file.lock().write_all(lines.as_bytes()).context("cannot record the progress")
    }

    pub(super) fn failed(&self, family: &'static str) {
        self.counts.lock().entry(family).or_default().failed += 1;
    }

    pub(super) fn total(&self) -> Count {
        self.counts.lock().values().fold(Count::default(), |sum, count| Count {
            passed: sum.passed + count.passed,
            failed: sum.failed + count.failed,
        })
    }

    /// Such as `requests 2500 passed, network 2499 passed and 1 failed`.
    pub(super) fn by_family(&self) -> String {
        let text = |(family, count): (&&str, &Count)| match count.failed {
            0 => format!("{family} {} passed", count.passed),
            failed => format!("{family} {} passed and {failed} failed", count.passed),
        };
        self.counts.lock().iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

/// The file of the results of some programs: other code may give other results.
pub(super) fn file_of<'a>(programs: impl IntoIterator<Item = &'a Path>, folder: &Path) -> Result<PathBuf> {
    let mut hash = DefaultHasher::new();
    for program in programs {
        let bytes = std::fs::read(program).with_context(|| format!("cannot read `{}`", program.display()))?;
        hash.write(&bytes);
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    Ok(folder.join(format!("passed-{:016x}", hash.finish())))
}

/// The seeds that a file records, by family.
pub(super) fn passed_before(path: &Path) -> BTreeMap<String, BTreeSet<u64>> {
    let mut passed: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        if let Some((family, seed)) = line.split_once(' ')
            && let Ok(seed) = seed.parse()
        {
            passed.entry(family.to_owned()).or_default().insert(seed);
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_seeds_are_counted_and_found_again() {
        let folder = std::env::temp_dir().join(format!("kai-seeds-{}", std::process::id()));
        let program = std::env::current_exe().unwrap();
        let programs = || [program.as_path()];
        let path = file_of(programs(), &folder).unwrap();
        assert_eq!(file_of(programs(), &folder).unwrap(), path, "the same program has the same file");
        let progress = Progress::append_to(&path).unwrap();
        progress.passed("leases", 3..5).unwrap();
        progress.passed("hostile", 7..8).unwrap();
        progress.failed("leases");
        assert_eq!(progress.total(), Count { passed: 3, failed: 1 });
        assert_eq!(progress.by_family(), "hostile 1 passed, leases 2 passed and 1 failed");
        // The line of an interrupted write.
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "leases").unwrap();
        let passed = passed_before(&path);
        assert_eq!(passed["leases"], BTreeSet::from([3, 4]));
        assert_eq!(passed["hostile"], BTreeSet::from([7]));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
