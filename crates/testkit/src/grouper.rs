//! Replays KAI's recorded pod groups: the objects of a case are put into a store, and its pods are grouped offline.
//!
//! A pod is looked at when KAI's grouper would look at it: when the case created or changed it, when its group was written
//! into it, and again after an error. That the live grouper looks again at other occasions is tested where it runs.

mod case;
mod compare;
mod difference;
mod store;

use crate::session::{CaseOutcome, CaseResult};
use anyhow::{Context, Result};
use case::Case;
use std::fs;
use std::path::Path;
use store::World;

/// Replays the cases of a folder.
pub fn run(folder: &Path) -> Result<Vec<CaseResult>> {
    let cases = folder.join("cases");
    let entries = fs::read_dir(&cases).with_context(|| format!("cannot list `{}`", cases.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut results = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let case = Case::parse(&text).with_context(|| format!("cannot read `{}`", path.display()))?;
        results.push(CaseResult { area: "grouper".to_owned(), id: case.id.clone(), outcome: replay(&case)? });
    }
    Ok(results)
}

fn replay(case: &Case) -> Result<CaseOutcome> {
    let mut world = World::new(case)?;
    let mut differences = compare::Differences::default();
    for (index, step) in case.steps.iter().enumerate() {
        world.play(step)?;
        differences.state.extend(compare::state(case, &world, step, index));
    }
    if let Some(calls) = &case.calls {
        differences.calls = compare::calls(calls, &world.calls);
        differences.has_more_calls = compare::has_more_calls(calls, &world.calls);
    }
    if differences.is_empty() {
        return Ok(CaseOutcome::Passed);
    }
    Ok(match difference::explain(case, &differences) {
        Some(id) => CaseOutcome::ByDesign(id),
        None => CaseOutcome::Failed(differences.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs KAI_REFERENCE; cargo xtask ci runs it"]
    fn recorded_workloads_are_grouped_as_kai_does() {
        let folder = std::env::var_os("KAI_REFERENCE").expect("KAI_REFERENCE names the reference folder");
        let results = run(&Path::new(&folder).join("conformance/grouper")).unwrap();
        let failed: Vec<_> =
            results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Failed(_))).collect();
        assert!(
            failed.is_empty() && !results.is_empty(),
            "{} of {}: {failed:#?}",
            failed.len(),
            results.len()
        );
    }
}
