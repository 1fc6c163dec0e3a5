//! A resolved device claim: its specification, and its state at this point of the cycle.

use super::demand::mentions_gpu;
use super::inventory::{DeviceIdx, Inventory};
use super::place::Usable;
use crate::ids::Sym;
use crate::input::{
    ClaimAllocation, ClaimConstraint, ClaimDevice, ClaimInput, ClaimRequest, RequestAlternative, RequestMode,
    TaintEffect, Toleration, TolerationOp,
};
use crate::intern::Interner;
use smallvec::SmallVec;
use std::sync::Arc;

/// Maximum of consumers of a claim, the limit of `status.reservedFor` in `resource.k8s.io`.
pub const CONSUMERS_MAX: usize = 256;

/// Requests and constraints across them (`DeviceClaim` in `resource.k8s.io`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Requests in order.
    pub requests: Vec<Request>,
    /// Constraints in order.
    pub constraints: Vec<Constraint>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Alternatives in order of preference (`firstAvailable`); one for an exact request.
    pub alternatives: Vec<Alternative>,
    /// It has alternatives.
    pub is_choice: bool,
}

/// One alternative of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The name that results carry: `request` or `request/alternative`.
    pub label: Sym,
    /// Device class.
    pub class: Sym,
    /// Number of devices.
    pub mode: RequestMode,
    /// Devices that its own selectors accept, sorted; none when it has no selector.
    pub accepts: Option<Box<[DeviceIdx]>>,
    /// Admin access: does not consume the device.
    pub admin_access: bool,
    /// Taints it tolerates.
    pub tolerations: Vec<Tolerates>,
    /// Constraints that apply to it, by position.
    pub constraints: SmallVec<[u16; 2]>,
    /// Its class provides GPUs.
    pub gpu: bool,
}

/// A toleration of device taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerates {
    key: Option<Sym>,
    value: Option<Sym>,
    effect: Option<TaintEffect>,
}

impl Tolerates {
    fn build(toleration: &Toleration, names: &mut Interner) -> Option<Self> {
        let value = match &toleration.op {
            TolerationOp::Exists => None,
            TolerationOp::Equal(value) => Some(names.intern(value)),
            // Device taints have no numeric comparison.
            TolerationOp::Gt(_) | TolerationOp::Lt(_) => return None,
        };
        let key = (!toleration.key.is_empty()).then(|| names.intern(&toleration.key));
        Some(Self { key, value, effect: toleration.effect })
    }

    /// Whether a taint is tolerated.
    pub fn covers(&self, (key, value, effect): (Sym, Sym, TaintEffect)) -> bool {
        self.key.is_none_or(|k| k == key)
            && self.value.is_none_or(|v| v == value)
            && self.effect.is_none_or(|e| e == effect)
    }
}

/// A constraint over the devices of some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The attribute.
    pub attribute: Sym,
    /// Constraint on its values.
    pub kind: ConstraintKind,
}

/// Constraint on the values of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    /// `matchAttribute`: all are equal.
    Match,
    /// `distinctAttribute`: all differ.
    Distinct,
}

impl DeviceClaim {
    /// Resolves requests and constraints.
    pub fn build(
        requests: &[ClaimRequest],
        constraints: &[ClaimConstraint],
        inventory: &mut Inventory,
        names: &mut Interner,
    ) -> Self {
        let mut resolved = Vec::with_capacity(requests.len());
        for request in requests {
            let is_choice = request.alternatives.iter().any(|a| !a.name.is_empty());
            let alternatives = request
                .alternatives
                .iter()
                .map(|a| Alternative::build(request, a, constraints, inventory, names))
                .collect();
            resolved.push(Request { alternatives, is_choice });
        }
        let constraints = constraints.iter().map(|constraint| match constraint {
            ClaimConstraint::Match { attribute, .. } => {
                Constraint { attribute: names.intern(attribute), kind: ConstraintKind::Match }
            }
            ClaimConstraint::Distinct { attribute, .. } => {
                Constraint { attribute: names.intern(attribute), kind: ConstraintKind::Distinct }
            }
        });
        Self { requests: resolved, constraints: constraints.collect() }
    }

    /// All alternatives of all requests.
    pub fn alternatives(&self) -> impl Iterator<Item = &Alternative> {
        self.requests.iter().flat_map(|r| &r.alternatives)
    }
}

impl Alternative {
    fn build(
        request: &ClaimRequest,
        alternative: &RequestAlternative,
        constraints: &[ClaimConstraint],
        inventory: &mut Inventory,
        names: &mut Interner,
    ) -> Self {
        let label = if alternative.name.is_empty() {
            request.name.clone()
        } else {
            format!("{}/{}", request.name, alternative.name)
        };
        let applies = |constraint: &ClaimConstraint| match constraint {
            ClaimConstraint::Match { requests, .. } | ClaimConstraint::Distinct { requests, .. } => {
                requests.is_empty() || requests.iter().any(|r| *r == request.name || *r == label)
            }
        };
        let positions = constraints.iter().zip(0..).filter(|(c, _)| applies(c)).map(|(_, at)| at).collect();
        let accepts = alternative.accepts.as_ref().map(|ids| {
            let mut devices: Vec<DeviceIdx> = ids.iter().map(|id| inventory.device(id, names)).collect();
            devices.sort_unstable();
            devices.into_boxed_slice()
        });
        Self {
            label: names.intern(&label),
            class: names.intern(&alternative.class),
            mode: alternative.mode,
            accepts,
            admin_access: alternative.admin_access,
            tolerations: alternative.tolerations.iter().filter_map(|t| Tolerates::build(t, names)).collect(),
            constraints: positions,
            gpu: mentions_gpu(&alternative.class),
        }
    }

