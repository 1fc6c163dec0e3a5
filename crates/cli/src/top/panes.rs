//! The panes: queues with bars, nodes with a cell per GPU, and pod groups with their reasons, as tables.

use super::bar::{self, Bar};
use super::state::{PaneKind, State};
use super::table::{Cell, Column, Row, Table};
use crate::render::amount;
use crate::view::age::age;
use crate::view::nodes::cells;
use clap::builder::styling::AnsiColor;
use kai_engine::verdict::QueueResource;
use kai_view::amounts::Amount;
use kai_view::groups::{GroupState, GroupView};
use kai_view::natural_order;
use kai_view::nodes::{Allocation, NodeView};
use kai_view::overview::Overview;
use kai_view::queues::QueueView;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use std::cmp::Reverse;

pub(super) struct Pane {
    /// How many objects there are, and what they are.
    pub(super) title: String,
    pub(super) legend: &'static str,
    pub(super) table: Table,
    /// Shown instead of rows.
    pub(super) empty: &'static str,
}

pub(super) fn pane(kind: PaneKind, overview: &Overview, state: &State) -> Pane {
    let mut pane = match kind {
        PaneKind::Queues => queues(overview, state),
        PaneKind::Nodes => nodes(overview, state),
        PaneKind::Groups => groups(overview, state),
    };
    if state.view(kind).reversed {
        pane.table.rows.reverse();
    }
    pane
}

fn queues(overview: &Overview, state: &State) -> Pane {
    let resource = state.resource;
    let shown = state.filter.queues(&overview.queues);
    let all = &overview.queues.queues;
    let mut queues: Vec<&QueueView> =
        all.iter().filter(|queue| state.filter.has_queue(queue, &shown)).collect();
    let amounts = |queue: &QueueView| queue.resources.get(resource).clone();
    match state.order(PaneKind::Queues) {
        "used" => queues.sort_by_key(|queue| Reverse(amounts(queue).used.value)),
        "pending" => queues.sort_by_key(|queue| Reverse(amounts(queue).pending.value)),
        "name" => queues.sort_by(|one, other| natural_order(&one.name, &other.name)),
        _ => {}
    }
    let is_tree = state.order(PaneKind::Queues) == "tree" && !state.view(PaneKind::Queues).reversed;
    let widest = queues.iter().map(|queue| amounts(queue)).map(|amounts| {
        amounts.used.value.max(amounts.fair_share.value).max(amounts.quota.map_or(0, |quota| quota.value))
    });
    let scale = widest.max().unwrap_or(0).max(overview.queues.cluster.get(resource).value);
    let row = |queue: &QueueView| {
        let amounts = amounts(queue);
        let indent = if is_tree { queue.depth * 2 } else { 0 };
        let bound = |amount: Option<Amount>| amount.map_or_else(|| "∞".to_owned(), amount::of);
        let is_over = amounts.limit.is_some_and(|limit| amounts.used.value > limit.value);
        let used = Style::new().fg(if is_over { Color::Red } else { Color::Reset });
        let bar = Bar {
            scale,
            used: amounts.used.value,
            pending: amounts.pending.value,
            quota: amounts.quota.map(|quota| quota.value),
            fair_share: amounts.fair_share.value,
        };
        let pending = Style::new().fg(if amounts.pending.value > 0 { Color::Magenta } else { Color::Reset });
        Row {
            key: queue.name.clone(),
            cells: vec![
                Cell::from(format!("{:indent$}{}", "", queue.name)),
                Cell::Bar(bar),
                Cell::from(Line::styled(amount::of(amounts.used), used)),
                Cell::from(bound(amounts.quota)),
                Cell::from(amount::of(amounts.fair_share)),
                Cell::from(bound(amounts.limit)),
                Cell::from(Line::styled(amount::of(amounts.pending), pending)),
            ],
        }
    };
    let columns = vec![
        Column::text("QUEUE", 0),
        Column::rest(amount::name(resource), 2, 8, 64),
        Column::number("USED", 1),
        Column::number("QUOTA", 4),
        Column::number("FAIR", 5),
        Column::number("LIMIT", 6),
        Column::number("PENDING", 3),
    ];
    let of = amount::of(*overview.queues.cluster.get(resource));
    let unit = match resource {
        QueueResource::Gpu => " GPUs",
        QueueResource::Cpu => " CPU cores",
        QueueResource::Memory => " of memory",
    };
    Pane {
        title: format!("{}, {of}{unit}", counted(queues.len(), all.len())),
        legend: bar::LEGEND,
        table: Table { columns, rows: queues.into_iter().map(row).collect() },
        empty: "No queues",
    }
}

