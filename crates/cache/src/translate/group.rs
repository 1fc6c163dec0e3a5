//! Translates pod groups: priority, sub-group tree, topology constraints and timings.

use super::queue::created;
use crate::finding::Report;
use crate::object::{PodGroup, PriorityClass, Topology};
use crate::settings::Settings;
use kai_api::pod_group::{Preemptibility, SubGroup, TopologyConstraint as RawConstraint};
use kai_api::well_known::{annotation, label_value, priority_class};
use kai_engine::cluster::tree::LEVELS_MAX;
use kai_engine::input::{GroupInput, Key, SubGroupInput, TopologyConstraint, TopologyInput};
use kai_units::{Span, Timestamp, duration};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The objects that the translation of a group depends on.
#[derive(Clone, Copy, Debug)]
pub struct TranslationContext<'a> {
    pub classes: &'a BTreeMap<Key, Arc<PriorityClass>>,
    pub topologies: &'a BTreeMap<Key, Arc<Topology>>,
    pub settings: &'a Settings,
}

/// Whether this scheduler is responsible for a group: its node pool is served, and `schedulingBackoff` does not assign it to
/// another pool after a failure in the one that its label names.
pub fn is_selected(group: &PodGroup, settings: &Settings) -> bool {
    settings.serves_pool(group_label(group, &settings.node_pool_key)) && !backs_off(group, settings)
}

fn backs_off(group: &PodGroup, settings: &Settings) -> bool {
    if matches!(group.spec.scheduling_backoff, None | Some(-1)) {
        return false;
    }
    let conditions = group.status.as_ref().map(|s| s.scheduling_conditions.as_slice()).unwrap_or_default();
    let newest = conditions.iter().max_by_key(|c| c.transition_id.parse::<i64>().unwrap_or(0));
    newest.is_some_and(|condition| condition.node_pool == node_pool(group, settings))
}

fn group_label<'a>(group: &'a PodGroup, key: &str) -> Option<&'a str> {
    group.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn node_pool<'a>(group: &'a PodGroup, settings: &Settings) -> &'a str {
    group_label(group, &settings.node_pool_key).unwrap_or(label_value::DEFAULT_NODE_POOL)
}

pub fn translate(group: &PodGroup, context: TranslationContext<'_>, report: &mut Report<'_>) -> GroupInput {
    let spec = &group.spec;
    let priority = priority(&spec.priority_class_name, context.classes);
    let preemptible = match spec.preemptibility {
        Some(Preemptibility::Preemptible) => true,
        Some(Preemptibility::NonPreemptible) => false,
        None => priority < priority_class::NON_PREEMPTIBLE_FROM,
    };
    let invalid_reason = tree_fault(&spec.sub_groups);
    if let Some(fault) = &invalid_reason {
        report.warn(
            "spec.subGroups",
            format!("{fault}, so the group is not scheduled"),
            "sub-group names must be unique, parents must exist, no sub-group may contain itself, and there are at most 64 levels",
        );
    }
    let timings = timings(group, report);
    GroupInput {
        key: crate::object::Stored::key(group),
        uid: group.metadata.uid.clone().unwrap_or_default(),
        queue: spec.queue.clone(),
        priority,
        preemptible,
        created: timings.created,
        min_member: count(spec.min_member, "spec.minMember", report),
        min_sub_group: count(spec.min_sub_group, "spec.minSubGroup", report),
        topology: constraint(spec.topology_constraint.as_ref(), context, "spec.topologyConstraint", report),
        sub_groups: if invalid_reason.is_some() {
            Vec::new()
        } else {
            sub_groups(&spec.sub_groups, context, report)
        },
        invalid_reason,
        last_start: timings.last_start,
        last_eviction: timings.last_eviction,
        stale_since: timings.stale_since,
        staleness_grace: timings.staleness_grace,
        preemption_delay: timings.preemption_delay,
        mark_unschedulable: spec.mark_unschedulable.unwrap_or(true),
        node_pool: node_pool(group, context.settings).to_owned(),
        single_attempt: spec.scheduling_backoff == Some(1),
        backoff: None,
    }
}

/// The timings of a group: what its spec and the scheduler's annotations say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    pub created: Timestamp,
    pub last_start: Option<Timestamp>,
    pub last_eviction: Option<Timestamp>,
    pub stale_since: Option<Timestamp>,
    /// Negative: without end.
    pub staleness_grace: Option<Span>,
    /// Positive.
    pub preemption_delay: Option<Span>,
}

/// Parses the timings of a group. Engine input and timers both use it, so that they accept the same values.
pub fn timings(group: &PodGroup, report: &mut Report<'_>) -> Timings {
    let spec = &group.spec;
    Timings {
        created: created(group.metadata.creation_timestamp.as_ref()),
        last_start: time(group, annotation::LAST_START, report),
        last_eviction: time(group, annotation::LAST_EVICTION, report),
        stale_since: time(group, annotation::STALE_SINCE, report),
        staleness_grace: span(spec.staleness_grace_period.as_deref(), "spec.stalenessGracePeriod", report),
        preemption_delay: span(spec.preemption_delay.as_deref(), "spec.preemptionDelay", report)
            .filter(|delay| *delay > Span(0)),
    }
}

