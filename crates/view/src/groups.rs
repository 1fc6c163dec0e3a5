//! Pod groups: state, pods, and why pods are pending.

use crate::evictions::by_preemptor;
use crate::findings::{self, FindingView};
use crate::reader::ClusterView;
use crate::verdicts::{self, Obstacle, VerdictView, obstacles};
use crate::workload::Workload;
use kai_cache::Store;
use kai_cache::object::PodGroup;
use kai_cache::translate::time_limit;
use kai_engine::Cluster;
use kai_engine::cluster::group::{DEFAULT_POD_SET, Group, MemberKind};
use kai_engine::cluster::pod::Status;
use kai_engine::explain::Sentence;
use kai_engine::ids::{GroupIdx, MemberIdx};
use kai_engine::input::{Key, LimitAction};
use kai_engine::outcome::Outcome;
use kai_engine::verdict::{GroupVerdict, Verdict};
use kai_units::{Span, Timestamp, duration};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Summarises the states of the pods of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub enum GroupState {
    /// It has no pods.
    Empty,
    /// No pod is placed.
    Pending,
    /// No pod is placed, and all have scheduling gates.
    #[serde(rename = "SchedulingGated")]
    Gated,
    /// All pods are placed, and not all run yet.
    #[serde(rename = "ContainerCreating")]
    Starting,
    /// All pods run.
    Running,
    /// Some pods are placed, others are pending.
    Partial,
    /// Fewer pods than `minMember` are placed.
    Stale,
    /// Its pods are being deleted.
    Terminating,
    /// Its pods are on unreachable nodes.
    Unknown,
    /// Its pods have succeeded or failed.
    Completed,
}

impl GroupState {
    /// The word that kubectl has for it, where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Pending => "Pending",
            Self::Gated => "SchedulingGated",
            Self::Starting => "ContainerCreating",
            Self::Running => "Running",
            Self::Partial => "Partial",
            Self::Stale => "Stale",
            Self::Terminating => "Terminating",
            Self::Unknown => "Unknown",
            Self::Completed => "Completed",
        }
    }
}

/// Numbers of pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PodCounts {
    pub pods: u32,
    pub running: u32,
    /// On a node, or assigned to one.
    pub placed: u32,
    pub pending: u32,
    /// With scheduling gates.
    pub gated: u32,
    /// Pending with a request that cannot be read; counted as pending, too.
    pub invalid: u32,
    #[serde(skip)]
    terminating: u32,
    #[serde(skip)]
    unknown: u32,
    #[serde(skip)]
    completed: u32,
}

impl PodCounts {
    fn of(store: &Store, cluster: &Cluster, group: &Group) -> Self {
        let mut counts = Self::default();
        for pod in &group.pods {
            let status = cluster.observed_status(*pod);
            // The planner leaves an invalid pod out as if it were gated.
            if status == Status::Gated && findings::is_invalid(store, &cluster.pod_key(*pod)) {
                counts.add(Status::Pending);
                counts.invalid += 1;
            } else {
                counts.add(status);
            }
        }
        counts
    }

    fn add(&mut self, status: Status) {
        self.pods += 1;
        match status {
            Status::Pending | Status::InBackoff => self.pending += 1,
            Status::Gated => self.gated += 1,
            Status::Running => {
                self.placed += 1;
                self.running += 1;
            }
            Status::Allocated | Status::Pipelined | Status::Binding | Status::Bound => self.placed += 1,
            Status::Releasing | Status::Stuck => self.terminating += 1,
            Status::Unknown => self.unknown += 1,
            Status::Succeeded | Status::Failed => self.completed += 1,
        }
    }

    fn state(&self, min: u32) -> GroupState {
        let waiting = self.pending + self.gated;
        match *self {
            Self { pods: 0, .. } => GroupState::Empty,
            Self { placed: 0, pending: 0, gated: 1.., .. } => GroupState::Gated,
            Self { placed: 0, pending: 1.., .. } => GroupState::Pending,
            Self { placed: 0, terminating: 1.., .. } => GroupState::Terminating,
            Self { placed: 0, unknown: 1.., .. } => GroupState::Unknown,
            Self { placed: 0, .. } => GroupState::Completed,
            // A group with completed pods is about to complete; it is not stale.
            Self { placed, completed: 0, .. } if placed < min => GroupState::Stale,
            Self { .. } if waiting > 0 => GroupState::Partial,
            Self { placed, running, .. } if placed == running => GroupState::Running,
            Self { .. } => GroupState::Starting,
        }
    }
}