/// `8`, or `3 of 8` where a filter hides some.
fn counted(shown: usize, all: usize) -> String {
    if shown == all { all.to_string() } else { format!("{shown}/{all}") }
}

fn nodes(overview: &Overview, state: &State) -> Pane {
    let all = &overview.nodes.nodes;
    let is_shown = |node: &&NodeView| {
        let is_named = state.names.is_empty() || state.names.contains(&node.name);
        is_named && state.filter.has_name(PaneKind::Nodes, &node.name)
    };
    let mut nodes: Vec<&NodeView> = all.iter().filter(is_shown).collect();
    match state.order(PaneKind::Nodes) {
        "free" => nodes.sort_by_key(|node| Reverse(node.gpus.free)),
        "in use" => nodes.sort_by_key(|node| Reverse(node.gpus.used.value)),
        "status" => nodes.sort_by_key(|node| node.status == ["Ready"]),
        _ => {}
    }
    let columns = vec![
        Column::text("NODE", 0),
        Column::text("GPUS", 0),
        Column::number("IN USE", 2),
        Column::text("STATUS", 1),
        Column::number("PODS", 4),
        Column::number("CPU", 5),
        Column::number("MEMORY", 6),
    ];
    let (used, total) = gpus(overview);
    Pane {
        title: format!("{}, {used} of {total} GPUs in use", counted(nodes.len(), all.len())),
        legend: "· free  █ whole  ▁▄▇ shared  ▒ releasing  × drained",
        table: Table { columns, rows: nodes.into_iter().map(node_row).collect() },
        empty: "No nodes",
    }
}

fn node_row(node: &NodeView) -> Row {
    let of = |Allocation { used, allocatable }| format!("{}/{}", amount::of(used), amount::of(allocatable));
    let in_use = match node.gpus.total {
        0 => "–".to_owned(),
        total => format!("{}/{total}", amount::of(node.gpus.used)),
    };
    let status = Style::new().fg(if node.status == ["Ready"] { Color::Reset } else { Color::Red });
    Row {
        key: node.name.clone(),
        cells: vec![
            Cell::from(node.name.clone()),
            Cell::from(gpu_cells(node)),
            Cell::from(in_use),
            Cell::from(Line::styled(node.status.join(","), status)),
            Cell::from(node.pods.to_string()),
            Cell::from(of(node.cpu)),
            Cell::from(of(node.memory)),
        ],
    }
}

fn gpu_cells(node: &NodeView) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for gpu in &node.gpus.cells {
        let cell = cells::cell(gpu);
        spans.push(Span::styled(cell.to_string(), colour(cells::colour(cell))));
    }
    for mig in &node.gpus.mig {
        let profile = mig.resource.rsplit('/').next().unwrap_or(&mig.resource);
        let gap = if spans.is_empty() { "" } else { " " };
        spans.push(Span::raw(format!("{gap}{profile}: {}/{}", mig.used, mig.all)));
    }
    if spans.is_empty() { Line::raw("–") } else { Line::from(spans) }
}

fn colour(colour: Option<AnsiColor>) -> Color {
    match colour {
        Some(AnsiColor::Blue) => Color::Blue,
        Some(AnsiColor::Green) => Color::Green,
        Some(AnsiColor::Magenta) => Color::Magenta,
        Some(AnsiColor::Red) => Color::Red,
        Some(AnsiColor::Yellow) => Color::Yellow,
        Some(_) | None => Color::Reset,
    }
}

/// GPUs in use, and all of them.
pub(super) fn gpus(overview: &Overview) -> (String, usize) {
    let nodes = &overview.nodes.nodes;
    let used = nodes.iter().map(|node| node.gpus.used.value).sum();
    (amount::text(QueueResource::Gpu, used), nodes.iter().map(|node| node.gpus.total).sum())
}

/// A group by the workload that a user submitted, with its namespace: `team/Job/hello`.
pub(super) fn workload(group: &GroupView) -> String {
    format!("{}/{}", group.key.namespace, group.workload)
}

/// Some of its pods are not placed.
pub(super) fn is_waiting(group: &GroupView) -> bool {
    group.counts.pending + group.counts.gated > 0 || group.state == GroupState::Stale
}

