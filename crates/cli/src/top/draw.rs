//! Draws the screen: a pure function from the model and the user's choices to the cells of a terminal.

use super::page::Page;
use super::panes::{self, Pane, is_waiting, pane};
use super::state::{PaneKind, State};
use super::table::{Align, put};
use crate::view::age::age;
use kai_units::Timestamp;
use kai_view::overview::Overview;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// From this width on queues and nodes are side by side.
const WIDE: u16 = 116;
/// Rows of a pane below which only the one in focus is shown.
const PANE_HEIGHT_MIN: u16 = 5;

pub(super) fn screen(
    area: Rect,
    buffer: &mut Buffer,
    overview: &Overview,
    now: Timestamp,
    state: &mut State,
) {
    if area.height < 4 || area.width < 20 {
        put(buffer, area.x, area.y, area.width, &Line::raw("the terminal is too small"), Align::Left);
        return;
    }
    header(area, buffer, overview, now, state);
    footer(Rect { y: area.bottom() - 1, height: 1, ..area }, buffer, state);
    let body = Rect { y: area.y + 2, height: area.height - 3, ..area };
    if let Some(mut page) = state.page.take() {
        draw_page(body, buffer, &mut page);
        state.page = Some(page);
        return;
    }
    for (kind, area) in layout(body, buffer, overview, state) {
        draw_pane(kind, area, buffer, overview, state);
    }
}

fn header(area: Rect, buffer: &mut Buffer, overview: &Overview, now: Timestamp, state: &State) {
    let title = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
    let line = Line::from(vec![Span::styled(state.title, title), Span::raw(format!("  {}", state.cluster))]);
    let time = Line::raw(clock(overview.now));
    let width = time.width() as u16;
    put(buffer, area.x, area.y, area.width.saturating_sub(width + 2), &line, Align::Left);
    put(buffer, area.right().saturating_sub(width), area.y, width, &time, Align::Right);
    let line = match &overview.stale {
        Some(stale) => {
            let style = Style::new().bg(Color::Red).fg(Color::White).add_modifier(Modifier::BOLD);
            let (since, for_) = (clock(stale.since_at), age(stale.since_at, now));
            Line::styled(format!("STALE since {since} ({for_}): {}", stale.why), style)
        }
        None => Line::raw(summary(overview)),
    };
    put(buffer, area.x, area.y + 1, area.width, &line, Align::Left);
}

/// `14:03:22 UTC`.
fn clock(at: Timestamp) -> String {
    let text = Timestamp(at.0 - at.0.rem_euclid(1_000_000)).to_string();
    let time = text.split_once('T').map_or(text.as_str(), |(_, time)| time);
    format!("{} UTC", time.trim_end_matches('Z'))
}

fn summary(overview: &Overview) -> String {
    let (used, total) = panes::gpus(overview);
    let nodes = &overview.nodes.nodes;
    let ready = nodes.iter().filter(|node| node.ready).count();
    let groups = &overview.groups.groups;
    let waiting = groups.iter().filter(|group| is_waiting(group)).count();
    format!(
        "{used} of {total} GPUs in use, {ready} of {} nodes ready, {waiting} of {} groups pending",
        nodes.len(),
        groups.len()
    )
}

fn footer(area: Rect, buffer: &mut Buffer, state: &State) {
    if let Some(input) = &state.input {
        let line = Line::from(vec![Span::raw(format!("/{input}")), Span::styled(" ", Modifier::REVERSED)]);
        put(buffer, area.x, area.y, area.width, &line, Align::Left);
        return;
    }
    let mut spans = Vec::new();
    let notice = Style::new().fg(Color::Yellow);
    if let Some(text) = &state.notice {
        spans.push(Span::styled(format!("{text}  "), notice));
    } else if !state.filter.text.is_empty() {
        spans.push(Span::styled(format!("/{}  ", state.filter.text), notice));
    }
    let several = state.panes.len() > 1;
    let keys: &[(&str, &str)] = match (&state.page, state.focused()) {
        (Some(_), _) if state.is_text => &[("↑↓", "scroll")],
        (Some(_), _) => &[("↑↓", "scroll"), ("esc", "back")],
        (None, PaneKind::Queues) => {
            &[("s", "sort"), ("r", "resource"), ("/", "filter"), ("enter", "its groups")]
        }
        (None, PaneKind::Nodes) => &[("s", "sort"), ("/", "filter"), ("enter", "its GPUs")],
        (None, PaneKind::Groups) => {
            &[("enter", "why"), ("s", "sort"), ("/", "filter"), ("a", "all or pending")]
        }
    };
    let tab = [("tab", "pane")];
    let tab: &[(&str, &str)] = if several && state.page.is_none() { &tab } else { &[] };
    let mut left = usize::from(area.width).saturating_sub(Line::from(spans.clone()).width());
    let help: &[(&str, &str)] = if state.is_text { &[] } else { &[("?", "help")] };
    for (key, what) in [("q", "quit")].iter().chain(help).chain(tab).chain(keys) {
        let length = key.chars().count() + what.chars().count() + 3;
        if length > left {
            break;
        }
        left -= length;
        spans.push(Span::styled((*key).to_owned(), Modifier::BOLD));
        spans.push(Span::raw(format!(" {what}  ")));
    }
    put(buffer, area.x, area.y, area.width, &Line::from(spans), Align::Left);
}