/// A pod group.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GroupView {
    /// Namespace and name.
    pub group: String,
    /// What the user submitted, such as `Job/hello`.
    pub workload: Workload,
    pub queue: String,
    pub priority: i32,
    pub priority_class: Option<String>,
    pub preemptible: bool,
    pub state: GroupState,
    #[serde(flatten)]
    pub counts: PodCounts,
    /// Pods that have to be placed together (`minMember`, of all subgroups).
    pub min: u32,
    pub created: String,
    /// Its maximum run time, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeLimitView>,
    /// When its pods are evicted, while fewer are placed than its minimum; absent where they never are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_until: Option<String>,
    /// The first thing to know, as a sentence; `None` where nothing is pending.
    pub reason: Option<String>,
    /// What is invalid in its objects; what prevents its placement comes first.
    pub findings: Vec<FindingView>,
    pub verdict: Option<VerdictView>,
    /// What a cycle would evict of it, as sentences.
    #[serde(rename = "loses")]
    pub planned_evictions: Vec<String>,
    #[serde(skip)]
    pub key: Key,
    #[serde(skip)]
    pub created_at: Timestamp,
    /// A cycle would place it now.
    #[serde(skip)]
    pub is_placeable: bool,
    #[serde(skip)]
    pub obstacles: Vec<Obstacle>,
}

impl GroupView {
    /// No change of the cluster would place it: the request of a pod that it needs cannot be read.
    pub fn is_invalid(&self) -> bool {
        let is_short = self.verdict.as_ref().is_some_and(|verdict| verdict.leading.verdict == "not_ready");
        is_short && self.counts.invalid > 0
    }

    /// `train (50)`, or the number where the group names no class.
    pub fn priority_text(&self) -> String {
        match &self.priority_class {
            Some(class) => format!("{class} ({})", self.priority),
            None => self.priority.to_string(),
        }
    }
}

/// The maximum run time of a running group that takes effect next.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct TimeLimitView {
    /// Seconds since the start.
    pub limit_seconds: i64,
    /// `preemptible` or `end`.
    pub action: &'static str,
    /// The queue that has the limit; absent for the group's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// When the action follows, grace period included.
    pub effective: String,
    /// Seconds until then; 0 where it has passed.
    pub remaining_seconds: i64,
}

impl TimeLimitView {
    fn of(cluster: &Cluster, group: GroupIdx, now: Timestamp) -> Option<Self> {
        const SECOND: i64 = 1_000_000;
        let next = cluster.next_limit(group)?;
        let action = match next.limit.action {
            LimitAction::Preemptible => time_limit::PREEMPTIBLE,
            LimitAction::End => time_limit::END,
        };
        Some(Self {
            limit_seconds: next.limit.limit.0 / SECOND,
            action,
            queue: next.queue.map(|queue| cluster.text(cluster.queues[queue].name).to_owned()),
            effective: next.effective_at().to_string(),
            remaining_seconds: (next.effective_at() - now).0.max(0) / SECOND,
        })
    }

    /// `ends in 2h0m0s`, `preemptible in 5m0s`, `preemptible`.
    pub fn text(&self) -> String {
        let remaining = duration::format_go(Span::from_secs(self.remaining_seconds));
        match (self.action, self.remaining_seconds) {
            (time_limit::END, 0) => "ends now".to_owned(),
            (time_limit::END, _) => format!("ends in {remaining}"),
            (_, 0) => "preemptible".to_owned(),
            (_, _) => format!("preemptible in {remaining}"),
        }
    }

    /// The limit as a sentence.
    pub fn sentence(&self) -> String {
        let limit = duration::format_go(Span::from_secs(self.limit_seconds));
        let of = self.queue.as_ref().map_or_else(String::new, |queue| format!(" of queue `{queue}`"));
        format!("maximum run time {limit}{of}: {}", self.text())
    }
}

/// The groups of a cluster.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GroupsView {
    pub groups: Vec<GroupView>,
}

/// All groups of the scheduler's node pool, by namespace and name.
pub fn all(view: &ClusterView) -> GroupsView {
    let verdicts: BTreeMap<&Key, &GroupVerdict> =
        view.outcome.verdicts.iter().map(|verdict| (&verdict.group, verdict)).collect();
    let mut evictions = planned_evictions(&view.outcome);
    let groups = view.store.objects().pod_groups.iter().filter_map(|(key, object)| {
        let group = view.cluster.group(key)?;
        let evictions = evictions.remove(key).unwrap_or_default();
        Some(group_view(view, (key, object), group, verdicts.get(key).copied(), evictions))
    });
    GroupsView { groups: groups.collect() }
}

