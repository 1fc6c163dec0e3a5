//! Places pending groups on idle or releasing capacity, in queue order.

use crate::carry_over::PipelinedGroup;
use crate::cluster::group::Group;
use crate::cluster::pod::{PodState, Status};
use crate::cycle::Run;
use crate::ids::{GroupIdx, NodeIdx, PodIdx};
use crate::node_set::NodeSet;
use crate::order::member::{Selection, pods_to_place};
use crate::order::tree_walk::{Purpose, TreeWalk};
use crate::place::Step;
use crate::plan::Plan;
use rustc_hash::FxHashSet;

const NAME: &str = "allocate";

pub(crate) fn run(run: &mut Run<'_, '_>) {
    run.end_search();
    let depth = run.policy.queue_depth.get(NAME).copied();
    let pending = run.pending_groups();
    let mut walk = TreeWalk::new(
        &run.plan,
        &run.policy.registry,
        Purpose::Place,
        run.total,
        pending.iter().copied(),
        depth,
    );
    run.note_beyond_depth(&pending, depth);
    place_reserved_groups(run, &pending);
    while let Some(group) = walk.pop(&run.plan) {
        run.visited(group);
        if run.guarded(group, |run| place_next(run, group, NAME)) && run.plan.groups[group].pending() > 0 {
            walk.push(&run.plan, group);
        }
        run.note_progress();
        if run.is_over() {
            break;
        }
    }
}

/// Groups for which the last cycle evicted pods are placed first, on the nodes reserved for them.
fn place_reserved_groups(run: &mut Run<'_, '_>, pending: &[GroupIdx]) {
    let reserved_groups = run.plan.carried_over.pipelined.clone();
    if reserved_groups.is_empty() {
        return;
    }
    let pending: FxHashSet<GroupIdx> = pending.iter().copied().collect();
    for reserved in &reserved_groups {
        let Some(group) = run.plan.group(&reserved.group).filter(|group| pending.contains(group)) else {
            continue;
        };
        run.visited(group);
        if run.guarded(group, |run| {
            place_on_reserved_nodes(run, group, reserved) || place_next(run, group, NAME)
        }) {
            run.note_pipelined(group);
        }
    }
}

/// Places a group on its reserved nodes; true on success.
fn place_on_reserved_nodes(run: &mut Run<'_, '_>, group: GroupIdx, reserved: &PipelinedGroup) -> bool {
    let (mark, places) = (run.plan.mark(), reserved_nodes(&run.plan, group, reserved));
    let was_not_running = run.plan.groups[group].active_allocated() == 0;
    let mut step = Step::new(run.policy, run.cycle.seed, group, Selection::Real);
    let placed =
        places.iter().all(|(pod, node)| step.run(&mut run.plan, &[*pod], &NodeSet::Some([*node].into())));
    if places.is_empty() || !placed || !run.plan.groups[group].is_satisfied(Group::root()) {
        run.plan.rollback(mark);
        return false;
    }
    let pods: Vec<PodIdx> = places.into_iter().map(|(pod, _)| pod).collect();
    commit(run, group, &pods, was_not_running, NAME);
    true
}

/// Assigns reserved nodes to pending pods. A recreated pod takes the node of a deleted one.
fn reserved_nodes(plan: &Plan<'_>, group: GroupIdx, reserved: &PipelinedGroup) -> Vec<(PodIdx, NodeIdx)> {
    let is_pending = |pod: &PodIdx| plan.pods[*pod].state.status == Status::Pending;
    let named: Vec<Option<PodIdx>> = reserved.places.iter().map(|(pod, _)| plan.pod(pod)).collect();
    let mut others: Vec<PodIdx> = plan.groups[group].pods.iter().copied().filter(is_pending).collect();
    others.retain(|pod| !named.contains(&Some(*pod)));
    others.sort_by_cached_key(|pod| plan.pod_key(*pod));
    let mut others = others.into_iter();
    let places = reserved.places.iter().zip(&named);
    places
        .filter_map(|((_, node), pod)| {
            let pod = match pod {
                Some(pod) => Some(*pod).filter(is_pending),
                None => others.next(),
            };
            pod.zip(plan.node(node))
        })
        .collect()
}

/// Places the next step of a group; true when it was committed.
pub(super) fn place_next(run: &mut Run<'_, '_>, group: GroupIdx, action: &'static str) -> bool {
    let pods = pods_to_place(&run.plan, &run.policy.registry, group, Selection::Real);
    let was_not_running = run.plan.groups[group].active_allocated() == 0;
    let mut step = Step::new(run.policy, run.cycle.seed, group, Selection::Real);
    if !step.run(&mut run.plan, &pods, &NodeSet::All) {
        run.note_obstacles(group, step.obstacles);
        return false;
    }
    commit(run, group, &pods, was_not_running, action);
    true
}

/// Turns the placements of a group's pods into decisions.
fn commit(
    run: &mut Run<'_, '_>,
    group: GroupIdx,
    pods: &[PodIdx],
    was_not_running: bool,
    action: &'static str,
) {
    let pipelined = must_pipeline(&run.plan, group);
    if pipelined {
        pipeline_all(&mut run.plan, pods);
    }
    let mut bound = false;
    for &pod in pods {
        bound |= run.commit(pod, action);
    }
    if bound && !pipelined && was_not_running {
        run.started(group);
    }
}

/// A gang that cannot reach its minimum with idle capacity is pipelined as a whole.
fn must_pipeline(plan: &Plan<'_>, group: GroupIdx) -> bool {
    plan.groups[group].pod_sets().any(|(_, set)| {
        let pipelined = set.count(Status::Pipelined);
        pipelined > 0 && set.active_allocated() - pipelined < set.min
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
