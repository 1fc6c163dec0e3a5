//! The pictures of the screen in the documentation, drawn from its cells.

use super::*;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Width and height of a cell in pixels.
const CELL: (usize, usize) = (8, 17);
const MARGIN: usize = 10;
const FOREGROUND: &str = "#d4d4d4";
const BACKGROUND: &str = "#16181d";

/// A screen as an image: text in a fixed pitch, blocks as rectangles, so that it looks the same with every font.
fn svg(buffer: &Buffer, title: &str) -> String {
    let (columns, rows) = (usize::from(buffer.area.width), usize::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"13\">\n"
    );
    for row in 0..rows {
        let mut column = 0;
        while column < columns {
            let cell = &buffer[(column as u16, row as u16)];
            let same = (column..columns).take_while(|at| {
                let other = &buffer[(*at as u16, row as u16)];
                other.style() == cell.style() && block(other).is_none()
            });
            let length = same.count();
            if length == 0 {
                draw_block(&mut text, cell, column, row);
                column += 1;
                continue;
            }
            let run = (column..column + length).map(|at| buffer[(at as u16, row as u16)].symbol());
            draw_run(&mut text, cell, &run.collect::<String>(), (column, row), length);
            column += length;
        }
    }
    text + "</g>\n</svg>\n"
}

/// The part of a cell that a block fills, in eighths of its height, and how opaque it is.
fn block(cell: &Cell) -> Option<(usize, &'static str)> {
    Some(match cell.symbol() {
        "█" => (8, "1"),
        "▇" => (7, "1"),
        "▆" => (6, "1"),
        "▅" => (5, "1"),
        "▄" => (4, "1"),
        "▃" => (3, "1"),
        "▂" => (2, "1"),
        "▁" => (1, "1"),
        "▒" => (8, "0.6"),
        "░" => (8, "0.35"),
        _ => return None,
    })
}

fn draw_block(text: &mut String, cell: &Cell, column: usize, row: usize) {
    let Some((eighths, opacity)) = block(cell) else { return };
    let colour = colour(cell.fg).unwrap_or(FOREGROUND);
    let full = CELL.1 - 2;
    let height = (full * eighths).div_ceil(8);
    let (x, y) = (MARGIN + column * CELL.0, MARGIN + row * CELL.1 + 1 + full - height);
    let width = CELL.0 - 1;
    writeln!(text, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" opacity=\"{opacity}\"/>")
        .expect("writing to a string");
}

fn draw_run(text: &mut String, cell: &Cell, run: &str, (column, row): (usize, usize), length: usize) {
    let (x, y) = (MARGIN + column * CELL.0, MARGIN + row * CELL.1);
    let is_reversed = cell.modifier.contains(Modifier::REVERSED);
    let (front, back) = (colour(cell.fg).unwrap_or(FOREGROUND), colour(cell.bg));
    let (front, back) = if is_reversed { (back.unwrap_or(BACKGROUND), Some(front)) } else { (front, back) };
    let width = length * CELL.0;
    if let Some(back) = back {
        writeln!(text, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{back}\"/>", CELL.1)
            .expect("writing to a string");
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let opacity = if cell.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    let baseline = y + CELL.1 - 4;
    let mut at = 0;
    // Word by word: a renderer may take several blanks as one.
    for word in run.split(' ') {
        let count = word.chars().count();
        if count > 0 {
            let (x, width) = (x + at * CELL.0, count * CELL.0);
            let escaped = word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            writeln!(
                text,
                "<text x=\"{x}\" y=\"{baseline}\" textLength=\"{width}\" fill=\"{front}\"{weight}{opacity}>{escaped}</text>"
            )
            .expect("writing to a string");
        }
        at += count + 1;
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the screen uses few colours")]
fn colour(colour: Color) -> Option<&'static str> {
    Some(match colour {
        Color::Reset => return None,
        Color::Blue => "#5b9bf0",
        Color::Cyan => "#4ec9d8",
        Color::Green => "#6cc070",
        Color::Magenta => "#c98ae0",
        Color::Red => "#f0625d",
        Color::White => "#ffffff",
        Color::Yellow => "#e0b84c",
        other => panic!("{other} has no colour in pictures"),
    })
}

fn docs(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path)
}

/// Compares a picture with the published one, or writes it.
#[track_caller]
fn assert_published(
    name: &str,
    title: &str,
    overview: &Overview,
    state: &mut State,
    (width, height): (u16, u16),
) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
    let draw = |frame: &mut ratatui::Frame<'_>| {
        draw::screen(frame.area(), frame.buffer_mut(), overview, NOW + Span::from_secs(2), state);
    };
    terminal.draw(draw).expect("it is in memory");
    let text = svg(terminal.backend().buffer(), title);
    let path = docs("images").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).expect("it can be written");
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == text,
        "docs/images/{name} is stale; hint: UPDATE=1 cargo test -p kai-cli --lib picture"
    );
}

#[test]
fn pictures_of_the_terminal_are_current() {
    let overview = overview();
    assert_published("kai-top.svg", "kai top", &overview, &mut state(), (118, 28));
    // A test compares the text of the page with what the command prints.
    let page = std::fs::read_to_string(docs("inspecting.md")).expect("the page exists");
    let (_, block) =
        page.split_once("```console\n$ kai why default/big\n").expect("the page has the example");
    let (text, _) = block.split_once("\nEvents\n").expect("events come last");
    let headings = ["Reason", "What would run it (each planned)", "Pods", "Conditions"];
    let line = |line: &str| {
        if headings.contains(&line) { format!("\u{1b}[1m{line}\u{1b}[0m\n") } else { format!("{line}\n") }
    };
    let text: String = text.lines().map(line).collect();
    let mut why = State::text("kai why", "default/big");
    "https://10.0.0.1:6443 (lab)".clone_into(&mut why.cluster);
    why.page.as_mut().expect("it has a page").set_text(&text);
    assert_published("kai-why.svg", "kai why default/big", &overview, &mut why, (118, 30));
}
