//! Changes of the group itself: its minimum, its topology constraint, its priority class.

use super::Search;
use crate::change::Change;
use kai_cache::translate::group::priority;
use kai_engine::cluster::group::DEFAULT_POD_SET;
use kai_engine::input::Key;
use kai_engine::verdict::Verdict;

/// Maximum priority classes that are tried.
const CLASSES_MAX: usize = 6;
/// Classes of Kubernetes itself.
const SYSTEM_CLASSES: &str = "system-";

impl Search<'_, '_> {
    /// The largest minimum with which the group runs.
    pub(super) fn gang_minimum(&mut self) -> Option<Vec<Change>> {
        let object = self.model.store.objects().pod_groups.get(self.group)?;
        let verdicts = [&self.verdict.leading].into_iter().chain(&self.verdict.further);
        let short = verdicts.filter_map(|verdict| {
            let (Verdict::GangNotSatisfied { sub_group, .. } | Verdict::NotReady { sub_group, .. }) = verdict
            else {
                return None;
            };
            Some(sub_group.as_str())
        });
        let name =
            short.map(|name| if name == DEFAULT_POD_SET { "" } else { name }).next().unwrap_or_default();
        let spec = &object.spec;
        let (sub_group, from) = if spec.sub_groups.is_empty() {
            (None, spec.min_member)
        } else {
            let found = spec.sub_groups.iter().find(|sub_group| sub_group.name == name)?;
            (Some(found.name.clone()), found.min_member)
        };
        let from = from.and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 1)?;
        let group = self.group.clone();
        let with = move |missing: i64| {
            let to = from.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX));
            vec![Change::MinMember { group: group.clone(), sub_group: sub_group.clone(), from, to }]
        };
        let most = i64::from(from) - 1;
        if !self.runs(&with(most)) {
            return None;
        }
        let missing = self.least(0, most, &with);
        Some(with(missing))
    }

    /// The innermost level further out that is wide enough, else no level.
    pub(super) fn topology(&mut self) -> Option<Vec<Change>> {
        let objects = self.model.store.objects();
        let spec = &objects.pod_groups.get(self.group)?.spec;
        let below = spec.sub_groups.iter().map(|of| (Some(of.name.clone()), of.topology_constraint.clone()));
        let all = [(None, spec.topology_constraint.clone())].into_iter().chain(below);
        let mut candidates = Vec::new();
        for (sub_group, constraint) in all {
            let Some(constraint) = constraint.filter(|of| !of.required_topology_level.is_empty()) else {
                continue;
            };
            let topology = objects.topologies.get(&Key::new("", constraint.topology.as_str()));
            let levels = topology.map(|topology| topology.spec.levels.as_slice()).unwrap_or_default();
            let from = constraint.required_topology_level;
            let outer = levels.iter().take_while(|level| level.node_label != from);
            let mut outer: Vec<Option<String>> = outer.map(|level| Some(level.node_label.clone())).collect();
            outer.reverse();
            outer.push(None);
            let change = |to| Change::TopologyLevel {
                group: self.group.clone(),
                sub_group: sub_group.clone(),
                from: from.clone(),
                to,
            };
            candidates.extend(outer.into_iter().map(|to| vec![change(to)]));
        }
        candidates.into_iter().find(|changes| self.runs(changes))
    }

    /// The class nearest to the present one, higher ones first.
    pub(super) fn priority_class(&mut self) -> Option<Vec<Change>> {
        let objects = self.model.store.objects();
        let from = objects.pod_groups.get(self.group)?.spec.priority_class_name.clone();
        let present = priority(&from, &objects.priority_classes);
        let classes = objects.priority_classes.iter().map(|(key, class)| (class.value, key.name.clone()));
        let classes = classes.filter(|(value, name)| *value != present && !name.starts_with(SYSTEM_CLASSES));
        let mut classes: Vec<(i32, String)> = classes.collect();
        classes.sort_by_key(|(value, name)| (*value < present, value.abs_diff(present), name.clone()));
        let group = self.group.clone();
        let change =
            |to: String| vec![Change::PriorityClass { group: group.clone(), from: from.clone(), to }];
        classes.into_iter().take(CLASSES_MAX).map(|(_, name)| change(name)).find(|changes| self.runs(changes))
    }
}
