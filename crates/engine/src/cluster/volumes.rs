//! Connects pods and nodes to the storage accounting ([`crate::storage`]).

use super::node::When;
use super::{Cluster, presence_of};
use crate::ids::{NodeIdx, PodIdx, Sym};
use crate::storage::{CapacityCheck, ClassLack, OwnedClaims, VolumeNode, VolumePod};
use crate::terms::Presence;
use crate::verdict::{NodeRejection, PodRejection};

impl Cluster {
    fn claims_of(&self, pod: PodIdx) -> &[Sym] {
        self.pods[pod].extra.as_ref().map_or(&[], |e| &e.volumes)
    }

    fn volume_pod(&self, pod: PodIdx) -> VolumePod<'_> {
        let p = &self.pods[pod];
        VolumePod { namespace: p.namespace, uid: p.uid, claims: self.claims_of(pod) }
    }

    /// The pod mounts persistent volume claims.
    pub(crate) fn has_volumes(&self, pod: PodIdx) -> bool {
        !self.claims_of(pod).is_empty()
    }

    /// Opens or closes the CSI accounting for a cycle.
    pub(super) fn refresh_storage(&mut self, simulated: bool) {
        if !simulated {
            self.storage.close_accounting();
            return;
        }
        let nodes = &self.nodes;
        self.storage.link(self.nodes_by_rank.iter().map(|n| (*n, &*nodes[*n].labels)));
        let all = &self.pods;
        let pods = self.with_volumes.iter().map(|pod| {
            let p = &all[*pod];
            let claims = p.extra.as_ref().map_or(&[][..], |e| &e.volumes);
            let view = VolumePod { namespace: p.namespace, uid: p.uid, claims };
            (view, p.state.node(), presence_of(p.state.status))
        });
        self.storage.open_accounting(pods);
    }

    /// Counts a pod's volumes on a node.
    pub(crate) fn place_volumes(&mut self, pod: PodIdx, node: NodeIdx, presence: Presence) {
        let p = &self.pods[pod];
        let claims = p.extra.as_ref().map_or(&[][..], |e| &e.volumes);
        let view = VolumePod { namespace: p.namespace, uid: p.uid, claims };
        self.storage.place(&view, node, presence);
    }

    /// Removes a pod's volumes from a node's count.
    pub(crate) fn unplace_volumes(&mut self, pod: PodIdx, node: NodeIdx, presence: Presence) {
        let p = &self.pods[pod];
        let claims = p.extra.as_ref().map_or(&[][..], |e| &e.volumes);
        let view = VolumePod { namespace: p.namespace, uid: p.uid, claims };
        self.storage.unplace(&view, node, presence);
    }

    /// Whether simulated storage has capacity for a pod's volumes; always true without the simulation.
    pub(crate) fn storage_fits(&self, pod: PodIdx, node: NodeIdx, when: When) -> bool {
        let owned = self.owned_claims(pod);
        let view = self.volume_pod(pod);
        match when {
            When::Now => self.storage.fits_now(&view, node, owned),
            When::Eventually => self.storage.fits_eventually(&view, node, owned),
        }
    }

    /// The storage class that lacks simulated capacity for a pod's volumes.
    pub(crate) fn storage_lack(&self, pod: PodIdx, node: NodeIdx) -> Option<NodeRejection> {
        let name = |class| self.text(class).to_owned();
        match self.storage.lacking_class(&self.volume_pod(pod), node, self.owned_claims(pod))? {
            ClassLack::Capacity(class) => Some(NodeRejection::StorageCapacity(name(class))),
            ClassLack::Unreachable(class) => Some(NodeRejection::StorageUnreachable(name(class))),
        }
    }

    fn owned_claims(&self, pod: PodIdx) -> OwnedClaims {
        if self.pods[pod].state.is_virtual { OwnedClaims::Remade } else { OwnedClaims::AsObserved }
    }

    /// Why a node rejects a pod because of its volumes.
    pub(crate) fn volumes_refusal(
        &self,
        pod: PodIdx,
        node: NodeIdx,
        simulated: bool,
    ) -> Option<NodeRejection> {
        let n = &self.nodes[node];
        let view = VolumeNode { name: n.name, labels: &n.labels, attach_limits: &n.attach_limits };
        let others = n.pods.iter().map(|p| (self.pods[*p].namespace, self.claims_of(*p)));
        let capacity = if simulated { CapacityCheck::Simulated } else { CapacityCheck::Reported };
        let namespace = self.pods[pod].namespace;
        self.storage.filter(namespace, self.claims_of(pod), &view, others, capacity, &self.names).err()
    }

    /// Why no node can serve a pod's volumes.
    pub(crate) fn volumes_check(&self, pod: PodIdx) -> Result<(), PodRejection> {
        if !self.has_volumes(pod) {
            return Ok(());
        }
        self.storage.prefilter(self.pods[pod].namespace, self.claims_of(pod), &self.names)
    }
}
