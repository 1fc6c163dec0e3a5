//! `kai jobs`: pod groups with queue, priority, state, pods, age, and why they are pending.

use super::age::age;
use super::connection::Connection;
use super::selection::{WorkloadName, namespace, selected};
use super::{Extent, Rendered};
use crate::args;
use crate::render::{Cell, table_with};
use anyhow::{Result, bail};
use kai_scheduler::resources::POD_GROUP;
use kai_view::groups::{self, GroupState, GroupView, TimeLimitView};
use kai_view::{ClusterView, Names};
use std::collections::BTreeMap;

/// The type of `-o name`.
pub(super) const TYPE: &str = "podgroup.scheduling.run.ai";

pub(super) async fn render(
    view: &ClusterView,
    connection: &Connection,
    args: &args::Jobs,
    extent: Extent,
) -> Result<Rendered> {
    let mut model = groups::all(view);
    let is_filtered =
        args.namespace.namespace.is_some() || args.queue.is_some() || args.selector.selector.is_some();
    let namespace = namespace_of(args, connection);
    let is_here = |group: &GroupView| namespace.is_none_or(|namespace| group.key.namespace == namespace);
    let elsewhere = model.groups.iter().filter(|group| !is_here(group)).count();
    let selected = selected(connection, &POD_GROUP, &args.selector).await?;
    model.groups.retain(|group| {
        is_here(group)
            && args.queue.as_ref().is_none_or(|queue| group.queue == *queue)
            && selected.as_ref().is_none_or(|selected| selected.contains(&group.key))
    });
    let names: Vec<WorkloadName<'_>> = args.names.iter().map(|name| WorkloadName::read(name)).collect();
    let is_of = |name: &WorkloadName<'_>, group: &GroupView| name.is_of(&group.key, &group.workload);
    if let Some(missing) = names.iter().find(|name| !model.groups.iter().any(|group| is_of(name, group))) {
        let place = namespace.map_or_else(String::new, |namespace| format!(" in namespace `{namespace}`"));
        bail!("no pod group of `{}` found{place}; hint: `kai jobs -A` lists all pod groups", missing.typed);
    }
    model.groups.retain(|group| names.is_empty() || names.iter().any(|name| is_of(name, group)));

    let columns = Columns::of(&model.groups, namespace.is_none(), extent.is_wide);
    let rows = model.groups.iter().map(|group| columns.row(group, view));
    let others = if elsewhere > 0 && names.is_empty() {
        format!("{elsewhere} in other namespaces; `kai jobs -A` lists all\n")
    } else {
        String::new()
    };
    let text = match table_with(&columns.headings(), rows.collect(), extent.rows.max()) {
        Some(table) => format!("{table}\n\n{}\n{others}", summary(&model.groups)),
        None if is_filtered => format!("No pod groups match the filter\n{others}"),
        None => format!("No pod groups found\n{others}"),
    };
    let names = model.groups.iter().map(|group| format!("{TYPE}/{}", group.key.name)).collect();
    Rendered::new(text, &model, names)
}

/// The namespace that is shown; `None` shows all.
pub(super) fn namespace_of<'a>(args: &'a args::Jobs, connection: &'a Connection) -> Option<&'a str> {
    // A queue serves several namespaces.
    let everywhere = args.queue.is_some() && args.namespace.namespace.is_none();
    namespace(&args.namespace, connection).filter(|_| !everywhere)
}

/// The columns that are not always there.
#[derive(Clone, Copy)]
struct Columns {
    has_namespace: bool,
    /// A running group has a maximum run time.
    has_limit: bool,
    is_wide: bool,
}

impl Columns {
    fn of(groups: &[GroupView], has_namespace: bool, is_wide: bool) -> Self {
        Self { has_namespace, has_limit: groups.iter().any(|group| group.time_limit.is_some()), is_wide }
    }

    fn headings(self) -> Vec<&'static str> {
        let mut all = vec!["NAMESPACE", "GROUP", "QUEUE", "PRIORITY", "STATE", "RUN/MIN", "PODS", "AGE"];
        if !self.has_namespace {
            all.remove(0);
        }
        if self.has_limit {
            all.push("LIMIT");
        }
        if self.is_wide {
            all.extend(["POD GROUP", "PREEMPTIBLE", "PLACED"]);
        }
        all.push("REASON");
        all
    }

    fn row(self, group: &GroupView, view: &ClusterView) -> Vec<Cell> {
        let reason = group.reason.clone().unwrap_or_default();
        let mut all: Vec<Cell> = Vec::new();
        if self.has_namespace {
            all.push(group.key.namespace.as_str().into());
        }
        all.extend([
            group.workload.to_string().into(),
            group.queue.clone().into(),
            group.priority_class.clone().unwrap_or_else(|| group.priority.to_string()).into(),
            state(group.state),
            format!("{}/{}", group.counts.running, group.min).into(),
            group.counts.pods.to_string().into(),
            age(group.created_at, view.now).into(),
        ]);
        if self.has_limit {
            all.push(group.time_limit.as_ref().map_or_else(String::new, TimeLimitView::text).into());
        }
        if self.is_wide {
            let preemptible = if group.preemptible { "yes" } else { "no" };
            let placed = group.counts.placed.to_string();
            all.extend([group.key.name.as_str().into(), preemptible.into(), placed.into()]);
        }
        all.push(Names::of(view.store.objects()).replaced(&reason).into());
        all
    }
}

/// The state, in a colour where it needs attention.
fn state(state: GroupState) -> Cell {
    let name = state.name();
    match state {
        GroupState::Stale | GroupState::Unknown => Cell::critical(name),
        GroupState::Pending | GroupState::Partial => Cell::warning(name),
        GroupState::Empty
        | GroupState::Gated
        | GroupState::Starting
        | GroupState::Running
        | GroupState::Terminating
        | GroupState::Completed => name.into(),
    }
}

/// `2 Running, 1 Pending`.
fn summary(groups: &[GroupView]) -> String {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for group in groups {
        *states.entry(group.state.name()).or_default() += 1;
    }
    let states: Vec<String> = states.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    states.join(", ")
}
