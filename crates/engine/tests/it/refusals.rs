//! A refusal to evict is right: where nothing was decided, no set of groups of one queue could have been taken from.
//!
//! The audit is the judge. It shares no code with the search, so that every plan that can be put together from outside
//! and that it accepts is one that the search should have found.

use crate::evictions::{CYCLE, hold};
use crate::worlds::crowded::timeless;
use kai_engine::audit::audit;
use kai_engine::input::{GroupInput, Key, PodInput, PodPhase};
use kai_engine::outcome::{Bind, Cause, EvictionReason};
use kai_engine::policy::{Action, Policy};
use kai_engine::{ClusterState, Decision, Delta, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_testkit::test_cluster::TestCluster;
use std::collections::BTreeSet;

/// Most running groups of which all sets are tried.
const MOST_GROUPS: usize = 6;

#[test]
fn no_refusal_is_false() {
    hold(timeless, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let mut cluster = scenario.cluster.build();
        let outcome = plan(&mut cluster, &scenario.policy, CYCLE);
        let judge = Judge { world: &scenario.cluster, policy: &scenario.policy, cluster, outcome };
        let groups = judge.groups(PodPhase::Running);
        // Which GPU a part of one goes to is up to the order of placing, which the judge does not know.
        let has_parts = text.contains("gpu=0.");
        if has_parts || !judge.outcome.decisions.is_empty() || groups.len() > MOST_GROUPS {
            return Ok(());
        }
        for waiting in judge.groups(PodPhase::Pending) {
            for set in 1_u32..1 << groups.len() {
                let victims = groups.iter().enumerate().filter(|(i, _)| set & 1 << i != 0);
                let victims: BTreeSet<&Key> = victims.map(|(_, group)| group).collect();
                // Of several queues that lose, the rules judge one after the other: their order is part of the rules.
                let queues: BTreeSet<&str> = victims.iter().filter_map(|group| judge.queue(group)).collect();
                if victims.contains(&waiting) || queues.len() != 1 {
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
    world: &'a TestCluster,
    policy: &'a Policy,
    cluster: ClusterState,
    outcome: Outcome,
}

impl Judge<'_> {
    /// Groups with pods in a phase.
    fn groups(&self, phase: PodPhase) -> Vec<Key> {
        let pods = self.world.pods().filter(|pod| pod.phase == phase);
        pods.filter_map(group_of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn group(&self, key: &Key) -> Option<&GroupInput> {
        let groups = self
            .world
            .deltas
            .iter()
            .filter_map(|d| if let Delta::Group(group) = d { Some(&**group) } else { None });
        groups.into_iter().find(|group| group.key == *key)
    }

    fn queue(&self, group: &Key) -> Option<&str> {
        self.group(group).map(|group| &*group.queue)
    }

    /// A lawful plan in which these groups give way for a waiting one, in words.
    fn find(&self, waiting: &Key, victims: &BTreeSet<&Key>) -> Option<String> {
        let ours = self.places_without(waiting, victims);
        if ours.len() < self.first_step(waiting) {
            return None;
        }
        [Cause::Reclaim, Cause::Preempt].into_iter().find_map(|cause| {
            let decisions = self.decisions(cause, waiting, victims, &ours);
            let outcome = Outcome { decisions, ..self.outcome.clone() };
            let accepted = audit(&self.cluster, self.policy, &outcome).is_empty();
            accepted.then(|| crate::evictions::words(&outcome))
        })
    }

    /// Where the waiting group goes when the victims are gone: one step, as in a search.
    fn places_without(&self, waiting: &Key, victims: &BTreeSet<&Key>) -> Vec<Bind> {
        let mut world = self.only(waiting);
        world.deltas.retain(|delta| !matches!(delta, Delta::Pod(pod) if Self::is_victim(pod, victims)));
        let mut binds = self.place(&world);
        binds.truncate(self.first_step(waiting));
        binds
    }

    /// The world with nobody waiting but one group.
    fn only(&self, waiting: &Key) -> TestCluster {
        let mut world = self.world.clone();
        let other =
            |pod: &PodInput| pod.phase == PodPhase::Pending && group_of(pod).as_ref() != Some(waiting);
        world.deltas.retain(|delta| !matches!(delta, Delta::Pod(pod) if other(pod)));
        world
    }

    fn is_victim(pod: &PodInput, victims: &BTreeSet<&Key>) -> bool {
        pod.phase == PodPhase::Running && group_of(pod).is_some_and(|group| victims.contains(&group))
    }

    fn place(&self, world: &TestCluster) -> Vec<Bind> {
        let only_place = Policy { actions: vec![Action::Allocate], ..self.policy.clone() };
        let outcome = plan(&mut world.build(), &only_place, CYCLE);
        let bind = |decision: Decision| if let Decision::Bind(bind) = decision { Some(*bind) } else { None };
        outcome.decisions.into_iter().filter_map(bind).collect()
    }

    /// Evictions and waits as a search would have decided them.
    fn decisions(
        &self,
        cause: Cause,
        waiting: &Key,
        victims: &BTreeSet<&Key>,
        ours: &[Bind],
    ) -> Vec<Decision> {
        let evict = |pod: &PodInput| Decision::Evict {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            group: group_of(pod),
            gang_size: 1,
            preemptor: Some(waiting.clone()),
            action: cause.action(),
            why: Box::new(EvictionReason::Priority { preemptor: 0, victim: 0 }),
        };
        let wait = |bind: &Bind| Decision::Pipeline {
            pod: bind.pod.clone(),
            node: bind.node.clone(),
            gpu_groups: bind.gpu_groups.clone(),
            action: cause.action(),
            moved: false,
        };
        let evicted = self.world.pods().filter(|pod| Self::is_victim(pod, victims)).map(evict);
        evicted.chain(ours.iter().map(wait)).collect()
    }

    /// How many pods the group's next step has: its minimum, or one more pod.
    fn first_step(&self, waiting: &Key) -> usize {
        let running = self
            .world
            .pods()
            .filter(|pod| pod.phase == PodPhase::Running && group_of(pod).as_ref() == Some(waiting));
        let minimum = self.group(waiting).and_then(|group| group.min_member);
        (minimum.unwrap_or(1) as usize).saturating_sub(running.count()).max(1)
    }
}

fn group_of(pod: &PodInput) -> Option<Key> {
    pod.group.as_ref().map(|group| Key::new(&pod.key.namespace, group))
}
