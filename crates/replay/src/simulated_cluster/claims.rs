//! Resource claims and volume claims: allocation by the binder, and release when a pod has terminated.

use kai_engine::input::{ClaimAllocation, ClaimDevice, ClaimInput, Key, PodInput, VolumeClaimInput};
use kai_engine::outcome::{Bind, extended_claim_key};
use kai_engine::{ClusterState, Delta};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    pub(super) devices: BTreeMap<Key, ClaimInput>,
    pub(super) volumes: BTreeMap<Key, VolumeClaimInput>,
}

impl Claims {
    /// Allocates the devices of a binding.
    pub(super) fn allocate(&mut self, pod: &PodInput, bind: &Bind, cluster: &mut ClusterState) {
        for (name, devices) in &bind.claims {
            let used = pod.claims.iter().find(|claim| claim.name == *name);
            if let Some(object) = used.and_then(|claim| claim.claim.as_deref()) {
                self.reserve(&Key::new(pod.key.namespace.as_str(), object), &bind.uid, devices, cluster);
            }
        }
        if let Some(claim) = bind.extended_claim() {
            cluster.apply(Delta::Claim(Box::new(claim.clone())));
            self.devices.insert(claim.key.clone(), claim);
        }
    }

    fn reserve(&mut self, key: &Key, uid: &str, devices: &[ClaimDevice], cluster: &mut ClusterState) {
        let Some(claim) = self.devices.get_mut(key) else { return };
        claim
            .allocation
            .get_or_insert_with(|| ClaimAllocation { devices: devices.to_vec(), node_terms: Vec::new() });
        if !claim.reserved_for.iter().any(|pod| pod == uid) {
            claim.reserved_for.push(uid.to_owned());
        }
        cluster.apply(Delta::Claim(Box::new(claim.clone())));
    }

    /// Releases the claims of a pod. Claims that it owns pass to the pod that replaces it, if any.
    pub(super) fn release(&mut self, pod: &PodInput, successor: Option<&str>, cluster: &mut ClusterState) {
        let made = extended_claim_key(&pod.key);
        if self.devices.get(&made).is_some_and(|claim| claim.synthetic && is_owned_by(claim, &pod.uid)) {
            self.devices.remove(&made);
            cluster.apply(Delta::ClaimGone(made));
        }
        for object in pod.claims.iter().filter_map(|claim| claim.claim.as_deref()) {
            let key = Key::new(pod.key.namespace.as_str(), object);
            let Some(claim) = self.devices.get_mut(&key) else { continue };
            claim.reserved_for.retain(|user| *user != pod.uid);
            if claim.reserved_for.is_empty() {
                claim.allocation = None;
            }
            if let Some(successor) = successor.filter(|_| is_owned_by(claim, &pod.uid)) {
                claim.owner_pod = Some(successor.to_owned());
            }
            cluster.apply(Delta::Claim(Box::new(claim.clone())));
        }
        for volume in &pod.volumes {
            let key = Key::new(pod.key.namespace.as_str(), volume.claim.as_str());
            let Some(claim) = self.volumes.get_mut(&key) else { continue };
            if let Some(successor) = successor.filter(|_| claim.owner_pod.as_ref() == Some(&pod.uid)) {
                claim.owner_pod = Some(successor.to_owned());
                cluster.apply(Delta::VolumeClaim(claim.clone()));
            }
        }
    }
}

fn is_owned_by(claim: &ClaimInput, uid: &str) -> bool {
    claim.owner_pod.as_deref() == Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_engine::input::PodClaim;

    fn pod() -> PodInput {
        PodInput {
            key: Key::new("ns", "p"),
            uid: "u1".to_owned(),
            claims: vec![PodClaim {
                name: "gpu".to_owned(),
                claim: Some("p-gpu".to_owned()),
                from_template: true,
                chosen: Vec::new(),
            }],
            ..PodInput::default()
        }
    }

    fn bind() -> Bind {
        Bind {
            pod: Key::new("ns", "p"),
            uid: "u1".to_owned(),
            claims: vec![("gpu".to_owned(), vec![ClaimDevice::default()])],
            extended: Some(Box::default()),
            ..Bind::default()
        }
    }

    #[test]
    fn claims_of_a_recreated_pod_pass_to_its_successor() {
        let (mut claims, mut cluster) = (Claims::default(), ClusterState::new());
        let key = Key::new("ns", "p-gpu");
        let own = ClaimInput { key: key.clone(), owner_pod: Some("u1".to_owned()), ..ClaimInput::default() };
        claims.devices.insert(key.clone(), own);
        claims.allocate(&pod(), &bind(), &mut cluster);
        assert_eq!(claims.devices[&key].reserved_for, ["u1"]);
        assert!(claims.devices[&key].allocation.is_some());
        assert!(claims.devices.contains_key(&Key::new("ns", "p-extended")));
        claims.release(&pod(), Some("u1-2"), &mut cluster);
        assert_eq!(claims.devices[&key].allocation, None);
        assert_eq!(claims.devices[&key].owner_pod.as_deref(), Some("u1-2"));
        assert_eq!(claims.devices.len(), 1);
    }
}
