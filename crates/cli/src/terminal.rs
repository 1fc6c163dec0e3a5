//! The terminal that standard output is connected to: its width.

/// The variable with the width, which shells set and programs such as `ls` follow.
const COLUMNS: &str = "COLUMNS";
/// Width of a terminal that does not say.
const DEFAULT_WIDTH: usize = 80;

/// Columns of standard output: what `COLUMNS` says, else those of the terminal. A pipe or a file has no limit, so that each
/// row of a table is one line and nothing is cut.
pub(crate) fn width() -> Option<usize> {
    let set = std::env::var(COLUMNS).ok().and_then(|text| text.trim().parse().ok());
    if let Some(columns) = set.filter(|columns| *columns > 0) {
        return Some(columns);
    }
    crate::is_terminal(&std::io::stdout()).then(|| {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH)
    })
}
