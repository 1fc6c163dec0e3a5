//! Test fixtures: small clusters with devices.

mod allocator;
mod brute_force;
mod claims;
mod extended;
mod fit;
mod inventory;

use super::*;
use crate::input::{
    ClaimAllocation, ClaimConstraint, ClaimRequest, CounterSet, Device as DeviceInput, RequestAlternative,
    RequestMode, SliceNodes,
};

/// The class that selects every device.
const GPU_CLASS: &str = "gpu.example.com";

/// Devices with their names; nodes are attached after every change.
#[derive(Clone, Default)]
struct TestCluster {
    names: Interner,
    devices: Devices,
    nodes: Vec<(Sym, Vec<(Sym, Sym)>)>,
}

impl TestCluster {
    /// Nodes with local GPUs, `0` to `n - 1`, and the class that selects them.
    fn with_gpus(nodes: &[(&str, usize)]) -> Self {
        let mut fixture = Self::default();
        for (node, gpus) in nodes {
            fixture.node(node, &[]);
            fixture.slice(gpu_slice(node, *gpus));
        }
        fixture.class(GPU_CLASS);
        fixture.refresh();
        fixture
    }
    fn sym(&mut self, text: &str) -> Sym {
        self.names.intern(text)
    }
    fn node(&mut self, name: &str, labels: &[(&str, &str)]) {
        let name = self.sym(name);
        let mut labels: Vec<(Sym, Sym)> = labels.iter().map(|(k, v)| (self.sym(k), self.sym(v))).collect();
        labels.sort_unstable();
        self.nodes.retain(|(n, _)| *n != name);
        self.nodes.push((name, labels));
    }
    fn slice(&mut self, slice: SliceInput) {
        self.devices.set_slice(slice, &mut self.names);
    }
    fn class(&mut self, name: &str) {
        let class = DeviceClassInput { name: name.into(), accepts_all: true, ..DeviceClassInput::default() };
        self.devices.set_class(&class, &mut self.names);
    }
    fn claim(&mut self, claim: &ClaimInput) -> ClaimIdx {
        self.devices.set_claim(claim, &mut self.names)
    }
    /// A pod in namespace `ns` that uses shared claims.
    fn pod(&mut self, uid: &str, claims: &[&str]) -> Sym {
        let claims: Vec<PodClaim> = claims.iter().map(|c| reference(c)).collect();
        let (pod, namespace) = (self.sym(uid), self.sym("ns"));
        self.devices.set_pod((pod, namespace), &claims, &[], &mut self.names);
        pod
    }
    fn refresh(&mut self) -> Touched {
        let touched = self.devices.refresh(&mut self.names);
        for (name, labels) in &self.nodes {
            self.devices.attach(&NodeView { name: *name, labels, names: &self.names });
        }
        touched
    }
    fn view(&self, node: &str) -> NodeView<'_> {
        let name = self.names.find(node).expect("the node was named");
        let (_, labels) = self.nodes.iter().find(|(n, _)| *n == name).expect("the node exists");
        NodeView { name, labels, names: &self.names }
    }
    fn fit(&self, pod: Sym, node: &str) -> Result<Fit, ClaimRejection> {
        self.devices.fit(pod, None, &self.view(node))
    }
    /// Names of the devices that a node can use, in order.
    fn on(&self, node: &str) -> Vec<&str> {
        let name = self.names.find(node).expect("the node was named");
        let devices = self.devices.inventory.on(name).map_or(&[][..], |d| &d.devices);
        devices.iter().map(|d| self.names.text(self.devices.inventory.name(*d).device)).collect()
    }
    /// Allocates claims together; returns the device names of each.
    fn allocate(&mut self, node: &str, claims: &[ClaimInput]) -> Option<Vec<Vec<String>>> {
        let (inventory, names) = (&mut self.devices.inventory, &mut self.names);
        let claims = claims.iter().map(|c| DeviceClaim::build(&c.requests, &c.constraints, inventory, names));
        let claims: Vec<DeviceClaim> = claims.collect();
        let node = self.names.find(node)?;
        let in_use = |device| self.devices.claims.times_in_use(device) > 0;
        let claims: Vec<&DeviceClaim> = claims.iter().collect();
        let found = allocate(&self.devices.inventory, in_use, self.devices.inventory.on(node)?, &claims)?;
        let device = |allocated: &AllocatedDevice| {
            self.names.text(self.devices.inventory.name(allocated.device).device).to_owned()
        };
        Some(found.iter().map(|allocation| allocation.devices.iter().map(device).collect()).collect())
    }
}

/// A slice of GPUs that belong to a node.
fn gpu_slice(node: &str, gpus: usize) -> SliceInput {
    SliceInput {
        name: format!("{node}-gpus"),
        driver: GPU_CLASS.into(),
        pool: node.into(),
        generation: 1,
        slice_count: 1,
        nodes: SliceNodes::Node(node.into()),
        counters: Vec::new(),
        devices: (0..gpus).map(|i| device(&i.to_string())).collect(),
    }
}
fn device(name: &str) -> DeviceInput {
    DeviceInput { name: name.into(), ..DeviceInput::default() }
}
fn id(node: &str, device: &str) -> DeviceId {
    DeviceId { driver: GPU_CLASS.into(), pool: node.into(), device: device.into() }
}
fn exactly(name: &str, count: u64) -> ClaimRequest {
    request(name, RequestMode::Exactly(count))
}
fn request(name: &str, mode: RequestMode) -> ClaimRequest {
    let alternative = RequestAlternative { class: GPU_CLASS.into(), mode, ..RequestAlternative::default() };
    ClaimRequest { name: name.into(), alternatives: vec![alternative] }
}
/// A claim in namespace `ns` with a queue label `queue`.
fn claim(name: &str, requests: &[ClaimRequest]) -> ClaimInput {
    ClaimInput {
        key: Key::new("ns", name),
        uid: format!("uid-{name}"),
        queue_label: Some("queue".into()),
        requests: requests.to_vec(),
        ..ClaimInput::default()
    }
}
fn allocated(devices: &[DeviceId]) -> ClaimAllocation {
    let allocated = devices.iter().map(|device| ClaimDevice {
        request: "gpus".into(),
        device: device.clone(),
        admin_access: false,
    });
    ClaimAllocation { devices: allocated.collect(), node_terms: Vec::new() }
}
fn reference(claim: &str) -> PodClaim {
    PodClaim { name: format!("my-{claim}"), claim: Some(claim.into()), ..PodClaim::default() }
}
fn texts(lists: &[&[&str]]) -> Vec<Vec<String>> {
    lists.iter().map(|list| list.iter().map(|s| (*s).to_owned()).collect()).collect()
}
