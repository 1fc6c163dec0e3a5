//! Renders the chart with the values of recorded cases.

use crate::helm;
use crate::repository::Repository;
use anyhow::Result;
use kai_testkit::chart::{self, Renderer};
use kai_testkit::session::CaseResult;
use std::path::Path;

/// Renders the cases that need no cluster; none where helm cannot be built.
pub(super) fn run(folder: &Path) -> Result<Vec<CaseResult>> {
    let repository = Repository::find()?;
    let helm = match helm::program(&repository) {
        Ok(helm) => helm,
        Err(error) => {
            println!("the chart is not rendered: {error:#}");
            return Ok(Vec::new());
        }
    };
    let renderer = Renderer { helm, chart: repository.root.join("charts/kai-scheduler") };
    let (results, others) = chart::run(folder, &renderer)?;
    if others > 0 {
        println!("{others} cases of `chart` look objects up in a cluster and are not rendered");
    }
    Ok(results)
}
