//! Completeness of the eviction search: where nothing is decided, no set of victims from one queue is valid.
//!
//! The audit shares no code with the search, so that every plan that it accepts is one that the search must find.

use crate::evictions::{CYCLE, check_property};
use crate::random_clusters::full::full_cluster_without_time;
use kai_engine::audit::audit;
use kai_engine::input::{GroupInput, Key, PodInput, PodPhase};
use kai_engine::outcome::{Bind, Cause, EvictionReason};
use kai_engine::policy::{Action, Policy};
use kai_engine::{ClusterState, Decision, Delta, Outcome, plan};
use kai_testkit::scenario::Scenario;
use kai_testkit::test_cluster::TestCluster;
use std::collections::BTreeSet;

/// All sets of up to this number of running groups are tried.
const MOST_GROUPS: usize = 6;

#[test]
fn search_misses_no_valid_set_of_victims() {
    check_property(full_cluster_without_time, |text| {
        let scenario = Scenario::parse(text).map_err(|error| format!("{error:#}"))?;
        let mut cluster = scenario.cluster.build();
        let outcome = plan(&mut cluster, &scenario.policy, CYCLE);
        let exhaustive =
            Exhaustive { test_cluster: &scenario.cluster, policy: &scenario.policy, cluster, outcome };
        let groups = exhaustive.groups(PodPhase::Running);
        // The GPU of a fraction depends on the placement order, which is not reproduced here.
        let has_fractions = text.contains("gpu=0.");
        if has_fractions || !exhaustive.outcome.decisions.is_empty() || groups.len() > MOST_GROUPS {
            return Ok(());
        }
        for pending in exhaustive.groups(PodPhase::Pending) {
            for set in 1_u32..1 << groups.len() {
                let victims = groups.iter().enumerate().filter(|(i, _)| set & 1 << i != 0);
                let victims: BTreeSet<&Key> = victims.map(|(_, group)| group).collect();
                // With victims of several queues the validity depends on their order.
                let queues: BTreeSet<&str> =
                    victims.iter().filter_map(|group| exhaustive.queue(group)).collect();
                if victims.contains(&pending) || queues.len() != 1 {
                    continue;
                }
                if let Some(found) = exhaustive.find(&pending, &victims) {
                    return Err(format!("nothing was evicted for `{pending}`, and this is valid: {found}"));
                }
            }
        }
        Ok(())
    });
}

/// A cluster on which nothing was decided, and the exhaustive search of victims.
struct Exhaustive<'a> {
    test_cluster: &'a TestCluster,
    policy: &'a Policy,
    cluster: ClusterState,
    outcome: Outcome,
}

impl Exhaustive<'_> {
    /// Groups with pods in a phase.
    fn groups(&self, phase: PodPhase) -> Vec<Key> {
        let pods = self.test_cluster.pods().filter(|pod| pod.phase == phase);
        pods.filter_map(group_of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn group(&self, key: &Key) -> Option<&GroupInput> {
        let groups = self
            .test_cluster
            .deltas
            .iter()
            .filter_map(|d| if let Delta::Group(group) = d { Some(&**group) } else { None });
        groups.into_iter().find(|group| group.key == *key)
    }

    fn queue(&self, group: &Key) -> Option<&str> {
        self.group(group).map(|group| &*group.queue)
    }

    /// A valid plan in which these groups are evicted for a pending one.
    fn find(&self, pending: &Key, victims: &BTreeSet<&Key>) -> Option<String> {
        let ours = self.places_without(pending, victims);
        if ours.len() < self.first_step(pending) {
            return None;
        }
        [Cause::Reclaim, Cause::Preempt].into_iter().find_map(|cause| {
            let decisions = self.decisions(cause, pending, victims, &ours);
            let outcome = Outcome { decisions, ..self.outcome.clone() };
            let accepted = audit(&self.cluster, self.policy, &outcome).is_empty();
            accepted.then(|| crate::evictions::describe(&outcome))
        })
    }

    /// The placement of the pending group without the victims: one step, as in a search.
    fn places_without(&self, pending: &Key, victims: &BTreeSet<&Key>) -> Vec<Bind> {
        let mut test_cluster = self.only(pending);
        test_cluster
            .deltas
            .retain(|delta| !matches!(delta, Delta::Pod(pod) if Self::is_victim(pod, victims)));
        let mut binds = self.place(&test_cluster);
        binds.truncate(self.first_step(pending));
        binds
    }

    /// The cluster with only one pending group.
    fn only(&self, pending: &Key) -> TestCluster {
        let mut test_cluster = self.test_cluster.clone();
        let other =
            |pod: &PodInput| pod.phase == PodPhase::Pending && group_of(pod).as_ref() != Some(pending);
        test_cluster.deltas.retain(|delta| !matches!(delta, Delta::Pod(pod) if other(pod)));
        test_cluster
    }

    fn is_victim(pod: &PodInput, victims: &BTreeSet<&Key>) -> bool {
        pod.phase == PodPhase::Running && group_of(pod).is_some_and(|group| victims.contains(&group))
    }

    fn place(&self, test_cluster: &TestCluster) -> Vec<Bind> {
        let only_allocate = Policy { actions: vec![Action::Allocate], ..self.policy.clone() };
        let outcome = plan(&mut test_cluster.build(), &only_allocate, CYCLE);
        let bind = |decision: Decision| if let Decision::Bind(bind) = decision { Some(*bind) } else { None };
        outcome.decisions.into_iter().filter_map(bind).collect()
    }

    /// The decisions of a search with this result.
    fn decisions(
        &self,
        cause: Cause,
        pending: &Key,
        victims: &BTreeSet<&Key>,
        ours: &[Bind],
    ) -> Vec<Decision> {
        let evict = |pod: &PodInput| Decision::Evict {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            group: group_of(pod),
            gang_size: 1,
            preemptor: Some(pending.clone()),
            action: cause.action(),
            why: Box::new(EvictionReason::Priority { preemptor: 0, victim: 0 }),
        };
        let pipeline = |bind: &Bind| Decision::Pipeline {
            pod: bind.pod.clone(),
            node: bind.node.clone(),
            gpu_groups: bind.gpu_groups.clone(),
            action: cause.action(),
            moved: false,
        };
        let evicted = self.test_cluster.pods().filter(|pod| Self::is_victim(pod, victims)).map(evict);
        evicted.chain(ours.iter().map(pipeline)).collect()
    }

    /// Number of pods of the group's next step: its missing minimum, or one more pod.
    fn first_step(&self, pending: &Key) -> usize {
        let running = self
            .test_cluster
            .pods()
            .filter(|pod| pod.phase == PodPhase::Running && group_of(pod).as_ref() == Some(pending));
        let minimum = self.group(pending).and_then(|group| group.min_member);
        (minimum.unwrap_or(1) as usize).saturating_sub(running.count()).max(1)
    }
}

fn group_of(pod: &PodInput) -> Option<Key> {
    pod.group.as_ref().map(|group| Key::new(&pod.key.namespace, group))
}
