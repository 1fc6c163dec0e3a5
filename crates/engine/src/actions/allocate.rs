//! Places pending groups on room that is free or being freed, in the order of the queue tree.

use crate::cluster::pod::{PodState, Status};
use crate::cycle::Run;
use crate::ids::{GroupIdx, PodIdx};
use crate::node_set::NodeSet;
use crate::order::member::{Selection, pods_to_place};
use crate::order::tree_walk::{Purpose, TreeWalk};
use crate::place::Step;
use crate::plan::Plan;
use rustc_hash::FxHashSet;

const NAME: &str = "allocate";

/// Runs the action.
pub(crate) fn run(run: &mut Run<'_, '_>) {
    let depth = run.policy.queue_depth.get(NAME).copied();
    let waiting = run.waiting_groups();
    let mut walk = TreeWalk::new(
        &run.plan,
        &run.policy.registry,
        Purpose::Place,
        run.total,
        waiting.iter().copied(),
        depth,
    );
    run.note_beyond_depth(&waiting, depth);
    serve_held(run, &waiting);
    while let Some(group) = walk.pop(&run.plan) {
        run.visited(group);
        if run.guarded(group, |run| place_next(run, group)) && run.plan.groups[group].pending() > 0 {
            walk.push(&run.plan, group);
        }
    }
}

/// Groups for which room was made come before all others.
fn serve_held(run: &mut Run<'_, '_>, waiting: &[GroupIdx]) {
    let held: Vec<GroupIdx> = run.plan.held.iter().filter_map(|key| run.plan.group(key)).collect();
    if held.is_empty() {
        return;
    }
    let waiting: FxHashSet<GroupIdx> = waiting.iter().copied().collect();
    for group in held.into_iter().filter(|group| waiting.contains(group)) {
        run.visited(group);
        if run.guarded(group, |run| place_next(run, group)) {
            run.hold(group);
        }
    }
}

/// One step of a group; true when it was committed.
fn place_next(run: &mut Run<'_, '_>, group: GroupIdx) -> bool {
    let pods = pods_to_place(&run.plan, &run.policy.registry, group, Selection::Real);
    let had_none = run.plan.groups[group].active_allocated() == 0;
    let mut step = Step::new(run.policy, run.cycle.seed, group, Selection::Real);
    if !step.run(&mut run.plan, &pods, &NodeSet::All) {
        run.note_obstacles(group, step.obstacles);
        return false;
    }
    let waits = must_wait(&run.plan, group);
    if waits {
        pipeline_all(&mut run.plan, &pods);
    }
    let mut bound = false;
    for &pod in &pods {
        bound |= run.commit(pod, NAME);
    }
    if bound && !waits && had_none {
        run.started(group);
    }
    true
}

/// A gang that cannot reach its minimum with what is free now waits as a whole.
fn must_wait(plan: &Plan<'_>, group: GroupIdx) -> bool {
    plan.groups[group].pod_sets().any(|(_, set)| {
        let waiting = set.count(Status::Pipelined);
        waiting > 0 && set.active_allocated() - waiting < set.min
    })
}

fn pipeline_all(plan: &mut Plan<'_>, pods: &[PodIdx]) {
    for &pod in pods {
        let state = &plan.pods[pod].state;
        if state.status == Status::Allocated {
            let state = PodState { status: Status::Pipelined, ..state.clone() };
            plan.set_state(pod, state);
        }
    }
}
