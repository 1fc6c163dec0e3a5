//! Connects pods and nodes to the device accounting ([`crate::dra`]).

use super::{Changes, Cluster};
use crate::dra::{ExtendedRequest, Fit, NodeView, SyntheticClaim};
use crate::ids::{NodeIdx, PodIdx, Sym};
use crate::resource::{self, WHOLE_GPU};
use crate::verdict::ClaimRejection;

impl Cluster {
    /// Resolves changed devices, and updates the DRA GPUs of nodes and pods.
    pub(super) fn refresh_devices(&mut self, changes: &mut Changes) {
        if !std::mem::take(&mut changes.devices) {
            return;
        }
        let touched = self.devices.refresh(&mut self.names);
        for shape in &mut self.shapes {
            let containers = &shape.spec.containers;
            shape.extended =
                ExtendedRequest::build(containers, &self.devices.inventory, &mut self.dims, &mut self.names);
        }
        for node in self.nodes.indices() {
            if self.nodes[node].present && touched.has(self.nodes[node].name) {
                changes.described.push(node);
                changes.ledgers.push(node);
            }
        }
        for &pod in &self.with_claims {
            let p = &mut self.pods[pod];
            p.claim_gpus = self.devices.gpu_demand(p.uid);
            changes.groups.extend(p.group);
            changes.ledgers.extend(p.observed_node);
        }
    }

    /// Recomputes the devices of a node whose description changed.
    pub(super) fn attach_devices(&mut self, node: NodeIdx) {
        let n = &self.nodes[node];
        if n.present {
            self.devices.attach(&NodeView { name: n.name, labels: &n.labels, names: &self.names });
        } else {
            self.devices.detach(n.name);
        }
        let gpus = i64::from(self.devices.gpus_on(n.name)) * WHOLE_GPU;
        let n = &mut self.nodes[node];
        n.allocatable = n.described.clone();
        n.allocatable.add(resource::GPU, gpus);
        n.has_dra_gpus = gpus > 0;
    }

    /// The GPU devices that a pod holds through its claims, if any.
    pub(crate) fn held_devices(&self, pod: PodIdx) -> Option<Box<[Sym]>> {
        let devices = self.devices.gpu_devices(self.pods[pod].uid);
        (!devices.is_empty()).then(|| devices.into_vec().into())
    }

    /// The claim for a pod's extended resources on a node that lacks them (KEP-5004).
    pub(crate) fn synthetic_claim(&self, pod: PodIdx, node: NodeIdx) -> Option<SyntheticClaim> {
        let n = &self.nodes[node];
        self.shape(pod).extended.as_ref()?.claim_for(|dim| n.described.get(dim) == 0)
    }

    /// The pod requests extended resources that a device class backs.
    pub(crate) fn requests_devices(&self, pod: PodIdx) -> bool {
        self.shape(pod).extended.is_some()
    }

    /// The devices that a pod's claims would be allocated on a node.
    pub(crate) fn claims_fit(&self, pod: PodIdx, node: NodeIdx) -> Result<Fit, ClaimRejection> {
        let n = &self.nodes[node];
        let claim = self.synthetic_claim(pod, node);
        let view = NodeView { name: n.name, labels: &n.labels, names: &self.names };
        self.devices.fit(self.pods[pod].uid, claim.as_ref(), &view)
    }
}
