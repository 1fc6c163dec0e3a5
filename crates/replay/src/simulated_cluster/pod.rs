//! Lifecycle of simulated pods: submitted, bound, running, completed; or evicted, terminated and recreated by name.

use super::SimulatedCluster;
use crate::event_queue::{Event, Stage};
use crate::gang;
use crate::script::{AfterEviction, PodScript};
use kai_engine::Delta;
use kai_engine::input::{Key, PodInput, PodPhase};
use kai_engine::outcome::Bind;
use kai_units::Timestamp;

pub(super) struct SimulatedPod {
    pub(super) input: PodInput,
    pub(super) script: PodScript,
    /// How often a pod of this name was created; events of earlier incarnations are ignored.
    pub(super) incarnation: u32,
    pub(super) present: bool,
    /// The uid of the first incarnation.
    first_uid: String,
}

impl SimulatedPod {
    pub(super) fn new(input: PodInput, script: PodScript) -> Self {
        let first_uid = input.uid.clone();
        Self { input, script, incarnation: 1, present: true, first_uid }
    }

    pub(super) fn group(&self) -> Option<Key> {
        let name = self.input.group.as_deref()?;
        Some(Key::new(self.input.key.namespace.as_str(), name))
    }

    /// Removes the pod until its submission, when it is pending.
    pub(super) fn defer_submission(&mut self) {
        self.present = false;
        if self.input.phase != PodPhase::Gated {
            self.unplace();
        }
    }

    pub(super) fn sub_group(&self) -> &str {
        self.input.sub_group.as_deref().unwrap_or(gang::DEFAULT)
    }

    /// Running and completed pods count.
    pub(super) fn counts_for_gang(&self) -> bool {
        self.present && matches!(self.input.phase, PodPhase::Running | PodPhase::Succeeded)
    }

    /// Neither succeeded nor failed.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.input.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    fn unplace(&mut self) {
        let pod = &mut self.input;
        pod.phase = PodPhase::Pending;
        pod.node = None;
        pod.nominated_node = None;
        pod.gpu_groups.clear();
        pod.drained_gpus.clear();
        pod.received = None;
        pod.numa_placement.clear();
        pod.extended_devices.clear();
        for claim in &mut pod.claims {
            claim.chosen.clear();
        }
    }

    /// Turns it into the next incarnation.
    fn recreate(&mut self, now: Timestamp) {
        self.unplace();
        self.incarnation += 1;
        self.input.created = now;
        self.input.uid = format!("{}-{}", self.first_uid, self.incarnation);
    }
}

impl SimulatedCluster {
    pub(super) fn submit_pod(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key).filter(|pod| !pod.present) else { return };
        pod.present = true;
        pod.input.created = now;
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        if let Some(group) = pod.group() {
            self.group_pod_submitted(&group, now);
        }
    }

    pub(super) fn bind(&mut self, bind: &Bind, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(&bind.pod).filter(|pod| pod.present && pod.input.uid == bind.uid)
        else {
            return;
        };
        let input = &mut pod.input;
        input.phase = PodPhase::Binding;
        input.node = Some(bind.node.clone());
        input.gpu_groups.clone_from(&bind.gpu_groups);
        input.received = bind.received;
        input.numa_placement.clone_from(&bind.numa);
        self.claims.allocate(input, bind, &mut self.cluster);
        self.cluster.apply(Delta::Pod(Box::new(input.clone())));
        self.events
            .add(now + self.start_delay, Event::Pod(bind.pod.clone(), pod.incarnation, Stage::Started));
    }

    pub(super) fn evict(&mut self, key: &Key, uid: &str, now: Timestamp) {
        let terminated_at = now + self.grace;
        let Some(pod) = self.pods.get_mut(key).filter(|pod| pod.present && pod.input.uid == uid) else {
            return;
        };
        let was_running = match pod.input.phase {
            PodPhase::Running => true,
            PodPhase::Binding | PodPhase::Bound => false,
            PodPhase::Pending
            | PodPhase::Gated
            | PodPhase::Waiting
            | PodPhase::Releasing(_)
            | PodPhase::ReleasingUnstarted
            | PodPhase::Succeeded
            | PodPhase::Failed
            | PodPhase::Unknown => return,
        };
        pod.input.phase =
            if was_running { PodPhase::Releasing(terminated_at) } else { PodPhase::ReleasingUnstarted };
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        self.events.add(terminated_at, Event::Pod(key.clone(), pod.incarnation, Stage::Terminated));
        if let Some(group) = pod.group() {
            let sub_group = pod.sub_group().to_owned();
            self.group_pod_evicted(&group, was_running.then_some(&sub_group), now);
        }
    }

    /// Applies a stage, unless the pod's phase no longer leads to it.
    pub(super) fn reach(&mut self, key: &Key, incarnation: u32, stage: Stage, now: Timestamp) {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.present && pod.incarnation == incarnation) else {
            return;
        };
        let phase = pod.input.phase;
        match stage {
            Stage::Started if matches!(phase, PodPhase::Binding | PodPhase::Bound) => self.start(key, now),
            Stage::Completed if phase == PodPhase::Running => self.complete(key, now),
            Stage::Terminated if matches!(phase, PodPhase::Releasing(_) | PodPhase::ReleasingUnstarted) => {
                self.terminate(key, now);
            }
            Stage::Started | Stage::Completed | Stage::Terminated => {}
        }
    }

    fn start(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        pod.input.phase = PodPhase::Running;
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        if let Some(span) = pod.script.runs_for {
            self.events.add(now + span, Event::Pod(key.clone(), pod.incarnation, Stage::Completed));
        }
        if let Some(group) = pod.group() {
            let sub_group = pod.sub_group().to_owned();
            self.group_pod_started(&group, &sub_group, now);
        }
    }

    fn complete(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        self.claims.release(&pod.input, None, &mut self.cluster);
        // A succeeded pod only counts for its gang, as in the cache.
        pod.input = PodInput {
            key: key.clone(),
            uid: std::mem::take(&mut pod.input.uid),
            group: pod.input.group.take(),
            sub_group: pod.input.sub_group.take(),
            phase: PodPhase::Succeeded,
            ..PodInput::default()
        };
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        if let Some(group) = pod.group() {
            self.close_pod(&group, now);
        }
    }

    fn terminate(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let group = pod.group();
        let is_recreated = match pod.script.after_eviction {
            AfterEviction::Recreated => group.as_ref().is_some_and(|group| self.groups.contains_key(group)),
            AfterEviction::Deleted => false,
        };
        let old = pod.input.clone();
        if is_recreated {
            pod.recreate(now);
            self.claims.release(&old, Some(&pod.input.uid), &mut self.cluster);
            self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
            return;
        }
        self.claims.release(&old, None, &mut self.cluster);
        self.pods.remove(key);
        self.cluster.apply(Delta::PodGone(key.clone()));
        if let Some(group) = group {
            self.close_pod(&group, now);
        }
    }
}