fn groups(overview: &Overview, state: &State) -> Pane {
    let shown = state.filter.queues(&overview.queues);
    let all = &overview.groups.groups;
    let is_shown = |group: &&GroupView| {
        (!state.pending_only || is_waiting(group)) && state.filter.has_group(group, &shown)
    };
    let mut groups: Vec<&GroupView> = all.iter().filter(is_shown).collect();
    groups.sort_by(|one, other| natural_order(&workload(one), &workload(other)));
    match state.order(PaneKind::Groups) {
        "age" => groups.sort_by_key(|group| group.created_at),
        "queue" => groups.sort_by(|one, other| natural_order(&one.queue, &other.queue)),
        "priority" => groups.sort_by_key(|group| Reverse(group.priority)),
        "state" => groups.sort_by_key(|group| (!is_waiting(group), group.state.name())),
        _ => {}
    }
    let row = |group: &GroupView| {
        let state = Style::new().fg(state_colour(group.state));
        Row {
            key: group.key.to_string(),
            cells: vec![
                Cell::from(group.key.namespace.clone()),
                Cell::from(group.workload.to_string()),
                Cell::from(group.queue.clone()),
                Cell::from(group.priority_class.clone().unwrap_or_else(|| group.priority.to_string())),
                Cell::from(Line::styled(group.state.name(), state)),
                Cell::from(format!("{}/{}", group.counts.running, group.min)),
                Cell::from(group.counts.pods.to_string()),
                Cell::from(age(group.created_at, overview.now)),
                Cell::from(group.reason.clone().unwrap_or_default()),
            ],
        }
    };
    let columns = vec![
        Column::text("NAMESPACE", 2),
        Column::text("GROUP", 0),
        Column::text("QUEUE", 3),
        Column::text("PRIORITY", 6),
        Column::text("STATE", 1),
        Column::number("RUN/MIN", 4),
        Column::number("PODS", 7),
        Column::number("AGE", 5),
        Column::rest("REASON", 0, 30, u16::MAX),
    ];
    let waiting = all.iter().filter(|group| is_waiting(group)).count();
    let title = if state.pending_only {
        counted(groups.len(), waiting)
    } else {
        format!("{}, {waiting} pending", counted(groups.len(), all.len()))
    };
    Pane {
        title,
        legend: if state.pending_only { "a: all groups" } else { "a: pending groups" },
        table: Table { columns, rows: groups.into_iter().map(row).collect() },
        empty: if state.pending_only { "No pending groups" } else { "No groups" },
    }
}

fn state_colour(state: GroupState) -> Color {
    match state {
        GroupState::Pending | GroupState::Partial | GroupState::Gated => Color::Yellow,
        GroupState::Stale | GroupState::Unknown => Color::Red,
        GroupState::Starting | GroupState::Running => Color::Green,
        GroupState::Empty | GroupState::Terminating | GroupState::Completed => Color::Reset,
    }
}

/// The GPUs of a node one by one, for its own page.
pub(super) fn node_text(node: &NodeView) -> String {
    use kai_view::nodes::gpus::Gpu;
    let of =
        |Allocation { used, allocatable }| format!("{} of {}", amount::of(used), amount::of(allocatable));
    let mut lines = vec![
        format!("node `{}`: {}", node.name, node.status.join(", ")),
        format!("CPU {}, memory {}, {} pods", of(node.cpu), of(node.memory), node.pods),
        String::new(),
        format!("{} of {} GPUs in use", amount::of(node.gpus.used), node.gpus.total),
    ];
    for gpu in &node.gpus.cells {
        let what = match gpu {
            Gpu::Whole => "allocated as a whole".to_owned(),
            Gpu::Releasing => "releasing".to_owned(),
            Gpu::Free => "free".to_owned(),
            Gpu::Shared { part, releasing, drained, pods, .. } => {
                let more = match (drained, releasing) {
                    (true, _) => ", drained: no further pod may share it",
                    (false, true) => ", releasing",
                    (false, false) => "",
                };
                let part = amount::text(QueueResource::Gpu, *part);
                format!("shared, {part} in use{more}: {}", pods.join(", "))
            }
        };
        lines.push(format!("{} {what}", cells::cell(gpu)));
    }
    for mig in &node.gpus.mig {
        lines.push(format!("{}: {} of {}", mig.resource, mig.used, mig.all));
    }
    lines.join("\n")
}
