//! Repository rules that no compiler checks.
//!
//! Each check returns complaints, never stops at the first, and names file and line where there is one.

mod edges;
mod features;
mod generated;
mod links;
mod references;
mod scenario_ids;
mod sources;
mod words;

use crate::repository::Repository;
use anyhow::{Result, bail};

/// Checks everything and prints what is wrong.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let complaints = complaints(repository)?;
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    if !complaints.is_empty() {
        bail!("{} repository rules are broken", complaints.len());
    }
    println!("tidy: no complaints");
    Ok(())
}

fn complaints(repository: &Repository) -> Result<Vec<String>> {
    let files = repository.files()?;
    let metadata = repository.metadata()?;
    let mut found = edges::check(&metadata);
    found.extend(features::check());
    found.extend(sources::check(&files));
    found.extend(links::check(&files));
    found.extend(generated::check(&files));
    found.extend(references::check(&files));
    found.extend(scenario_ids::check(&files));
    found.extend(words::check(&files));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let repository = Repository::find().expect("the repository is there");
        let found = complaints(&repository).expect("the checks can run");
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
