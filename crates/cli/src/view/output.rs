//! Standard output of `--watch`: redrawn in place on a terminal, appended elsewhere.

use anyhow::Result;
use std::fmt::Write as _;

pub(super) struct Output {
    is_terminal: bool,
}

impl Output {
    pub(super) fn detect() -> Self {
        Self { is_terminal: crate::is_terminal(&std::io::stdout()) }
    }

    /// For programs that read line by line.
    pub(super) fn lines() -> Self {
        Self { is_terminal: false }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub(super) fn show(&mut self, text: &str) -> Result<()> {
        crate::print(&if self.is_terminal { redraw(text) } else { text.to_owned() })
    }

    /// Leaves the last output in place.
    pub(super) fn finish(&self) -> Result<()> {
        if self.is_terminal { crate::print("\n") } else { Ok(()) }
    }
}

/// Overwrites the terminal line by line, which does not flicker as clearing it would.
fn redraw(text: &str) -> String {
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
    fn each_line_is_cleared_to_its_end() {
        assert_eq!(redraw("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
