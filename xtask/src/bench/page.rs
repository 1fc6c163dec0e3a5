//! The page `docs/performance.md`, whose parts are written by different benches.

use crate::repository::Repository;
use anyhow::{Context, Result};

/// A part of the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The title and everything about planning.
    Planning,
    /// The section about the embedded API server, without its heading.
    ApiServer,
    /// The section about filling a cluster on a real control plane, without its heading.
    Filled,
    /// The section about filling the embedded cluster, without its heading.
    FilledEmbedded,
    /// The section about KAI's scale tests on a real control plane, without its heading.
    Scale,
    /// The section about KAI's scale tests on the embedded cluster, without its heading.
    ScaleEmbedded,
    /// The section about a large cluster at rest, without its heading.
    Steady,
    /// The section about restarts in a large cluster, without its heading.
    Restart,
    /// The section about grouping pods, without its heading.
    Grouper,
    /// The section about webhook calls, without its heading.
    Admission,
    /// The section about hints, without its heading.
    Why,
}

/// What each section begins with, in the order of the page; everything before them is about planning.
const SECTIONS: [(Part, &str); 10] = [
    (Part::ApiServer, "## The embedded API server\n"),
    (Part::Filled, "## Filling a cluster\n"),
    (Part::FilledEmbedded, "## Filling the embedded cluster\n"),
    (Part::Scale, "## KAI's scale tests\n"),
    (Part::ScaleEmbedded, "## KAI's scale tests on the embedded cluster\n"),
    (Part::Steady, "## A large cluster at rest\n"),
    (Part::Restart, "## Restarts in a large cluster\n"),
    (Part::Grouper, "## Grouping pods\n"),
    (Part::Admission, "## Webhook calls\n"),
    (Part::Why, "## Hints\n"),
];

/// Replaces one part of the page and leaves the others.
pub(super) fn write(repository: &Repository, part: Part, text: &str) -> Result<()> {
    let path = repository.root.join("docs/performance.md");
    let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    std::fs::write(&path, replaced(&page, part, text))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

fn replaced(page: &str, part: Part, text: &str) -> String {
    let mut rest = page;
    let mut found = Vec::new();
    for (section, heading) in SECTIONS.into_iter().rev() {
        if let Some((before, text)) = rest.split_once(heading) {
            found.push((section, text));
            rest = before;
        }
    }
    let planning = if part == Part::Planning { text } else { rest };
    let mut page = planning.to_owned();
    for (section, heading) in SECTIONS {
        let known = found.iter().find(|(known, _)| *known == section).map(|(_, text)| text.trim_start());
        if let Some(text) = if section == part { Some(text) } else { known } {
            page = format!("{}\n\n{heading}\n{}\n", page.trim_end(), text.trim_end());
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_replaced_alone() {
        let page = replaced("# Title\n\nold\n", Part::ApiServer, "fast\n");
        assert_eq!(page, "# Title\n\nold\n\n## The embedded API server\n\nfast\n");
        let page = replaced(&page, Part::Planning, "# Title\n\nnew\n");
        assert_eq!(page, "# Title\n\nnew\n\n## The embedded API server\n\nfast\n");
        let page = replaced(&page, Part::ApiServer, "faster\n");
        assert_eq!(page, "# Title\n\nnew\n\n## The embedded API server\n\nfaster\n");
    }

    #[test]
    fn sections_keep_their_order() {
        let page = replaced("# Title\n", Part::Filled, "full\n");
        let page = replaced(&page, Part::ApiServer, "fast\n");
        assert_eq!(page, "# Title\n\n## The embedded API server\n\nfast\n\n## Filling a cluster\n\nfull\n");
    }

    #[test]
    fn a_page_with_planning_alone_stays_so() {
        assert_eq!(replaced("# Title\n", Part::Planning, "# New\n"), "# New\n");
    }
}
