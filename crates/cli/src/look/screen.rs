//! Where a view is shown again and again: written over on a terminal, one after the other elsewhere.

use anyhow::Result;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

/// Where views go.
pub(super) struct Screen {
    is_terminal: bool,
}

impl Screen {
    /// Standard output, for people to look at.
    pub(super) fn for_people() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal() }
    }

    /// Standard output, for programs to read line by line.
    pub(super) fn for_programs() -> Self {
        Self { is_terminal: false }
    }

    /// Whether views are written over.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows a view in place of the last one.
    pub(super) fn show(&mut self, text: &str) -> Result<()> {
        crate::print(&if self.is_terminal { over(text) } else { text.to_owned() })
    }

    /// Leaves the last view where it is.
    pub(super) fn end(&self) -> Result<()> {
        if self.is_terminal { crate::print("\n") } else { Ok(()) }
    }
}

/// A text that takes the place of what is on a terminal, line by line, so that nothing flickers.
fn over(text: &str) -> String {
    let mut all = "\x1b[H".to_owned();
    for line in text.lines() {
        writeln!(all, "{line}\x1b[K").expect("writing to a string");
    }
    all + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_before_is_cleared_line_by_line() {
        assert_eq!(over("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
