//! Counts the instructions of planning, and compares them with `tests/budget.json`: `cargo xtask budget`.
//!
//! Counts of the profile `dev` are as repeatable as those of `release`, and CI has built that binary already. They say
//! whether a change costs, not how fast a release is. The same file holds the writes that a pod costs, which the test
//! `write_budget.rs` in `crates/cli/tests/system` compares.

use super::measure::Kai;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use kai_testkit::shapes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Nodes of each cluster.
const NODES: usize = 100;
/// By how much a count may grow; one that shrinks by more is worth a smaller budget.
const TOLERANCE_PERCENT: u64 = 3;
const FILE: &str = "tests/budget.json";
/// The member of the file with the counts of this step.
const SECTION: &str = "instructions";

type Counts = BTreeMap<String, u64>;

/// Why instructions cannot be counted here, if so.
pub(crate) fn missing() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some(format!("the budget is for x86_64, and this is {}", std::env::consts::ARCH));
    }
    let mut version = Command::new("valgrind");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    match version.status() {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("`valgrind --version` ended with {status}")),
        Err(error) => Some(format!("valgrind cannot be run: {error}")),
    }
}

/// Why there is nothing to compare, if so.
pub(crate) fn unset(repository: &Repository) -> Result<Option<String>> {
    let budget = read(&repository.root.join(FILE))?;
    let why = || format!("`{FILE}` has no instructions; hint: UPDATE=1 cargo xtask budget");
    Ok(budget.is_empty().then(why))
}

pub(crate) fn run(repository: &Repository) -> Result<()> {
    if let Some(why) = missing() {
        bail!("instructions are not counted: {why}; hint: apt-get install valgrind");
    }
    let target = repository.metadata()?.target_directory;
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let kai = Kai::development(repository, &target)?;
    let mut counts = Counts::new();
    for shape in shapes::SHAPES {
        let snapshot = folder.join(format!("{}-{NODES}.zip", shape.name));
        shapes::write_zip(shape, NODES, &snapshot)
            .with_context(|| format!("cannot write `{}`", snapshot.display()))?;
        let count = kai.instructions(&snapshot)?.context("valgrind was there a moment ago")?;
        println!("{:16} {:8.1} million instructions", shape.name, count as f64 / 1e6);
        counts.insert(shape.name.to_owned(), count);
    }
    let path = repository.root.join(FILE);
    if std::env::var_os("UPDATE").is_some() {
        return update(&path, &counts);
    }
    let (excess, savings) = compare(&read(&path)?, &counts);
    for saving in &savings {
        println!("{saving}; hint: UPDATE=1 cargo xtask budget");
    }
    if !excess.is_empty() {
        bail!("{}; hint: where that is meant, UPDATE=1 cargo xtask budget", excess.join("; "));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Counts> {
    let file = parse(path)?;
    let section = file.get(SECTION).cloned().unwrap_or_default();
    if section.is_null() {
        return Ok(Counts::new());
    }
    serde_json::from_value(section).with_context(|| format!("`{SECTION}` of `{}`", path.display()))
}

fn parse(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("`{}` is no JSON", path.display()))
}

/// Replaces the counts of this step.
fn update(path: &Path, counts: &Counts) -> Result<()> {
    let mut file = parse(path)?;
    kai_object::set(&mut file, &[SECTION], serde_json::to_value(counts).context("counts have text keys")?);
    let text = serde_json::to_string_pretty(&file).context("a value is JSON")? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// What costs more than its budget, and what costs less.
fn compare(budget: &Counts, counts: &Counts) -> (Vec<String>, Vec<String>) {
    let (mut excess, mut savings) = (Vec::new(), Vec::new());
    for (shape, count) in counts {
        let Some(allowed) = budget.get(shape).filter(|allowed| **allowed > 0) else {
            excess.push(format!("shape `{shape}` has no budget"));
            continue;
        };
        let text = || {
            let growth = 100.0 * (*count as f64 / *allowed as f64 - 1.0);
            format!("shape `{shape}`: {count} instructions, {allowed} are budgeted ({growth:+.1} %)")
        };
        let tolerated = allowed.saturating_mul(TOLERANCE_PERCENT) / 100;
        if *count > allowed.saturating_add(tolerated) {
            excess.push(text());
        } else if *count < allowed.saturating_sub(tolerated) {
            savings.push(text());
        }
    }
    (excess, savings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_tolerance_fails_and_shrinkage_is_reported() {
        let of = |counts: &[(&str, u64)]| -> Counts {
            counts.iter().map(|(shape, count)| ((*shape).to_owned(), *count)).collect()
        };
        let budget = of(&[("a", 1_000), ("b", 1_000), ("c", 1_000)]);
        let (excess, savings) = compare(&budget, &of(&[("a", 1_030), ("b", 1_031), ("c", 960), ("d", 1)]));
        let expected =
            ["shape `b`: 1031 instructions, 1000 are budgeted (+3.1 %)", "shape `d` has no budget"];
        assert_eq!(excess, expected);
        assert_eq!(savings, ["shape `c`: 960 instructions, 1000 are budgeted (-4.0 %)"]);
    }
}
