//! A refusal to evict is right: where nothing was decided, no set of running groups could have given way.
//!
//! The audit is the judge. It shares no code with the search, so that every plan that can be put together from outside
//! and that it accepts is one that the search should have found.

use crate::evictions::{CYCLE, hold};
use crate::worlds::crowded::timeless;
use kai_engine::audit::audit;
use kai_engine::input::{Key, PodInput, PodPhase};
use kai_engine::outcome::{Bind, Cause, EvictionWhy};
use kai_engine::policy::{Action, Policy};
use kai_engine::{Cluster, Decision, Delta, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_testkit::world::World;
use std::collections::BTreeSet;

/// Most running groups of which all sets are tried.
const MOST_GROUPS: usize = 6;

#[test]
fn no_refusal_is_false() {
    hold(timeless, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let mut cluster = scenario.world.cluster();
        let outcome = plan(&mut cluster, &scenario.policy, CYCLE);
        let judge = Judge { world: &scenario.world, policy: &scenario.policy, cluster, outcome };
        let groups = judge.groups(PodPhase::Running);
        if !judge.outcome.decisions.is_empty() || groups.len() > MOST_GROUPS {
            return Ok(());
        }
        for waiting in judge.groups(PodPhase::Pending) {
            for set in 1_u32..1 << groups.len() {
                let victims = groups.iter().enumerate().filter(|(i, _)| set & 1 << i != 0);
                let victims: BTreeSet<&Key> = victims.map(|(_, group)| group).collect();
                if victims.contains(&waiting) {
                    continue;
                }
                if let Some(found) = judge.find(&waiting, &victims) {
                    return Err(format!("nothing was evicted for `{waiting}`, and this is lawful: {found}"));
                }
            }
        }
        Ok(())
    });
}

/// A cluster on which nothing was decided.
struct Judge<'a> {
    world: &'a World,
    policy: &'a Policy,
    cluster: Cluster,
    outcome: Outcome,
}

impl Judge<'_> {
    /// Groups with pods in a phase.
    fn groups(&self, phase: PodPhase) -> Vec<Key> {
        let pods = self.world.pods().filter(|pod| pod.phase == phase);
        pods.filter_map(group_of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A lawful plan in which these groups give way for a waiting one, in words.
    fn find(&self, waiting: &Key, victims: &BTreeSet<&Key>) -> Option<String> {
        let gone = self.placed(waiting, victims, false);
        let moved = self.placed(waiting, victims, true);
        let plans = [(Cause::Reclaim, &gone), (Cause::Preempt, &gone), (Cause::Consolidation, &moved)];
        plans.into_iter().find_map(|(cause, binds)| {
            let decisions = self.decisions(cause, waiting, victims, binds)?;
            let outcome = Outcome { decisions, ..self.outcome.clone() };
            let accepted = audit(&self.cluster, self.policy, &outcome).is_empty();
            accepted.then(|| crate::evictions::words(&outcome))
        })
    }

    /// Where the waiting group goes when the victims are gone, or are to be placed after it.
    fn placed(&self, waiting: &Key, victims: &BTreeSet<&Key>, stay: bool) -> Vec<Bind> {
        let mut world = self.world.clone();
        let is_victim = |pod: &PodInput| group_of(pod).is_some_and(|group| victims.contains(&group));
        let evicted: BTreeSet<String> = self
            .world
            .pods()
            .filter(|pod| is_victim(pod) && pod.phase == PodPhase::Running)
            .map(|pod| pod.key.name.clone())
            .collect();
        world.deltas.retain(|delta| match delta {
            Delta::Pod(pod) if evicted.contains(&pod.key.name) => stay,
            Delta::Pod(pod) => pod.phase != PodPhase::Pending || group_of(pod).as_ref() == Some(waiting),
            _ => true,
        });
        for name in &evicted {
            world.unplace(name);
        }
        let only_place = Policy { actions: vec![Action::Allocate], ..self.policy.clone() };
        let outcome = plan(&mut world.cluster(), &only_place, CYCLE);
        let bind = |decision: Decision| if let Decision::Bind(bind) = decision { Some(*bind) } else { None };
        outcome.decisions.into_iter().filter_map(bind).collect()
    }

    /// Evictions and waits as a search would have decided them; none where the waiting group gets nothing, or where
    /// one that should be moved gets no place.
    fn decisions(
        &self,
        cause: Cause,
        waiting: &Key,
        victims: &BTreeSet<&Key>,
        binds: &[Bind],
    ) -> Option<Vec<Decision>> {
        let group = |name: &Key| self.world.pods().find(|pod| pod.key == *name).and_then(group_of);
        let mut decisions = Vec::new();
        for pod in self.world.pods().filter(|pod| pod.phase == PodPhase::Running) {
            let Some(victim) = group_of(pod).filter(|group| victims.contains(group)) else { continue };
            if cause == Cause::Consolidation && !binds.iter().any(|bind| bind.pod == pod.key) {
                return None;
            }
            decisions.push(Decision::Evict {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                group: Some(victim),
                gang_size: 1,
                preemptor: Some(waiting.clone()),
                action: cause.action(),
                why: Box::new(EvictionWhy::Priority { preemptor: 0, victim: 0 }),
            });
        }
        // The group may take one step, as a search would; what else found room is not part of it.
        let step = self.first_step(waiting);
        let ours = binds.iter().filter(|bind| group(&bind.pod).as_ref() == Some(waiting)).take(step);
        let ours: Vec<&Bind> = ours.collect();
        if ours.len() < step {
            return None;
        }
        let moved = binds.iter().filter(|bind| group(&bind.pod).as_ref() != Some(waiting));
        let pipeline = |(bind, moved): (&Bind, bool)| Decision::Pipeline {
            pod: bind.pod.clone(),
            node: bind.node.clone(),
            gpu_groups: bind.gpu_groups.clone(),
            action: cause.action(),
            moved,
        };
        let ours = ours.into_iter().map(|bind| (bind, false));
        decisions.extend(ours.chain(moved.map(|bind| (bind, true))).map(pipeline));
        Some(decisions)
    }

    /// How many pods the group's next step has: its minimum, or one more pod.
    fn first_step(&self, waiting: &Key) -> usize {
        let running = self
            .world
            .pods()
            .filter(|pod| pod.phase == PodPhase::Running && group_of(pod).as_ref() == Some(waiting));
        let minimum = self.world.deltas.iter().find_map(|delta| match delta {
            Delta::Group(group) if group.key == *waiting => Some(group.min_member.unwrap_or(1) as usize),
            _ => None,
        });
        minimum.unwrap_or(1).saturating_sub(running.count()).max(1)
    }
}

fn group_of(pod: &PodInput) -> Option<Key> {
    pod.group.as_ref().map(|group| Key::new(&pod.key.namespace, group))
}
