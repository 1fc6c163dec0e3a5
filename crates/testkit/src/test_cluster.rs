//! A cluster as a list of engine inputs to which decisions can be applied.
//!
//! Tests build a cluster once, plan on it, and let [`TestCluster::apply_decisions`] do what the binder and the kubelet
//! would: bound pods run, evicted pods are pending again, pipelined pods stay pending.

use kai_engine::input::{ClaimAllocation, ClaimDevice, ClaimInput, PodInput, PodPhase};
use kai_engine::outcome::{Bind, Decision, LimitNotice, TimeLimitNotices};
use kai_engine::{ClusterState, Delta};
use kai_units::Timestamp;

/// The objects of a cluster, one delta each.
#[derive(Clone, Debug, Default)]
pub struct TestCluster {
    pub deltas: Vec<Delta>,
}

impl TestCluster {
    pub fn build(&self) -> ClusterState {
        let mut cluster = ClusterState::new();
        for delta in &self.deltas {
            cluster.apply(delta.clone());
        }
        cluster
    }

    pub fn pods(&self) -> impl Iterator<Item = &PodInput> {
        self.deltas.iter().filter_map(|delta| if let Delta::Pod(pod) = delta { Some(&**pod) } else { None })
    }

    pub fn pod_mut(&mut self, name: &str) -> Option<&mut PodInput> {
        let pods = self.deltas.iter_mut();
        let mut pods =
            pods.filter_map(|delta| if let Delta::Pod(pod) = delta { Some(&mut **pod) } else { None });
        pods.find(|pod| pod.key.name == name)
    }

    /// Records what a cycle decided about time limits, as the scheduler does by annotations. Returns the changed groups.
    pub fn apply_notices(&mut self, notices: &TimeLimitNotices, now: Timestamp) -> Vec<Delta> {
        let mut changed = Vec::new();
        for delta in &mut self.deltas {
            let Delta::Group(group) = delta else { continue };
            let names = |list: &[LimitNotice]| list.iter().any(|notice| notice.group == group.key);
            let (warned, ended) = (names(&notices.warn), names(&notices.end));
            if warned {
                group.limit_warned = Some(now);
            }
            if ended {
                group.ended = Some(now);
            }
            if warned || ended {
                changed.push(delta.clone());
            }
        }
        changed
    }

    fn claims_mut(&mut self) -> impl Iterator<Item = &mut ClaimInput> {
        let all = self.deltas.iter_mut();
        all.filter_map(|delta| if let Delta::Claim(claim) = delta { Some(&mut **claim) } else { None })
    }

    /// Applies decisions. Returns the names of the changed pods.
    pub fn apply_decisions(&mut self, decisions: &[Decision]) -> Vec<String> {
        let mut changed = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Bind(bind) => {
                    self.bind(bind);
                    changed.push(bind.pod.name.clone());
                }
                // A pipelined pod stays pending.
                Decision::Pipeline { .. } => {}
                Decision::Evict { pod, uid, .. } => {
                    self.release_claims(uid);
                    self.unplace(&pod.name);
                    changed.push(pod.name.clone());
                }
            }
        }
        changed
    }

    fn bind(&mut self, bind: &Bind) {
        for (claim, devices) in &bind.claims {
            self.allocate_claim(bind, claim, devices);
        }
        if let Some(claim) = bind.extended_claim() {
            self.deltas.push(Delta::Claim(Box::new(claim)));
        }
        if let Some(pod) = self.pod_mut(&bind.pod.name) {
            pod.phase = PodPhase::Running;
            pod.node = Some(bind.node.clone());
            pod.gpu_groups.clone_from(&bind.gpu_groups);
            pod.received = bind.received;
            pod.numa_placement.clone_from(&bind.numa);
        }
    }

    pub fn unplace(&mut self, name: &str) {
        if let Some(pod) = self.pod_mut(name) {
            pod.phase = PodPhase::Pending;
            pod.node = None;
            pod.gpu_groups.clear();
            pod.received = None;
            pod.numa_placement.clear();
        }
    }

    fn allocate_claim(&mut self, bind: &Bind, name: &str, devices: &[ClaimDevice]) {
        let object = self
            .pod_mut(&bind.pod.name)
            .and_then(|pod| pod.claims.iter().find(|c| c.name == name).and_then(|c| c.claim.clone()));
        let same = |claim: &&mut ClaimInput| {
            Some(&claim.key.name) == object.as_ref() && claim.key.namespace == bind.pod.namespace
        };
        for claim in self.claims_mut().filter(same) {
            claim
                .allocation
                .get_or_insert_with(|| ClaimAllocation { devices: devices.to_vec(), node_terms: Vec::new() });
            if !claim.reserved_for.contains(&bind.uid) {
                claim.reserved_for.push(bind.uid.clone());
            }
        }
    }

    fn release_claims(&mut self, uid: &str) {
        for claim in self.claims_mut().filter(|c| c.reserved_for.iter().any(|pod| pod == uid)) {
            claim.reserved_for.retain(|pod| pod != uid);
            if claim.reserved_for.is_empty() {
                claim.allocation = None;
            }
        }
    }
}
