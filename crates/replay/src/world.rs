//! The objects of a simulation, and what happens to them: the binder, the kubelet and the controllers in one.
//!
//! Objects are engine inputs. Every change goes to the cluster at once, so that it always shows the objects.

mod claims;
mod group;
mod pod;

use crate::agenda::{Agenda, Event, Stage};
use crate::options::Options;
use crate::script::Script;
use claims::Claims;
use group::GroupLife;
use kai_engine::input::{Key, PodPhase, QueueInput};
use kai_engine::outcome::{Decision, Outcome};
use kai_engine::{ClusterState, Delta, Policy};
use kai_units::{Span, Timestamp};
use pod::PodLife;
use std::collections::{BTreeMap, BTreeSet};

/// All objects, and what is going to happen to them.
pub(crate) struct World {
    pub(crate) cluster: ClusterState,
    pub(crate) agenda: Agenda,
    pods: BTreeMap<Key, PodLife>,
    groups: BTreeMap<Key, GroupLife>,
    queues: BTreeMap<String, QueueInput>,
    claims: Claims,
    /// Spans after a group's start at which it may lose its protection.
    protections: BTreeSet<Span>,
    start_delay: Span,
    grace: Span,
}

impl World {
    /// The objects as they are at the beginning.
    pub(crate) fn new(
        deltas: impl IntoIterator<Item = Delta>,
        script: &Script,
        policy: &Policy,
        options: &Options,
    ) -> Self {
        let protections = policy.registry.builtin.min_runtime.map(|spans| [spans.preempt, spans.reclaim]);
        let mut world = Self {
            cluster: ClusterState::new(),
            agenda: Agenda::default(),
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            queues: BTreeMap::new(),
            claims: Claims::default(),
            protections: protections.into_iter().flatten().flatten().filter(|span| *span > Span(0)).collect(),
            start_delay: Span(options.start_delay.0.max(0)),
            grace: Span(options.grace.0.max(0)),
        };
        let mut pods = Vec::new();
        for delta in deltas {
            if let Delta::Pod(pod) = delta {
                pods.push(*pod);
            } else if let Delta::Group(group) = delta {
                world.load_group(*group, script, options.start);
            } else {
                world.load_other(delta);
            }
        }
        for pod in pods {
            let script = script.pods.get(&pod.key).copied().unwrap_or_default();
            world.load_pod(PodLife::new(pod, script), options.start);
        }
        world.open_groups(options.start);
        world
    }

    fn load_other(&mut self, delta: Delta) {
        if let Delta::Queue(queue) = &delta {
            let spans = [queue.preempt_min_runtime, queue.reclaim_min_runtime];
            self.protections.extend(spans.into_iter().flatten().filter(|span| *span > Span(0)));
            self.queues.insert(queue.name.clone(), (**queue).clone());
        } else if let Delta::Claim(claim) = &delta {
            self.claims.devices.insert(claim.key.clone(), (**claim).clone());
        } else if let Delta::VolumeClaim(claim) = &delta {
            self.claims.volumes.insert(claim.key.clone(), claim.clone());
        }
        self.cluster.apply(delta);
    }

    fn load_pod(&mut self, mut pod: PodLife, start: Timestamp) {
        let key = pod.input.key.clone();
        let group = pod.group();
        let held_back = group.as_ref().and_then(|group| self.groups.get(group)).and_then(|g| g.submit_at);
        let own = pod.script.submitted_after.map(|after| start + after);
        if let Some(group) = group.as_ref().and_then(|group| self.groups.get_mut(group)) {
            group.pods.push(key.clone());
        }
        if let Some(at) = own.max(held_back).filter(|at| *at > start) {
            pod.wait_for_submission();
            self.agenda.add(at, Event::SubmitPod(key.clone()));
            self.pods.insert(key, pod);
            return;
        }
        let mut due =
            |at: Timestamp, stage: Stage| self.agenda.add(at, Event::Pod(key.clone(), pod.life, stage));
        match pod.input.phase {
            PodPhase::Binding | PodPhase::Bound => due(start + self.start_delay, Stage::Start),
            PodPhase::Running => {
                let group = group.as_ref().and_then(|group| self.groups.get(group));
                let since = group.and_then(|group| group.input.last_start).unwrap_or(start).min(start);
                if let Some(span) = pod.script.runs_for {
                    due((since + span).max(start), Stage::End);
                }
            }
            PodPhase::Releasing(at) => due(at.max(start), Stage::Leave),
            PodPhase::ReleasingUnstarted => due(start + self.grace, Stage::Leave),
            PodPhase::Pending
            | PodPhase::Gated
            | PodPhase::Waiting
            | PodPhase::Succeeded
            | PodPhase::Failed
            | PodPhase::Unknown => {}
        }
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        self.pods.insert(key, pod);
    }

    /// Lets everything happen that is due.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        while let Some((at, event)) = self.agenda.pop_until(now) {
            match event {
                Event::SubmitGroup(key) => self.submit_group(&key, at),
                Event::SubmitPod(key) => self.submit_pod(&key, at),
                Event::Pod(key, life, stage) => self.reach(&key, life, stage, at),
            }
        }
    }

    /// Carries an outcome out. Returns whether it changes anything.
    pub(crate) fn carry_out(&mut self, outcome: &Outcome, now: Timestamp) -> bool {
        let mut changed = !outcome.staleness.is_empty();
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind(bind) => {
                    self.bind(bind, now);
                    changed = true;
                }
                // A pod that waits for room is pending; the next cycles see the room.
                Decision::Pipeline { .. } => {}
                Decision::Evict { pod, uid, group, .. } => {
                    self.evict(pod, uid, now);
                    if let Some(group) = group {
                        self.stamp(group, |input| input.last_eviction = Some(now));
                    }
                    changed = true;
                }
            }
        }
        for group in &outcome.started {
            self.stamp(group, |input| input.last_start = Some(now));
        }
        for (group, since) in &outcome.staleness {
            self.stamp(group, |input| input.stale_since = *since);
        }
        changed
    }

    /// The usage that queues came with, in the given order.
    pub(crate) fn usage_of(&self, names: &[&str]) -> Vec<[f64; 3]> {
        names.iter().map(|name| self.queues.get(*name).map_or([0.0; 3], |queue| queue.usage)).collect()
    }

    /// Sets the usage of a queue.
    pub(crate) fn set_usage(&mut self, name: &str, usage: [f64; 3]) {
        let is_other = |queue: &&mut QueueInput| queue.usage.map(f64::to_bits) != usage.map(f64::to_bits);
        let Some(queue) = self.queues.get_mut(name).filter(is_other) else { return };
        queue.usage = usage;
        self.cluster.apply(Delta::Queue(Box::new(queue.clone())));
    }
}
