//! NUMA zones of a node: free amounts, and the alignment of pods as the kubelet's topology manager does it.
//!
//! Input: a node's zones and the kubelet's policy, a pod's [`NumaRequests`]. Output: a [`Placement`], or that the
//! kubelet would reject the pod. Charging and releasing a placement are exact inverses.
//! Not here: the placements of pods when a cycle begins; the cluster charges them.

mod request;
mod score;
mod solve;

pub use request::NumaRequests;
pub use score::{max_zones, score, span};
pub use solve::{evaluate, solve};

use crate::ids::Sym;
use crate::input::{self, AmountList, NumaAmount, NumaPolicy, NumaScope, NumaTopology};
use crate::intern::Interner;
use crate::resource::{Amounts, Dim, Dims};
use smallvec::SmallVec;

/// The zones of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kubelet's topology manager policy.
    pub policy: NumaPolicy,
    /// The kubelet's topology manager scope.
    pub scope: NumaScope,
    /// Zones in the order of their numbers.
    pub zones: Vec<Zone>,
    /// Resources that some zone reports, by dimension.
    pub reported: Vec<Reported>,
}

/// One NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Zone name.
    pub name: Sym,
    /// Allocatable amounts.
    pub allocatable: Amounts,
    /// Free amounts in the last report of the node's agent.
    pub reported_free: Amounts,
    /// Free amounts in the engine's accounting.
    pub available: Amounts,
}

/// A resource that zones report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Dimension.
    pub dim: Dim,
    /// A device: aligned for pods of every quality-of-service class, unlike CPU, memory and huge pages.
    pub device: bool,
}

/// Source of the free amounts when accounting is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneAccounting {
    /// Allocatable amounts less the recorded placements of the node's pods.
    #[default]
    FromPods,
    /// The report of the node's agent.
    FromReport,
}

/// Resources excluded from alignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(SmallVec<[Dim; 4]>);

impl Ignored {
    /// Excludes nothing.
    pub fn none() -> Self {
        Self::default()
    }
    /// Parses a comma-separated list of resource names; unknown names have no effect.
    pub fn parse(list: &str, dims: &Dims, names: &Interner) -> Self {
        let listed = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(listed.filter_map(|name| find_dim(name, dims, names)).collect())
    }
    /// Excludes one more resource.
    #[must_use]
    pub fn with(mut self, dim: Dim) -> Self {
        self.0.push(dim);
        self
    }
    fn has(&self, dim: Dim) -> bool {
        self.0.contains(&dim)
    }
}

/// Amounts a pod uses of each zone, by zone position; unused zones are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement(Vec<(u16, Amounts)>);

impl Placement {
    /// Amounts by zone, in zone order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Amounts)> {
        self.0.iter().map(|(zone, amounts)| (usize::from(*zone), amounts))
    }
    /// Number of zones used.
    pub fn zones(&self) -> usize {
        self.0.len()
    }
    /// Whether no zone is used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Adds an amount to a zone.
    fn add(&mut self, zone: usize, dim: Dim, amount: i64) {
        if amount == 0 {
            return;
        }
        let zone = u16::try_from(zone).expect("zone counts are checked when a node is built");
        match self.0.binary_search_by_key(&zone, |(z, _)| *z) {
            Ok(at) => self.0[at].1.add(dim, amount),
            Err(at) => {
                let mut amounts = Amounts::zero();
                amounts.set(dim, amount);
                self.0.insert(at, (zone, amounts));
            }
        }
    }
    /// The placement under the names of bind requests and annotations.
    pub fn export(&self, node: &NumaNode, dims: &Dims, names: &Interner) -> Vec<NumaAmount> {
        self.iter()
            .map(|(zone, amounts)| NumaAmount {
                zone: names.text(node.zones[zone].name).to_owned(),
                amounts: amounts.iter().map(|(d, v)| (names.text(dims.name(d)).to_owned(), v)).collect(),
            })
            .collect()
    }
}

impl NumaNode {
    /// Resolves a node's topology; `None` without zones. Free amounts start as the allocatable ones.
    pub fn build(topology: &NumaTopology, dims: &mut Dims, names: &mut Interner) -> Option<Self> {
        if topology.zones.is_empty() || topology.zones.len() > usize::from(u16::MAX) {
            return None;
        }
        let mut reported: Vec<Reported> = Vec::new();
        let mut note = |list: &AmountList, dims: &mut Dims, names: &mut Interner| {
            for (name, _) in list {
                let Some(dim) = dims.offered(name, names) else { continue };
                if reported.iter().all(|r| r.dim != dim) {
                    reported.push(Reported { dim, device: is_device(name) });
                }
            }
        };
        let mut zones = Vec::with_capacity(topology.zones.len());
        for zone in &topology.zones {
            note(&zone.allocatable, dims, names);
            note(&zone.available, dims, names);
            let allocatable = dims.offer(&zone.allocatable, names);
            zones.push(Zone {
                name: names.intern(&zone.name),
                reported_free: dims.offer(&zone.available, names),
                available: allocatable.clone(),
                allocatable,
            });
        }
        reported.sort_by_key(|r| r.dim);
        Some(Self { policy: topology.policy, scope: topology.scope, zones, reported })
    }

