//! Cycles that are planned only as far as they decide about one group.
//!
//! [`plan_focused`] answers whether a cycle places pods of a group, at a fraction of what the whole cycle costs. With
//! [`Others::All`] the answer is that of [`plan`](super::plan): decisions are made in the same order, and a placement of a
//! pending pod is never taken back in a cycle. The other variants leave out groups, so that they are estimates.

use super::{Run, open};
use crate::actions;
use crate::cluster::pod::{PodState, Status};
use crate::ids::{GroupIdx, PodIdx};
use crate::input::Key;
use crate::observer::Unobserved;
use crate::outcome::{Cycle, Decision, Outcome};
use crate::policy::Policy;
use crate::state::ClusterState;
use std::collections::BTreeSet;

/// What a focused plan is about.
#[derive(Clone, Copy, Debug)]
pub struct Focus<'a> {
    /// The group.
    pub group: &'a Key,
    /// Pods of the group that are to be placed.
    pub pods: &'a BTreeSet<Key>,
    /// How many of them.
    pub least: usize,
    /// The part that other groups have.
    pub others: Others<'a>,
}

/// The part that other pending groups have in a focused plan.
#[derive(Clone, Copy, Debug)]
pub enum Others<'a> {
    /// That of a whole cycle until the group is placed. Beyond so many steps the plan ends if the group is not placed
    /// yet; if it is, only the groups of the set may evict, while all are placed on free capacity.
    All {
        /// Groups that may evict beyond the steps.
        evicting: &'a BTreeSet<GroupIdx>,
        /// The steps: node evaluations and edits.
        steps_max: u64,
    },
    /// All are placed on free capacity, and none evicts.
    Placed,
    /// Some are placed on free capacity, and none evicts.
    Some(&'a BTreeSet<GroupIdx>),
    /// They do not exist, nor do their running pods.
    Absent,
}

/// The result of a focused plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Focused {
    /// What was decided, and the verdict of the group alone. It has no hash and no state for a next cycle.
    pub outcome: Outcome,
    /// So many pods of the group as are wanted are placed.
    pub is_reached: bool,
    /// The plan ended before it decided about the group.
    pub is_cut: bool,
    /// Node evaluations and edits.
    pub steps: u64,
}

/// The state of a focused plan.
pub(super) struct Progress<'a> {
    focus: Focus<'a>,
    group: GroupIdx,
    is_reached: bool,
    is_cut: bool,
}

/// Plans as much of a cycle as decides about a group. Derived values of the cluster are refreshed; everything else is
/// unchanged afterwards.
pub fn plan_focused(state: &mut ClusterState, policy: &Policy, cycle: Cycle, focus: Focus<'_>) -> Focused {
    let mut observer = Unobserved;
    let mut run = open(state, policy, cycle, &mut observer);
    let Some(group) = run.plan.group(focus.group) else { return Focused::default() };
    run.focus = Some(Progress { focus, group, is_reached: focus.least == 0, is_cut: false });
    let start = run.plan.mark();
    run.call_hooks(super::Moment::Open);
    run.plan.observe(&policy.registry.allocation_handlers);
    if matches!(focus.others, Others::Absent) {
        run.remove_others(group);
    }
    actions::time_limit::run(&mut run);
    for action in &policy.actions {
        if run.is_over() {
            break;
        }
        super::act(&mut run, *action);
        run.note_progress();
    }
    run.end_search();
    if matches!(focus.others, Others::All { .. }) && !run.is_over() {
        super::act_reduce_victims(&mut run);
    }
    run.outcome.verdicts = super::verdicts::of_group_in(&run, group).into_iter().collect();
    run.plan.observe(&[]);
    run.call_hooks(super::Moment::Close);
    run.plan.rollback(start);
    let steps = run.plan.work();
    let Run { outcome, focus, .. } = run;
    let (is_reached, is_cut) = focus.map_or((false, false), |focus| (focus.is_reached, focus.is_cut));
    Focused { outcome, is_reached, is_cut, steps }
}

/// Brings derived values of a cluster, such as fair shares, up to date, as [`plan`](super::plan) does.
pub fn refresh(state: &mut ClusterState, policy: &Policy, cycle: Cycle) {
    open(state, policy, cycle, &mut Unobserved);
}

impl Run<'_, '_> {
    /// Whether a group is placed on free capacity.
    pub(crate) fn takes_part(&self, group: GroupIdx) -> bool {
        let Some(Progress { focus, group: of, .. }) = &self.focus else { return true };
        match focus.others {
            Others::All { .. } | Others::Placed => true,
            Others::Some(groups) => group == *of || groups.contains(&group),
            Others::Absent => group == *of,
        }
    }

    /// Whether a group may evict.
    pub(crate) fn may_evict(&self, group: GroupIdx) -> bool {
        let Some(Progress { focus, group: of, is_reached, .. }) = &self.focus else { return true };
        match focus.others {
            Others::All { evicting, steps_max } => {
                !is_reached || self.plan.work() < steps_max || evicting.contains(&group)
            }
            Others::Placed | Others::Some(_) | Others::Absent => group == *of,
        }
    }

    /// Notes whether the group is placed, after a group was planned.
    pub(crate) fn note_progress(&mut self) {
        let work = self.plan.work();
        let (decisions, Some(progress)) = (&self.outcome.decisions, &mut self.focus) else { return };
        if progress.is_reached {
            return;
        }
        let Focus { pods, least, others, .. } = progress.focus;
        let is_placed = |decision: &&Decision| match decision {
            Decision::Bind(_) | Decision::Pipeline { moved: false, .. } => pods.contains(decision.pod()),
            Decision::Pipeline { moved: true, .. } | Decision::Evict { .. } => false,
        };
        if self.plan.groups[progress.group].pending() < pods.len() as u32 {
            progress.is_reached = decisions.iter().filter(is_placed).count() >= least;
        }
        if let Others::All { steps_max, .. } = others {
            progress.is_cut = !progress.is_reached && work >= steps_max;
        }
    }

    /// Whether nothing that is asked remains to be decided.
    pub(crate) fn is_over(&self) -> bool {
        self.focus.as_ref().is_some_and(|progress| match progress.focus.others {
            Others::All { .. } => progress.is_cut,
            Others::Placed | Others::Some(_) | Others::Absent => progress.is_reached,
        })
    }

    /// Removes the pods of all other groups from their nodes. Pods without a group, such as those of DaemonSets, stay.
    fn remove_others(&mut self, group: GroupIdx) {
        let is_other = |pod: &crate::cluster::pod::Pod| {
            pod.group.is_some_and(|of| of != group) && pod.state.status.holds_node()
        };
        let others: Vec<PodIdx> =
            self.plan.pods.enumerated().filter(|(_, pod)| is_other(pod)).map(|(index, _)| index).collect();
        for pod in others {
            self.plan.evict(pod);
            self.plan.set_state(pod, PodState::unplaced(Status::Succeeded));
        }
        self.plan.seal();
    }
}