/// The value of a priority class: by name, else of the default class, else 50.
pub fn priority(name: &str, classes: &BTreeMap<Key, Arc<PriorityClass>>) -> i32 {
    // There are few classes: a scan is faster than building a key.
    let mut by_key = classes.iter();
    let named = by_key.find(|(key, _)| key.name == name && key.namespace.is_empty()).map(|(_, class)| class);
    let default = || classes.values().find(|class| class.global_default);
    named.or_else(default).map_or(priority_class::FALLBACK_VALUE, |class| class.value)
}

pub fn topology(topology: &Topology) -> TopologyInput {
    TopologyInput {
        name: topology.metadata.name.clone().unwrap_or_default(),
        levels: topology.spec.levels.iter().map(|level| level.node_label.clone()).collect(),
    }
}

/// The problem of an invalid sub-group tree: a duplicate name, a missing parent, a cycle, or too many levels.
pub fn tree_fault(sub_groups: &[SubGroup]) -> Option<String> {
    if sub_groups.is_empty() {
        return None;
    }
    let mut parents: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for sub_group in sub_groups {
        if parents.insert(&sub_group.name, parent(sub_group)).is_some() {
            return Some(format!("the sub-group `{}` exists twice", sub_group.name));
        }
    }
    // Sub-groups that reach the root, with their levels, are not visited again.
    let mut levels: BTreeMap<&str, usize> = BTreeMap::new();
    for sub_group in sub_groups {
        let (mut path, mut on_path): (Vec<&str>, BTreeSet<&str>) = (Vec::new(), BTreeSet::new());
        let mut at = sub_group.name.as_str();
        let mut level = loop {
            if let Some(known) = levels.get(at) {
                break *known;
            }
            if !on_path.insert(at) {
                return Some(format!("the sub-group `{at}` is part of a cycle"));
            }
            path.push(at);
            let Some(parent) = parents.get(at).and_then(Option::as_deref) else { break 0 };
            let Some((parent, _)) = parents.get_key_value(parent) else {
                return Some(format!("the parent `{parent}` of sub-group `{at}` does not exist"));
            };
            at = parent;
        };
        for name in path.into_iter().rev() {
            level += 1;
            if level > LEVELS_MAX {
                return Some(format!("the sub-group `{name}` is on a level below the {LEVELS_MAX}th"));
            }
            levels.insert(name, level);
        }
    }
    None
}

/// KAI looks up parents in lower case but keeps the case of names.
fn parent(sub_group: &SubGroup) -> Option<String> {
    sub_group.parent.as_deref().filter(|p| !p.is_empty()).map(str::to_lowercase)
}

fn sub_groups(
    list: &[SubGroup],
    context: TranslationContext<'_>,
    report: &mut Report<'_>,
) -> Vec<SubGroupInput> {
    list.iter()
        .map(|sub_group| {
            let field = |name: &str| format!("spec.subGroups[{}].{name}", sub_group.name);
            SubGroupInput {
                name: sub_group.name.clone(),
                parent: parent(sub_group),
                min_member: count(sub_group.min_member, &field("minMember"), report),
                min_sub_group: count(sub_group.min_sub_group, &field("minSubGroup"), report),
                topology: constraint(
                    sub_group.topology_constraint.as_ref(),
                    context,
                    &field("topologyConstraint"),
                    report,
                ),
            }
        })
        .collect()
}

fn constraint(
    given: Option<&RawConstraint>,
    context: TranslationContext<'_>,
    field: &str,
    report: &mut Report<'_>,
) -> Option<TopologyConstraint> {
    let given = given.filter(|c| !c.topology.is_empty())?;
    let topology = context.topologies.get(&Key::new("", given.topology.as_str()));
    let mut level = |name: &str, which: &str| -> Option<String> {
        if name.is_empty() {
            return None;
        }
        let Some(topology) = topology else { return Some(name.to_owned()) };
        let found = topology.spec.levels.iter().find(|l| l.node_label == name || l.alias == name);
        if found.is_none() {
            report.warn(
                format!("{field}.{which}"),
                format!("topology `{}` has no level `{name}`, so the group cannot be placed", given.topology),
                "name a node label or an alias of the topology",
            );
        }
        Some(found.map_or(name, |l| &l.node_label).to_owned())
    };
    Some(TopologyConstraint {
        required: level(&given.required_topology_level, "requiredTopologyLevel"),
        preferred: level(&given.preferred_topology_level, "preferredTopologyLevel"),
        topology: given.topology.clone(),
    })
}

fn count(given: Option<i32>, field: &str, report: &mut Report<'_>) -> Option<u32> {
    let given = given?;
    if given < 0 {
        report.warn(field, format!("{given} is negative and counts as 0"), "write a number of at least 0");
    }
    Some(u32::try_from(given).unwrap_or(0))
}

fn time(group: &PodGroup, name: &str, report: &mut Report<'_>) -> Option<Timestamp> {
    let text = group.metadata.annotations.as_ref()?.get(name).filter(|t| !t.is_empty())?;
    match text.parse() {
        Ok(time) => Some(time),
        Err(error) => {
            let field = format!("metadata.annotations[{name}]");
            report.warn(field, format!("{error}, so it has no effect"), "remove the annotation");
            None
        }
    }
}

fn span(text: Option<&str>, field: &str, report: &mut Report<'_>) -> Option<Span> {
    let text = text.filter(|t| !t.is_empty())?;
    match duration::parse_extended(text) {
        Ok(span) => Some(span),
        Err(error) => {
            report.warn(field, format!("{error}, so it has no effect"), "write a duration such as `5m`");
            None
        }
    }
}

#[cfg(test)]
mod tests;
