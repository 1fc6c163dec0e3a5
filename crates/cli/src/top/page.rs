//! A page of text over the panes: the explanation of a group, the GPUs of a node, or the help.

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

const HELP: &str = "\
Panes
  tab, ← →, 1 2 3    select a pane
  ↑ ↓, j k           select a row; page up, page down, home and end too
  s, S               sort by the next column; reverse
  r                  show GPUs, CPU or memory of queues
  a                  show all groups, or only pending ones

Objects
  enter              group: the text of `kai why`; node: its GPUs; queue: only its groups
  /                  filter: text in names of the pane, `queue:NAME` (with those below it), `ns:NAME`
  esc                clear the filter, or close a page

  ?                  this help
  q, Ctrl-C          quit

Bars of queues
  █ allocated (yellow: over quota)   ░ pending   │ quota   ◆ fair share   ◈ both   » more than fits

GPUs, one cell each
  · free   █ allocated as a whole   ▁▂▃▄▅▆▇ shared, by fraction in use   ▒ releasing   × drained: lost its reservation
";

pub(super) struct Page {
    pub(super) title: String,
    lines: Vec<(String, bool)>,
    offset: usize,
    /// Lines that were visible, and all of them, when it was last drawn.
    drawn: (usize, usize),
    /// The group that it explains, to be explained again when something has changed.
    pub(super) explains: Option<String>,
}

impl Page {
    /// Text as commands print it; bold headings stay bold.
    pub(super) fn text(title: String, text: &str) -> Self {
        Self { title, lines: lines(text), offset: 0, drawn: (0, 0), explains: None }
    }

    /// Another text at the same place.
    pub(super) fn set_text(&mut self, text: &str) {
        self.lines = lines(text);
    }

    pub(super) fn help() -> Self {
        let mut page = Self::text("help".to_owned(), HELP);
        for (line, is_bold) in &mut page.lines {
            *is_bold = !line.starts_with(' ');
        }
        page
    }

    pub(super) fn explanation(group: &str, title: &str, text: &str) -> Self {
        Self { explains: Some(group.to_owned()), ..Self::text(title.to_owned(), text) }
    }

    /// Takes the text of a page that is open, where it has been scrolled to.
    pub(super) fn replace(&mut self, page: Self) {
        self.lines = page.lines;
    }

    /// `false` closes it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        let (visible, all) = self.drawn;
        let last = all.saturating_sub(visible);
        self.offset = match key.code {
            KeyCode::Down | KeyCode::Char('j') => self.offset + 1,
            KeyCode::Up | KeyCode::Char('k') => self.offset.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.offset + visible,
            KeyCode::PageUp => self.offset.saturating_sub(visible),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?') => return false,
            _ => self.offset,
        }
        .min(last);
        true
    }

    pub(super) fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let wrapped = self.lines.iter().flat_map(|(line, is_bold)| {
            wrap(line, usize::from(area.width)).into_iter().map(move |part| (part, *is_bold))
        });
        let wrapped: Vec<(String, bool)> = wrapped.collect();
        let visible = usize::from(area.height);
        self.drawn = (visible, wrapped.len());
        self.offset = self.offset.min(wrapped.len().saturating_sub(visible));
        for (y, (text, is_bold)) in (area.y..).zip(wrapped.iter().skip(self.offset).take(visible)) {
            let style = if *is_bold { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
            buffer.set_line(area.x, y, &Line::styled(text.as_str(), style), area.width);
        }
    }

    /// `lines 1–20 of 64`, where not all fit.
    pub(super) fn position(&self) -> Option<String> {
        let (visible, all) = self.drawn;
        (all > visible).then(|| format!("{}–{} of {all}", self.offset + 1, (self.offset + visible).min(all)))
    }
}

/// Text without styles, and whether each line is bold.
fn lines(text: &str) -> Vec<(String, bool)> {
    let line = |line: &str| {
        let is_bold = line.contains("\u{1b}[1m");
        (anstream::adapter::strip_str(line).to_string(), is_bold)
    };
    text.lines().map(line).collect()
}

/// Breaks a line between words; what follows is indented as the line is. Widths are in characters.
fn wrap(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width || width == 0 {
        return vec![line.to_owned()];
    }
    let indent = line.chars().take_while(|letter| *letter == ' ').count().min(width / 2);
    let (mut all, mut current) = (Vec::new(), String::new());
    let mut length = 0;
    for word in line.split_inclusive(' ') {
        let count = word.trim_end().chars().count();
        if length > indent && length + count > width {
            all.push(std::mem::take(&mut current).trim_end().to_owned());
            current = " ".repeat(indent);
            length = indent;
        }
        for letter in word.chars() {
            // A word that is wider than the screen is broken.
            if length == width && letter != ' ' {
                all.push(std::mem::take(&mut current));
                length = 0;
            }
            current.push(letter);
            length += 1;
        }
    }
    all.push(current.trim_end().to_owned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrap("  a bc def", 20), ["  a bc def"]);
        assert_eq!(wrap("  a bc def gh", 8), ["  a bc", "  def gh"]);
        assert_eq!(wrap("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