/// One group; `None` outside the scheduler's node pool.
pub fn one(view: &ClusterView, key: &Key) -> Option<GroupView> {
    let object = view.store.objects().pod_groups.get(key)?;
    let group = view.cluster.group(key)?;
    let evictions = planned_evictions(&view.outcome).remove(key).unwrap_or_default();
    Some(group_view(view, (key, object), group, view.verdict(key), evictions))
}

fn group_view(
    view: &ClusterView,
    (key, object): (&Key, &PodGroup),
    group: GroupIdx,
    verdict: Option<&GroupVerdict>,
    planned_evictions: Vec<String>,
) -> GroupView {
    let time_limit = TimeLimitView::of(&view.cluster, group, view.now);
    let group = &view.cluster.groups[group];
    let grace = group.staleness_grace.unwrap_or(view.staleness_grace);
    let stale_until = stale_until(group.stale_since, grace, view.now).map(|until| until.to_string());
    let counts = PodCounts::of(&view.store, &view.cluster, group);
    let min = min(group, Group::root());
    let obstacles = verdict.map(|verdict| obstacles_of(&view.store, verdict, &counts)).unwrap_or_default();
    let mut model = GroupView {
        group: key.to_string(),
        workload: Workload::of(object),
        queue: view.cluster.text(group.queue_name).to_owned(),
        priority: group.priority,
        priority_class: Some(object.spec.priority_class_name.clone()).filter(|class| !class.is_empty()),
        preemptible: group.preemptible,
        state: counts.state(min),
        counts,
        min,
        created: group.created.to_string(),
        time_limit,
        stale_until: stale_until.filter(|_| counts.state(min) == GroupState::Stale),
        reason: None,
        findings: findings::of_group(&view.store, &view.cluster, key, group),
        verdict: verdict.map(verdicts::view),
        planned_evictions,
        key: key.clone(),
        created_at: group.created,
        is_placeable: verdict.is_some_and(|verdict| verdict.leading == Verdict::Placed),
        obstacles,
    };
    model.reason = reason(&model);
    model
}

/// Why a group is pending: what is invalid where that is why, then every obstacle.
pub fn explained(store: &Store, cluster: &Cluster, verdict: &GroupVerdict) -> Vec<Obstacle> {
    let Some(group) = cluster.group(&verdict.group) else { return obstacles(verdict, Some(store)) };
    let group = &cluster.groups[group];
    let counts = PodCounts::of(store, cluster, group);
    let mut all = obstacles_of(store, verdict, &counts);
    if counts.invalid > 0 && matches!(verdict.leading, Verdict::NotReady { .. }) {
        let findings = findings::of_group(store, cluster, &verdict.group, group);
        let invalid = findings.into_iter().find(|finding| finding.prevents).map(|finding| Obstacle {
            is_further: false,
            sentence: Sentence { text: finding.text(), hint: Some(finding.hint) },
            is_correction: true,
        });
        all.splice(0..0, invalid);
    }
    all
}

/// The obstacles with the hints that correct something; what else would help is found by planning.
fn obstacles_of(store: &Store, verdict: &GroupVerdict, counts: &PodCounts) -> Vec<Obstacle> {
    let mut all = obstacles(verdict, Some(store));
    if let Verdict::NotReady { sub_group, ready, needed } = &verdict.leading
        && let Some(first) = all.first_mut()
    {
        let is_whole = sub_group.is_empty() || sub_group == DEFAULT_POD_SET;
        let of = if is_whole { String::new() } else { format!(" of sub-group `{sub_group}`") };
        if let Some(sentence) = not_ready(&of, *ready, *needed, counts) {
            first.sentence = sentence;
        }
    }
    all
}

/// Why fewer pods than the minimum can be scheduled; `None` where there are several reasons.
fn not_ready(of: &str, ready: u32, needed: u32, counts: &PodCounts) -> Option<Sentence> {
    let more = needed.saturating_sub(ready);
    match *counts {
        PodCounts { gated: 0, invalid: 0, .. } => Some(Sentence {
            text: format!("{ready} of {needed} pods{of} exist"),
            hint: Some(format!("create {more} more")),
        }),
        PodCounts { gated: 0, invalid, .. } if invalid >= more => Some(Sentence {
            text: format!("{ready} of {needed} required pods{of} can be placed"),
            hint: None,
        }),
        PodCounts { gated, invalid: 0, .. } if gated >= more => Some(Sentence {
            text: format!("{ready} of {needed} required pods{of} have no scheduling gate"),
            hint: Some(format!("remove the scheduling gates of {more} more")),
        }),
        PodCounts { .. } => None,
    }
}

/// When the pods of a group are evicted that runs below its minimum. A negative grace period never ends.
fn stale_until(since: Option<Timestamp>, grace: Span, now: Timestamp) -> Option<Timestamp> {
    (grace.0 >= 0).then(|| since.unwrap_or(now) + grace)
}

