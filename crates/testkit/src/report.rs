//! Replays recorded cases and reports each failure with its difference, a line per area, and one closing line.

use crate::calls::{self, CallOutcome};
use crate::random;
use crate::session::{self, CaseOutcome, CaseResult};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Kinds of recordings that other crates replay. Without a [`Replay`] their cases are counted as not yet replayed.
const KINDS: [&str; 4] = ["grouper", "admission", "operator", "chart"];

/// Replays one kind of recordings: `run` gets its folder.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// The name of the folder.
    pub kind: &'static str,
    pub run: fn(&Path) -> Result<Vec<CaseResult>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    by_design: usize,
    not_yet: usize,
}

impl Counts {
    fn add(&mut self, outcome: &CaseOutcome) {
        match outcome {
            CaseOutcome::Passed => self.passed += 1,
            CaseOutcome::Failed(_) => self.failed += 1,
            CaseOutcome::ByDesign(_) => self.by_design += 1,
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, by_design, not_yet } = self;
        // Scripts parse this form.
        write!(f, "{passed} passed, {failed} failed, {by_design} differ by design, {not_yet} not yet")
    }
}

/// The recordings that a folder contains, by how they are replayed.
#[derive(Debug, Default)]
struct Recordings {
    /// The folder, if it has session cases.
    sessions: Option<PathBuf>,
    /// Folders with recorded calls.
    calls: Vec<PathBuf>,
    random: Option<PathBuf>,
    random_archive: Option<PathBuf>,
    /// Folders of other kinds, with the replay if there is one.
    kinds: Vec<(&'static str, PathBuf, Option<Replay>)>,
}

/// Kinds that are not replayed, with the number of their cases.
type NotYet = Vec<(&'static str, usize)>;

impl Recordings {
    fn find(dir: &Path, replays: &[Replay]) -> Result<Self> {
        let replay = |kind| replays.iter().find(|replay| replay.kind == kind).copied();
        // The folder of one kind itself has `cases` too, of another format.
        let itself = KINDS.into_iter().find(|kind| dir.file_name().is_some_and(|name| name == *kind));
        if let Some(kind) = itself {
            return Ok(Self { kinds: vec![(kind, dir.to_owned(), replay(kind))], ..Self::default() });
        }
        let below = |name: &str| Some(dir.join(name)).filter(|path| path.exists());
        let cases = below("cases");
        let kinds = KINDS.into_iter().filter_map(|kind| Some((kind, below(kind)?, replay(kind)))).collect();
        let found = Self {
            sessions: cases.as_ref().map(|_| dir.to_owned()),
            calls: cases.into_iter().chain(below("calls")).collect(),
            random: below("random"),
            random_archive: below("random.zip"),
            kinds,
        };
        let Self { sessions, calls, random, random_archive, kinds } = &found;
        if sessions.is_none()
            && calls.is_empty()
            && random.is_none()
            && random_archive.is_none()
            && kinds.is_empty()
        {
            bail!(
                "`{}` has no recordings\nhint: it must contain some of cases, calls, random, random.zip, {}",
                dir.display(),
                KINDS.join(", ")
            );
        }
        Ok(found)
    }

    /// Cases of other kinds that are replayed, and the numbers of those that are not.
    fn other_kinds(&self) -> Result<(Vec<CaseResult>, NotYet)> {
        let (mut results, mut not_yet) = (Vec::new(), Vec::new());
        for (kind, folder, replay) in &self.kinds {
            match replay {
                Some(replay) => results.extend((replay.run)(folder)?),
                None => not_yet.push((*kind, count_cases(folder)?)),
            }
        }
        Ok((results, not_yet))
    }

    fn sessions_and_random(&self, filter: Option<&str>) -> Result<Vec<CaseResult>> {
        let mut results = Vec::new();
        if let Some(dir) = &self.sessions {
            results.extend(session::run(dir, filter)?);
        }
        let mut clusters = Vec::new();
        if let Some(dir) = &self.random {
            clusters.extend(random::run(dir)?);
        }
        if let Some(archive) = &self.random_archive {
            clusters.extend(random::run_archive(archive)?);
        }
        results.extend(clusters.into_iter().filter(|r| filter.is_none_or(|filter| r.id.contains(filter))));
        Ok(results)
    }
}

/// The number of case files below a folder: `cases/<id>.json` each.
fn count_cases(folder: &Path) -> Result<usize> {
    let cases = folder.join("cases");
    let entries = fs::read_dir(&cases).with_context(|| format!("cannot list `{}`", cases.display()))?;
    let mut count = 0;
    for entry in entries {
        count += usize::from(entry?.path().extension().is_some_and(|e| e == "json"));
    }
    Ok(count)
}

/// Replays every recording below `dir`, counts those of kinds without a replay, and writes the report.
///
/// Returns true when no case failed. A folder with none of the known kinds is an error.
pub fn conformance(dir: &Path, replays: &[Replay], out: &mut dyn Write) -> Result<bool> {
    let recordings = Recordings::find(dir, replays)?;
    let mut results = recordings.sessions_and_random(None)?;
    for folder in &recordings.calls {
        results.extend(calls::run(folder)?.into_iter().map(call_result));
    }
    let (others, not_yet) = recordings.other_kinds()?;
    results.extend(others);
    write_report(&results, &not_yet, out)
}

/// Replays the cases whose id contains `filter`, without recorded calls, and writes their report.
pub fn selected(dir: &Path, replays: &[Replay], filter: &str, out: &mut dyn Write) -> Result<bool> {
    let recordings = Recordings::find(dir, replays)?;
    let mut results = recordings.sessions_and_random(Some(filter))?;
    let (others, _) = recordings.other_kinds()?;
    results.extend(others.into_iter().filter(|result| result.id.contains(filter)));
    write_report(&results, &[], out)
}

/// Replays the random clusters of a zip archive and writes their report.
pub fn random_archive(archive: &Path, out: &mut dyn Write) -> Result<bool> {
    write_report(&random::run_archive(archive)?, &[], out)
}

fn call_result(result: calls::CallResult) -> CaseResult {
    let outcome = match result.outcome {
        CallOutcome::Passed => CaseOutcome::Passed,
        CallOutcome::Failed(text) => CaseOutcome::Failed(format!("    {text}\n")),
        CallOutcome::ByDesign(id) => CaseOutcome::ByDesign(id),
    };
    CaseResult { area: result.area, id: format!("{} ({})", result.id, result.function), outcome }
}

fn write_report(
    results: &[CaseResult],
    not_yet: &[(&'static str, usize)],
    out: &mut dyn Write,
) -> Result<bool> {
    let mut areas: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut sum = Counts::default();
    for result in results {
        areas.entry(&result.area).or_default().add(&result.outcome);
        sum.add(&result.outcome);
        match &result.outcome {
            CaseOutcome::Failed(text) => write!(out, "FAILED {}\n{text}", result.id)?,
            CaseOutcome::ByDesign(id) => writeln!(out, "differs by design ({id}): {}", result.id)?,
            CaseOutcome::Passed => {}
        }
    }
    for &(kind, cases) in not_yet {
        areas.entry(kind).or_default().not_yet += cases;
        sum.not_yet += cases;
        writeln!(out, "not yet: {cases} cases of `{kind}` were counted, not replayed")?;
    }
    for (area, counts) in areas {
        writeln!(out, "{area}: {counts}")?;
    }
    writeln!(out, "{sum}")?;
    Ok(sum.failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("kai-report-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn report(dir: &Path) -> (bool, String) {
        let mut out = Vec::new();
        let passed = conformance(dir, &[], &mut out).unwrap();
        (passed, String::from_utf8(out).unwrap())
    }

    #[test]
    fn kinds_without_a_replay_are_counted_as_not_yet() {
        let dir = scratch("not-yet");
        for (kind, cases) in [("grouper", 3), ("chart", 1)] {
            let folder = dir.join(kind).join("cases");
            fs::create_dir_all(&folder).unwrap();
            for case in 0..cases {
                fs::write(folder.join(format!("{case}.json")), "{}").unwrap();
            }
            fs::write(folder.join("notes.txt"), "").unwrap();
        }
        let (passed, text) = report(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!(passed);
        assert!(text.contains("not yet: 3 cases of `grouper`"), "{text}");
        assert!(text.contains("chart: 0 passed, 0 failed, 0 differ by design, 1 not yet\n"), "{text}");
        assert!(text.ends_with("\n0 passed, 0 failed, 0 differ by design, 4 not yet\n"), "{text}");
    }

    #[test]
    fn kind_with_a_replay_is_replayed() {
        let dir = scratch("replayed");
        fs::create_dir_all(dir.join("grouper/cases")).unwrap();
        let run = |folder: &Path| {
            assert!(folder.ends_with("grouper"));
            let failed = CaseOutcome::Failed("    no\n".to_owned());
            Ok(vec![CaseResult { area: "grouper".to_owned(), id: "grouper/a".to_owned(), outcome: failed }])
        };
        let mut out = Vec::new();
        let passed = conformance(&dir, &[Replay { kind: "grouper", run }], &mut out).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!passed && text.ends_with("\n0 passed, 1 failed, 0 differ by design, 0 not yet\n"), "{text}");
    }

    #[test]
    fn folder_without_recordings_is_an_error() {
        let dir = scratch("empty");
        let error = conformance(&dir, &[], &mut Vec::new()).unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert!(error.contains("has no recordings") && error.contains("hint:"), "{error}");
    }

    #[test]
    fn folder_with_only_random_clusters_is_replayed() {
        let dir = scratch("random");
        fs::create_dir_all(dir.join("random")).unwrap();
        fs::write(dir.join("random/0000.zip"), "not a snapshot").unwrap();
        fs::write(dir.join("random/0000.txt"), "").unwrap();
        let (passed, text) = report(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!(!passed);
        assert!(text.starts_with("FAILED random/0000\n"), "{text}");
        assert!(text.ends_with("\n0 passed, 1 failed, 0 differ by design, 0 not yet\n"), "{text}");
    }

    #[test]
    fn folder_of_one_kind_is_replayed_as_that_kind() {
        let found = Recordings::find(Path::new("recorded/grouper"), &[]).unwrap();
        assert_eq!(found.kinds.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), ["grouper"]);
        assert!(found.sessions.is_none() && found.calls.is_empty());
    }
}
