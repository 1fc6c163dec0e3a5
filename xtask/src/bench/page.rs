//! The page `docs/performance.md`, whose parts are written by different benches.

use super::e2e;
use crate::repository::Repository;
use anyhow::{Context, Result};

/// What the part about the API server begins with; everything before it is about planning.
const API_SERVER: &str = "## The embedded API server\n";

/// A part of the page.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// The title and everything about planning.
    Planning,
    /// The section about the embedded API server, without its heading.
    ApiServer,
}

/// Replaces one part of the page and leaves the other.
pub(super) fn write(repository: &Repository, part: Part, text: &str) -> Result<()> {
    let path = repository.root.join("docs/performance.md");
    let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    // What is said about a filled cluster stands between marks of its own.
    let text = e2e::keep(&page, &replaced(&e2e::without_sections(&page), part, text));
    std::fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

fn replaced(page: &str, part: Part, text: &str) -> String {
    let (planning, api_server) = match page.split_once(API_SERVER) {
        Some((planning, api_server)) => (planning, Some(api_server.trim_start())),
        None => (page, None),
    };
    let (planning, api_server) = match part {
        Part::Planning => (text, api_server),
        Part::ApiServer => (planning, Some(text)),
    };
    match api_server {
        Some(api_server) => format!("{}\n\n{API_SERVER}\n{api_server}", planning.trim_end()),
        None => planning.to_owned(),
    }
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
    fn a_page_with_planning_alone_stays_so() {
        assert_eq!(replaced("# Title\n", Part::Planning, "# New\n"), "# New\n");
    }
}