    /// Opens the accounting: drops every charge, then charges recorded placements. Reported amounts already include
    /// the pods, so that records are charged only against allocatable amounts.
    pub fn open_accounting<'a>(
        &mut self,
        books: ZoneAccounting,
        held: impl IntoIterator<Item = &'a Placement>,
    ) {
        for zone in &mut self.zones {
            zone.available = match books {
                ZoneAccounting::FromPods => zone.allocatable.clone(),
                ZoneAccounting::FromReport => zone.reported_free.clone(),
            };
        }
        if books == ZoneAccounting::FromPods {
            for placement in held {
                self.charge(placement);
            }
        }
    }

    /// Resolves a pod's recorded placement. `None` when it names an unknown zone: the record is outdated. Resources
    /// that zones do not report are skipped.
    pub fn placement(&self, record: &[NumaAmount], dims: &Dims, names: &Interner) -> Option<Placement> {
        let mut placement = Placement::default();
        for held in record {
            let name = names.find(&held.zone)?;
            let zone = self.zones.iter().position(|z| z.name == name)?;
            for (resource, amount) in &held.amounts {
                let dim = find_dim(resource, dims, names);
                if let Some(dim) = dim.filter(|dim| self.reported.iter().any(|r| r.dim == *dim)) {
                    placement.add(zone, dim, *amount);
                }
            }
        }
        Some(placement)
    }

    /// Subtracts a placement from the free amounts.
    pub fn charge(&mut self, placement: &Placement) {
        for (zone, amounts) in placement.iter() {
            self.zones[zone].available -= amounts;
        }
    }

    /// Adds a placement to the free amounts.
    pub fn release(&mut self, placement: &Placement) {
        for (zone, amounts) in placement.iter() {
            self.zones[zone].available += amounts;
        }
    }

    /// Whether the zones of a placement that is charged have what it takes; only where the kubelet would reject it.
    pub fn covers(&self, placement: &Placement) -> bool {
        let is_covered =
            |zone: usize| self.zones[zone].available.as_slice().iter().all(|amount| *amount >= 0);
        !self.filters() || placement.iter().all(|(zone, _)| is_covered(zone))
    }

    /// Whether the kubelet rejects pods that cannot be aligned.
    pub fn filters(&self) -> bool {
        match self.policy {
            NumaPolicy::Restricted | NumaPolicy::SingleNumaNode => true,
            NumaPolicy::None | NumaPolicy::BestEffort => false,
        }
    }

    /// Whether the kubelet aligns pods at all.
    pub fn aligns(&self) -> bool {
        match self.policy {
            NumaPolicy::Restricted | NumaPolicy::SingleNumaNode | NumaPolicy::BestEffort => true,
            NumaPolicy::None => false,
        }
    }

    /// Resources aligned here for a pod.
    pub fn aware(&self, requests: &NumaRequests, ignored: &Ignored) -> SmallVec<[Dim; 6]> {
        let counts = |r: &&Reported| (r.device || requests.guaranteed) && !ignored.has(r.dim);
        self.reported.iter().filter(counts).map(|r| r.dim).collect()
    }

    /// Whether alignment applies to a pod: it is Guaranteed, or requests a device that zones report.
    pub fn concerns(&self, requests: &NumaRequests, ignored: &Ignored) -> bool {
        requests.guaranteed
            || self
                .reported
                .iter()
                .any(|r| r.device && !ignored.has(r.dim) && requests.pod_scope.get(r.dim) > 0)
    }

    /// Whether the node is feasible only if it can align the pod.
    pub fn must_align(&self, requests: &NumaRequests, ignored: &Ignored) -> bool {
        self.filters() && self.concerns(requests, ignored)
    }

    /// The filter: whether the node's zones can serve a pod.
    pub fn admits(&self, requests: &NumaRequests, ignored: &Ignored) -> bool {
        !self.must_align(requests, ignored) || evaluate(self, requests, ignored).is_some()
    }

    /// The placement to charge for a pod; `None` when alignment does not apply to it.
    pub fn place(&self, requests: &NumaRequests, ignored: &Ignored) -> Option<Placement> {
        if !self.aligns() || !self.concerns(requests, ignored) {
            return None;
        }
        evaluate(self, requests, ignored).filter(|placement| !placement.is_empty())
    }
}

/// Whether a resource is a device, in contrast to CPU, memory and huge pages.
fn is_device(resource: &str) -> bool {
    let native = [input::CPU, input::MEMORY, input::PODS, "ephemeral-storage", "storage"];
    !native.contains(&resource) && !resource.starts_with("hugepages-")
}

/// The dimension of a resource, by name or alias.
fn find_dim(resource: &str, dims: &Dims, names: &Interner) -> Option<Dim> {
    let known = match resource {
        "nvidia.com/gpu" | "amd.com/gpu" => input::GPU,
        other => other,
    };
    names.find(known).and_then(|sym| dims.find(sym))
}

#[cfg(test)]
mod tests;