/// Where each pane is; those that do not fit become tabs.
fn layout(area: Rect, buffer: &mut Buffer, overview: &Overview, state: &State) -> Vec<(PaneKind, Rect)> {
    let count = state.panes.len() as u16;
    if count == 1 {
        return vec![(state.focused(), area)];
    }
    let needs = |kind: PaneKind| pane(kind, overview, state).table.rows.len().min(500) as u16 + 2;
    if let [PaneKind::Queues, PaneKind::Nodes, PaneKind::Groups] = state.panes[..]
        && area.width >= WIDE
        && area.height >= 2 * PANE_HEIGHT_MIN
    {
        let wanted = needs(PaneKind::Queues).max(needs(PaneKind::Nodes)) + 1;
        let for_groups = (needs(PaneKind::Groups)).min(area.height * 2 / 5).max(PANE_HEIGHT_MIN);
        let top = wanted.clamp(PANE_HEIGHT_MIN, area.height - for_groups);
        let half = area.width / 2;
        let upper = Rect { height: top, ..area };
        return vec![
            (PaneKind::Queues, Rect { width: half - 1, ..upper }),
            (PaneKind::Nodes, Rect { x: area.x + half + 1, width: area.width - half - 1, ..upper }),
            (PaneKind::Groups, Rect { y: area.y + top, height: area.height - top, ..area }),
        ];
    }
    if area.height < count * PANE_HEIGHT_MIN {
        tabs(Rect { height: 1, ..area }, buffer, state);
        let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        return vec![(state.focused(), area)];
    }
    let mut heights = vec![PANE_HEIGHT_MIN; state.panes.len()];
    let mut left = area.height - count * PANE_HEIGHT_MIN;
    // The pane in focus first, then the others from below: pending groups matter most.
    let order = std::iter::once(state.focus).chain((0..state.panes.len()).rev());
    for index in order {
        let more = needs(state.panes[index]).saturating_sub(heights[index]).min(left);
        heights[index] += more;
        left -= more;
    }
    if let Some(last) = heights.last_mut() {
        *last += left;
    }
    let mut y = area.y;
    let mut place = |(kind, height): (&PaneKind, u16)| {
        let pane = Rect { y, height, ..area };
        y += height;
        (*kind, pane)
    };
    state.panes.iter().zip(heights).map(&mut place).collect()
}

fn name(kind: PaneKind) -> &'static str {
    match kind {
        PaneKind::Queues => "Queues",
        PaneKind::Nodes => "Nodes",
        PaneKind::Groups => "Groups",
    }
}

fn tabs(area: Rect, buffer: &mut Buffer, state: &State) {
    let tab = |(index, kind): (usize, &PaneKind)| {
        let style = if index == state.focus { Modifier::REVERSED } else { Modifier::DIM };
        [Span::styled(format!(" {} {} ", index + 1, name(*kind)), style), Span::raw(" ")]
    };
    let line = Line::from(state.panes.iter().enumerate().flat_map(tab).collect::<Vec<_>>());
    put(buffer, area.x, area.y, area.width, &line, Align::Left);
}

fn draw_pane(kind: PaneKind, area: Rect, buffer: &mut Buffer, overview: &Overview, state: &mut State) {
    if area.height == 0 {
        return;
    }
    let Pane { title, legend, table, empty } = pane(kind, overview, state);
    let is_focused = kind == state.focused();
    let is_pending_only = kind == PaneKind::Groups && state.pending_only;
    let label = if is_pending_only { "Pending groups" } else { name(kind) };
    let order = state.order(kind);
    let reversed = if state.view(kind).reversed { " reversed" } else { "" };
    let rows = table.rows.len();
    rule(area, buffer, &format!("{label} {title}"), &format!("by {order}{reversed}"), legend, is_focused);
    let inner = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let mut scroll = state.view(kind).scroll.clone();
    if rows == 0 {
        put(buffer, inner.x, inner.y, inner.width, &Line::styled(empty, Modifier::DIM), Align::Left);
    } else {
        table.draw(inner, buffer, &mut scroll, is_focused);
    }
    if rows > scroll.visible && scroll.visible > 0 {
        let last = (scroll.offset + scroll.visible).min(rows);
        let text = format!(" {}–{last} of {rows} ", scroll.offset + 1);
        let width = text.chars().count() as u16;
        put(buffer, area.right().saturating_sub(width), inner.y, width, &Line::raw(text), Align::Right);
    }
    state.view_mut(kind).scroll = scroll;
}

/// The line above a pane: its title, and the legend where it fits.
fn rule(area: Rect, buffer: &mut Buffer, title: &str, order: &str, legend: &str, is_focused: bool) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let strong =
        if is_focused { Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD) } else { Style::new() };
    buffer.set_string(area.x, area.y, "─".repeat(usize::from(area.width)), dim);
    let mut line = Line::styled(format!("{title} "), strong);
    let available = usize::from(area.width);
    for more in [order, legend] {
        if line.width() + more.chars().count() + 4 <= available && !more.is_empty() {
            line.push_span(Span::styled(format!("── {more} "), dim));
        }
    }
    put(buffer, area.x, area.y, area.width, &line, Align::Left);
}

fn draw_page(area: Rect, buffer: &mut Buffer, page: &mut Page) {
    let inner = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    page.draw(inner, buffer);
    rule(area, buffer, &page.title, "", &page.position().unwrap_or_default(), true);
}