fn reason(group: &GroupView) -> Option<String> {
    if let Some(finding) = group.findings.first().filter(|finding| finding.prevents) {
        return Some(finding.text());
    }
    if group.is_placeable {
        return Some("the next cycle would place it".to_owned());
    }
    if group.verdict.is_some() {
        return group.obstacles.first().map(|obstacle| obstacle.sentence.text.clone());
    }
    if let Some(eviction) = group.planned_evictions.first() {
        return Some(eviction.clone());
    }
    match group.state {
        GroupState::Gated => Some("pods have scheduling gates".to_owned()),
        GroupState::Stale => {
            Some(format!("{} of {} required pods are placed", group.counts.placed, group.min))
        }
        GroupState::Unknown => Some("nodes are unreachable".to_owned()),
        GroupState::Empty
        | GroupState::Pending
        | GroupState::Starting
        | GroupState::Running
        | GroupState::Partial
        | GroupState::Terminating
        | GroupState::Completed => None,
    }
}

/// The minimum number of pods that satisfies a member.
fn min(group: &Group, member: MemberIdx) -> u32 {
    match &group.members[member].kind {
        MemberKind::Pods(pods) => pods.min,
        MemberKind::Set { children, .. } => {
            let mut each: Vec<u32> = children.iter().map(|child| min(group, *child)).collect();
            each.sort_unstable();
            each.into_iter().take(group.needed(member) as usize).sum()
        }
    }
}

/// What a cycle would evict of each group, as sentences.
fn planned_evictions(outcome: &Outcome) -> BTreeMap<Key, Vec<String>> {
    let mut all: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for evictions in by_preemptor(outcome) {
        let preemptor = evictions.preemptor.map_or_else(String::new, |group| format!(" for `{group}`"));
        for victims in &evictions.victims {
            let Some(group) = victims.group else { continue };
            let pods = match victims.pods.len() {
                1 => "1 pod".to_owned(),
                count => format!("{count} pods"),
            };
            let rule = kai_engine::explain::rule(victims.why);
            let text = format!("the next cycle would evict {pods} ({}{preemptor}): {rule}", evictions.action);
            all.entry(group.clone()).or_default().push(text);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(statuses: &[Status], min: u32) -> GroupState {
        let mut counts = PodCounts::default();
        for status in statuses {
            counts.add(*status);
        }
        counts.state(min)
    }

    #[test]
    fn state_follows_from_the_pods() {
        use Status::{Binding, Bound, Gated, Pending, Releasing, Running, Succeeded, Unknown};
        for (statuses, min, expected) in [
            (&[][..], 1, GroupState::Empty),
            (&[Pending, Gated], 1, GroupState::Pending),
            (&[Gated], 1, GroupState::Gated),
            (&[Pending, Releasing], 1, GroupState::Pending),
            (&[Binding, Running], 2, GroupState::Starting),
            (&[Bound], 1, GroupState::Starting),
            (&[Running, Succeeded], 2, GroupState::Running),
            (&[Running, Pending], 1, GroupState::Partial),
            (&[Running, Pending], 2, GroupState::Stale),
            (&[Releasing], 1, GroupState::Terminating),
            (&[Unknown], 1, GroupState::Unknown),
            (&[Succeeded, Succeeded], 2, GroupState::Completed),
        ] {
            assert_eq!(state(statuses, min), expected, "{statuses:?}");
        }
    }

    #[test]
    fn missing_gated_and_invalid_pods_are_distinguished() {
        let text = |gated, invalid| {
            let counts = PodCounts { gated, invalid, ..PodCounts::default() };
            not_ready("", 1, 2, &counts).map(|sentence| sentence.to_string())
        };
        assert_eq!(text(0, 0).as_deref(), Some("1 of 2 pods exist; hint: create 1 more"));
        assert_eq!(
            text(1, 0).as_deref(),
            Some("1 of 2 required pods have no scheduling gate; hint: remove the scheduling gates of 1 more")
        );
        assert_eq!(text(0, 1).as_deref(), Some("1 of 2 required pods can be placed"));
        assert_eq!(text(1, 1), None);
    }

    #[test]
    fn stale_group_is_evicted_when_its_grace_period_ends() {
        let (since, now) = (Timestamp(5_000_000), Timestamp(9_000_000));
        assert_eq!(stale_until(Some(since), Span::from_secs(60), now), Some(Timestamp(65_000_000)));
        assert_eq!(stale_until(None, Span::from_secs(60), now), Some(Timestamp(69_000_000)));
        assert_eq!(stale_until(Some(since), Span::from_secs(-1), now), None, "never");
    }
}
