//! The life of a pod: submitted, bound, running, done; or evicted, gone, and back as another pod of the same name.

use super::World;
use crate::agenda::{Event, Stage};
use crate::gang;
use crate::script::{AfterEviction, PodScript};
use kai_engine::Delta;
use kai_engine::input::{Key, PodInput, PodPhase};
use kai_engine::outcome::Bind;
use kai_units::Timestamp;

/// A pod and how far it got.
pub(super) struct PodLife {
    pub(super) input: PodInput,
    pub(super) script: PodScript,
    /// How often a pod of this name was made; events of earlier lives mean nothing.
    pub(super) life: u32,
    /// It is there.
    pub(super) present: bool,
    /// The unique id of the first life.
    first_uid: String,
}

impl PodLife {
    /// A pod in its first life.
    pub(super) fn new(input: PodInput, script: PodScript) -> Self {
        let first_uid = input.uid.clone();
        Self { input, script, life: 1, present: true, first_uid }
    }

    /// Its group.
    pub(super) fn group(&self) -> Option<Key> {
        let name = self.input.group.as_deref()?;
        Some(Key::new(self.input.key.namespace.as_str(), name))
    }

    /// It is not there yet, and will be pending when it is.
    pub(super) fn wait_for_submission(&mut self) {
        self.present = false;
        if self.input.phase != PodPhase::Gated {
            self.unplace();
        }
    }

    /// Its sub-group.
    pub(super) fn sub_group(&self) -> &str {
        self.input.sub_group.as_deref().unwrap_or(gang::DEFAULT)
    }

    /// Counts for its gang: it runs, or has done its work.
    pub(super) fn is_up(&self) -> bool {
        self.present && matches!(self.input.phase, PodPhase::Running | PodPhase::Succeeded)
    }

    /// Something is still to come from it.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.input.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    fn unplace(&mut self) {
        let pod = &mut self.input;
        pod.phase = PodPhase::Pending;
        pod.node = None;
        pod.nominated_node = None;
        pod.gpu_groups.clear();
        pod.received = None;
        pod.numa_placement.clear();
        pod.extended_devices.clear();
        for claim in &mut pod.claims {
            claim.chosen.clear();
        }
    }

    /// Becomes the next pod of the same name.
    fn begin_anew(&mut self, now: Timestamp) {
        self.unplace();
        self.life += 1;
        self.input.created = now;
        self.input.uid = format!("{}-{}", self.first_uid, self.life);
    }
}

impl World {
    /// A pod is submitted.
    pub(super) fn submit_pod(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key).filter(|pod| !pod.present) else { return };
        pod.present = true;
        pod.input.created = now;
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        if let Some(group) = pod.group() {
            self.group_has_pods(&group, now);
        }
    }

    /// A pod gets its node.
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
        self.claims.take(input, bind, &mut self.cluster);
        self.cluster.apply(Delta::Pod(Box::new(input.clone())));
        self.agenda.add(now + self.start_delay, Event::Pod(bind.pod.clone(), pod.life, Stage::Start));
    }

    /// A pod is told to go.
    pub(super) fn evict(&mut self, key: &Key, uid: &str, now: Timestamp) {
        let gone_at = now + self.grace;
        let Some(pod) = self.pods.get_mut(key).filter(|pod| pod.present && pod.input.uid == uid) else {
            return;
        };
        let was_up = match pod.input.phase {
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
        pod.input.phase = if was_up { PodPhase::Releasing(gone_at) } else { PodPhase::ReleasingUnstarted };
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        self.agenda.add(gone_at, Event::Pod(key.clone(), pod.life, Stage::Leave));
        if let Some(group) = pod.group() {
            let sub_group = pod.sub_group().to_owned();
            self.group_loses(&group, was_up.then_some(&sub_group), now);
        }
    }

    /// A pod gets to a stage of its life, unless it has come off that way.
    pub(super) fn reach(&mut self, key: &Key, life: u32, stage: Stage, now: Timestamp) {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.present && pod.life == life) else { return };
        let phase = pod.input.phase;
        match stage {
            Stage::Start if matches!(phase, PodPhase::Binding | PodPhase::Bound) => self.start(key, now),
            Stage::End if phase == PodPhase::Running => self.end(key, now),
            Stage::Leave if matches!(phase, PodPhase::Releasing(_) | PodPhase::ReleasingUnstarted) => {
                self.leave(key, now);
            }
            Stage::Start | Stage::End | Stage::Leave => {}
        }
    }

    fn start(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        pod.input.phase = PodPhase::Running;
        self.cluster.apply(Delta::Pod(Box::new(pod.input.clone())));
        if let Some(span) = pod.script.runs_for {
            self.agenda.add(now + span, Event::Pod(key.clone(), pod.life, Stage::End));
        }
        if let Some(group) = pod.group() {
            let sub_group = pod.sub_group().to_owned();
            self.group_gains(&group, &sub_group, now);
        }
    }

    fn end(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        self.claims.release(&pod.input, None, &mut self.cluster);
        // A finished pod only shows that its gang is not short of it.
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

    fn leave(&mut self, key: &Key, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let group = pod.group();
        let comes_back = match pod.script.after_eviction {
            AfterEviction::ComesBack => group.as_ref().is_some_and(|group| self.groups.contains_key(group)),
            AfterEviction::StaysAway => false,
        };
        let old = pod.input.clone();
        if comes_back {
            pod.begin_anew(now);
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
