//! The objects of a simulation and their lifecycle: plays binder, kubelet and controllers.
//!
//! Objects are engine inputs. Every change is applied to the engine's cluster at once.

mod claims;
mod group;
mod pod;

use crate::event_queue::{Event, EventQueue, Stage};
use crate::options::Options;
use crate::script::Script;
use claims::Claims;
use group::SimulatedGroup;
use kai_engine::input::{Key, PodPhase, QueueInput};
use kai_engine::outcome::{Decision, Outcome};
use kai_engine::{ClusterState, Delta, Policy};
use kai_units::{Span, Timestamp};
use pod::SimulatedPod;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct SimulatedCluster {
    pub(crate) cluster: ClusterState,
    pub(crate) events: EventQueue,
    pods: BTreeMap<Key, SimulatedPod>,
    groups: BTreeMap<Key, SimulatedGroup>,
    queues: BTreeMap<String, QueueInput>,
    claims: Claims,
    /// All minimum run times that are configured.
    run_times: BTreeSet<Span>,
    start_delay: Span,
    grace: Span,
}

impl SimulatedCluster {
    pub(crate) fn new(
        deltas: impl IntoIterator<Item = Delta>,
        script: &Script,
        policy: &Policy,
        options: &Options,
    ) -> Self {
        let min_runtimes = policy.registry.builtin.min_runtime.map(|spans| [spans.preempt, spans.reclaim]);
        let mut loaded = Self {
            cluster: ClusterState::new(),
            events: EventQueue::default(),
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            queues: BTreeMap::new(),
            claims: Claims::default(),
            run_times: min_runtimes.into_iter().flatten().flatten().filter(|span| *span > Span(0)).collect(),
            start_delay: Span(options.start_delay.0.max(0)),
            grace: Span(options.grace.0.max(0)),
        };
        let mut pods = Vec::new();
        for delta in deltas {
            if let Delta::Pod(pod) = delta {
                pods.push(*pod);
            } else if let Delta::Group(group) = delta {
                loaded.load_group(*group, script, options.start);
            } else {
                loaded.load_other(delta);
            }
        }
        for pod in pods {
            let script = script.pods.get(&pod.key).copied().unwrap_or_default();
            loaded.load_pod(SimulatedPod::new(pod, script), options.start);
        }
        loaded.initialise_groups(options.start);
        loaded
    }

    fn load_other(&mut self, delta: Delta) {
        if let Delta::Queue(queue) = &delta {
            let spans = [queue.preempt_min_runtime, queue.reclaim_min_runtime].into_iter().flatten();
            let limits = queue.time_limit.into_iter().flat_map(|limit| limit.deadlines());
            self.run_times.extend(spans.chain(limits).filter(|span| *span > Span(0)));
            self.queues.insert(queue.name.clone(), (**queue).clone());
        } else if let Delta::Claim(claim) = &delta {
            self.claims.devices.insert(claim.key.clone(), (**claim).clone());
        } else if let Delta::VolumeClaim(claim) = &delta {
            self.claims.volumes.insert(claim.key.clone(), claim.clone());
        }
        self.cluster.apply(delta);
    }

    fn load_pod(&mut self, mut pod: SimulatedPod, start: Timestamp) {
        let key = pod.input.key.clone();
        let group = pod.group();
        let held_back = group.as_ref().and_then(|group| self.groups.get(group)).and_then(|g| g.submit_at);
        let own = pod.script.submitted_after.map(|after| start + after);
        if let Some(group) = group.as_ref().and_then(|group| self.groups.get_mut(group)) {
            group.pods.push(key.clone());
        }
        if let Some(at) = own.max(held_back).filter(|at| *at > start) {
            pod.defer_submission();
            self.events.add(at, Event::SubmitPod(key.clone()));
            self.pods.insert(key, pod);
            return;
        }
        let mut due = |at: Timestamp, stage: Stage| {
            self.events.add(at, Event::Pod(key.clone(), pod.incarnation, stage));
        };
        match pod.input.phase {
            PodPhase::Binding | PodPhase::Bound => due(start + self.start_delay, Stage::Started),
            PodPhase::Running => {
                let group = group.as_ref().and_then(|group| self.groups.get(group));
                let since = group.and_then(|group| group.input.last_start).unwrap_or(start).min(start);
                if let Some(span) = pod.script.runs_for {
                    due((since + span).max(start), Stage::Completed);
                }
            }
            PodPhase::Releasing(at) => due(at.max(start), Stage::Terminated),
            PodPhase::ReleasingUnstarted => due(start + self.grace, Stage::Terminated),
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

    /// Applies all events up to `now`.
    pub(crate) fn advance_to(&mut self, now: Timestamp) {
        while let Some((at, event)) = self.events.pop_until(now) {
            match event {
                Event::SubmitGroup(key) => self.submit_group(&key, at),
                Event::SubmitPod(key) => self.submit_pod(&key, at),
                Event::Pod(key, incarnation, stage) => self.reach(&key, incarnation, stage, at),
            }
        }
    }

    /// Applies an outcome; returns whether it changes anything.
    pub(crate) fn apply_outcome(&mut self, outcome: &Outcome, now: Timestamp) -> bool {
        let mut changed = !outcome.staleness.is_empty();
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind(bind) => {
                    self.bind(bind, now);
                    changed = true;
                }
                // A pipelined pod stays pending; a later cycle binds it to the released capacity.
                Decision::Pipeline { .. } => {}
                Decision::Evict { pod, uid, group, .. } => {
                    self.evict(pod, uid, now);
                    if let Some(group) = group {
                        self.annotate(group, |input| input.last_eviction = Some(now));
                    }
                    changed = true;
                }
            }
        }
        for group in &outcome.started {
            self.annotate(group, |input| input.last_start = Some(now));
        }
        for (group, since) in &outcome.staleness {
            self.annotate(group, |input| input.stale_since = *since);
        }
        for notice in &outcome.time_limits.warn {
            self.annotate(&notice.group, |input| input.limit_warned = Some(now));
        }
        for notice in &outcome.time_limits.end {
            self.annotate(&notice.group, |input| input.ended = Some(now));
            changed = true;
        }
        changed
    }

    /// The initial usage of queues, in the order of `names`.
    pub(crate) fn usage_of(&self, names: &[&str]) -> Vec<[f64; 3]> {
        names.iter().map(|name| self.queues.get(*name).map_or([0.0; 3], |queue| queue.usage)).collect()
    }

    pub(crate) fn set_usage(&mut self, name: &str, usage: [f64; 3]) {
        let is_other = |queue: &&mut QueueInput| queue.usage.map(f64::to_bits) != usage.map(f64::to_bits);
        let Some(queue) = self.queues.get_mut(name).filter(is_other) else { return };
        queue.usage = usage;
        self.cluster.apply(Delta::Queue(Box::new(queue.clone())));
    }
}
