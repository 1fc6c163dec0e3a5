//! Runs the action of a plugin, with the operations that it has on the cycle.

use super::{allocate, stale_gang_eviction};
use crate::cluster::Cluster;
use crate::cycle::{Run, is_schedulable};
use crate::disruption::Disruptions;
use crate::ids::{GroupIdx, PodIdx};
use crate::order::tree_walk::{Purpose, TreeWalk};
use crate::outcome::{Cycle, EvictionReason};
use crate::plugin::{Operations, Session};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn run(run: &mut Run<'_, '_>, name: &'static str) {
    run.end_search();
    let registry = &run.policy.registry;
    let Some(action) = registry.actions.iter().find(|action| action.name() == name) else { return };
    let running = Arc::clone(&registry.running);
    action.run(&mut Session { operations: run, action: name, running });
}

impl Operations for Run<'_, '_> {
    fn cluster(&self) -> &Cluster {
        &self.plan
    }

    fn cycle(&self) -> Cycle {
        self.cycle
    }

    fn pending_in_order(&self) -> Vec<GroupIdx> {
        let (registry, pending) = (&self.policy.registry, self.pending_groups());
        let mut walk = TreeWalk::new(&self.plan, registry, Purpose::Place, self.total, pending, None);
        std::iter::from_fn(|| walk.pop(&self.plan)).collect()
    }

    fn place(&mut self, group: GroupIdx, action: &'static str) -> bool {
        if !is_schedulable(&self.plan.groups[group]) || !self.takes_part(group) {
            return false;
        }
        self.visited(group);
        self.guarded(group, |run| allocate::place_next(run, group, action))
    }

    fn evict(&mut self, pods: &[PodIdx], action: &'static str, why: &str) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for pod in pods {
            if !seen.insert(*pod) || !stale_gang_eviction::is_evictable(&self.plan, *pod) {
                return Err(format!("pod `{}` does not run, or is evicted already", self.plan.pod_key(*pod)));
            }
        }
        if self.disruptions.is_none() {
            let budgets = self.policy.disruption_budgets;
            self.disruptions = Some(Disruptions::new(self.plan.cluster_mut(), budgets));
        }
        let Some(mut disruptions) = self.disruptions.take() else { return Ok(()) };
        let forbidden = disruptions.broken_by(&self.plan, pods).cloned();
        if forbidden.is_none() {
            disruptions.draw(&self.plan, pods);
        }
        self.disruptions = Some(disruptions);
        if let Some(budget) = forbidden {
            return Err(format!("disruption budget `{budget}` forbids it"));
        }
        for &pod in pods {
            let why = EvictionReason::Custom { message: why.to_owned() };
            self.push_eviction(pod, action, pods.len(), None, why);
            self.plan.evict(pod);
        }
        self.plan.seal();
        Ok(())
    }
}