    /// Whether class, selectors and taints select a device.
    pub fn selects(&self, device: DeviceIdx, inventory: &Inventory) -> bool {
        inventory.class_accepts(self.class, device)
            && self.accepts.as_ref().is_none_or(|list| list.binary_search(&device).is_ok())
    }
}

/// A device allocated to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocatedDevice {
    /// The request's label.
    pub request: Sym,
    /// The device.
    pub device: DeviceIdx,
    /// Admin access.
    pub admin_access: bool,
}

/// Allocation of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Devices, in the order of the requests.
    pub devices: Vec<AllocatedDevice>,
    /// Where it can be used.
    pub usable: Usable,
}

impl Allocation {
    /// The observed allocation of a claim.
    pub fn observed(observed: &ClaimAllocation, inventory: &mut Inventory, names: &mut Interner) -> Self {
        let allocated = observed.devices.iter().map(|d| AllocatedDevice {
            request: names.intern(&d.request),
            device: inventory.device(&d.device, names),
            admin_access: d.admin_access,
        });
        let devices = allocated.collect();
        Self { devices, usable: Usable::by_terms(&observed.node_terms, names) }
    }

    /// An allocation of given devices, usable on the nodes of all of them.
    pub fn of(devices: Vec<AllocatedDevice>, inventory: &Inventory) -> Self {
        let mut usable = Usable::default();
        for allocated in &devices {
            if let Some(device) = inventory.described(allocated.device) {
                usable.narrow(&device.place);
            }
        }
        Self { devices, usable }
    }

    /// The devices under their names.
    pub fn export(&self, inventory: &Inventory, names: &Interner) -> Vec<ClaimDevice> {
        let named = self.devices.iter().map(|allocated| ClaimDevice {
            request: names.text(allocated.request).to_owned(),
            device: inventory.id(allocated.device, names),
            admin_access: allocated.admin_access,
        });
        named.collect()
    }
}

/// The part of a claim that changes inside a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimState {
    /// Allocation.
    pub allocation: Option<Arc<Allocation>>,
    /// Pods it is reserved for, by UID, oldest first.
    pub reserved_for: SmallVec<[Sym; 2]>,
}

/// One claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The object exists; a slot without one is free.
    pub present: bool,
    /// Namespace.
    pub namespace: Sym,
    /// Name.
    pub name: Sym,
    /// Value of the queue label.
    pub queue_label: Option<Sym>,
    /// The pod that owns it.
    pub owner: Option<Sym>,
    /// The binder created it for extended resources of one pod.
    pub synthetic: bool,
    /// Requests and constraints.
    pub spec: DeviceClaim,
    /// Consumers that are not pods.
    pub other_consumers: u32,
    /// All consumers of its object are terminating, or gone.
    pub releasing: bool,
    /// State of its object.
    pub observed: ClaimState,
    /// State at this point of the cycle.
    pub state: ClaimState,
}

impl Claim {
    /// Resolves a claim; its state is the observed one.
    pub fn build(input: &ClaimInput, inventory: &mut Inventory, names: &mut Interner) -> Self {
        let allocation = input
            .allocation
            .as_ref()
            .map(|observed| Arc::new(Allocation::observed(observed, inventory, names)));
        let observed = ClaimState {
            allocation,
            reserved_for: input.reserved_for.iter().map(|uid| names.intern(uid)).collect(),
        };
        Self {
            present: true,
            namespace: names.intern(&input.key.namespace),
            name: names.intern(&input.key.name),
            queue_label: input.queue_label.as_ref().map(|label| names.intern(label)),
            owner: input.owner_pod.as_ref().map(|uid| names.intern(uid)),
            synthetic: input.synthetic,
            spec: DeviceClaim::build(&input.requests, &input.constraints, inventory, names),
            other_consumers: input.other_consumers,
            releasing: input.releasing && input.other_consumers == 0,
            state: observed.clone(),
            observed,
        }
    }

    /// Whether its devices become free when its consumers are gone. A pod that joined them in this cycle keeps them.
    pub fn is_releasing(&self) -> bool {
        self.releasing && self.state.reserved_for == self.observed.reserved_for
    }

    /// Number of consumers.
    pub fn consumers(&self) -> usize {
        self.state.reserved_for.len() + self.other_consumers as usize
    }

    /// Whether some request is for GPUs.
    pub fn requests_gpus(&self) -> bool {
        self.spec.alternatives().any(|a| a.gpu)
    }
}
