//! Allocates devices to claims: exhaustive in order, first solution wins.
//!
//! Tries claims, requests, alternatives and devices in order, and devices of one request in ascending order, as the
//! Kubernetes allocator does; the result is the lexicographically first one. The search ends after a fixed number of
//! steps, to be deterministic.

use super::claim::{AllocatedDevice, Allocation, Alternative, ConstraintKind, DeviceClaim};
use super::inventory::{DeviceIdx, Inventory, NodeDevices, PoolIdx};
use crate::ids::Sym;
use crate::input::RequestMode;
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

/// Maximum of devices per claim, the limit of `status.allocation` in `resource.k8s.io`.
pub const DEVICES_MAX: usize = 32;
/// Devices tried before a search ends.
pub const STEPS_MAX: u32 = 100_000;

/// Devices for several claims, one allocation per claim, or none if they cannot all be satisfied on one node.
/// `in_use` returns whether a device is allocated.
pub fn allocate(
    inventory: &Inventory,
    in_use: impl Fn(DeviceIdx) -> bool,
    devices: &NodeDevices,
    claims: &[&DeviceClaim],
) -> Option<Vec<Allocation>> {
    let mut busy = FixedBitSet::with_capacity(devices.devices.len());
    for (at, device) in devices.devices.iter().enumerate() {
        busy.set(at, in_use(*device));
    }
    let options = Options::gather(inventory, devices, claims, &busy)?;
    let mut search = Search {
        inventory,
        devices,
        claims,
        options: &options,
        busy,
        counters: Counters::new(inventory, in_use, devices),
        values: claims.iter().map(|claim| vec![SmallVec::new(); claim.constraints.len()]).collect(),
        chosen: Vec::new(),
        steps: 0,
    };
    search.next_request(0, 0).then(|| search.results())
}

/// Positions in a node's device list that an alternative can use.
struct Options {
    /// By claim and request, one per alternative.
    lists: Vec<Vec<Vec<Choices>>>,
}

/// Positions to choose from, and how many are requested; 0 marks an unsatisfiable alternative.
type Choices = (Vec<u32>, usize);

impl Options {
    /// None when some request has too few matching devices.
    fn gather(
        inventory: &Inventory,
        devices: &NodeDevices,
        claims: &[&DeviceClaim],
        busy: &FixedBitSet,
    ) -> Option<Self> {
        let mut lists = Vec::with_capacity(claims.len());
        let mut least = 0;
        for claim in claims {
            let mut requests = Vec::with_capacity(claim.requests.len());
            for request in &claim.requests {
                let options = request.alternatives.iter();
                let options: Vec<_> =
                    options.map(|a| Self::of_alternative(inventory, devices, a, busy)).collect();
                let open = |(list, count): &&Choices| *count > 0 && list.len() >= *count;
                least += request
                    .alternatives
                    .iter()
                    .zip(&options)
                    .filter(|(_, option)| open(option))
                    .map(|(alternative, (_, count))| if alternative.admin_access { 0 } else { *count })
                    .min()?;
                requests.push(options);
            }
            lists.push(requests);
        }
        let free = busy.count_zeroes(..);
        (least <= free).then_some(Self { lists })
    }

    fn of_alternative(
        inventory: &Inventory,
        devices: &NodeDevices,
        alternative: &Alternative,
        busy: &FixedBitSet,
    ) -> Choices {
        const IMPOSSIBLE: Choices = (Vec::new(), 0);
        let all = match alternative.mode {
            RequestMode::Exactly(count) if count > DEVICES_MAX as u64 => return IMPOSSIBLE,
            RequestMode::Exactly(_) => false,
            RequestMode::All => {
                let usable = |pool: &PoolIdx| {
                    let pool = inventory.pool(*pool);
                    pool.complete && pool.valid
                };
                if !devices.pools.iter().all(usable) {
                    return IMPOSSIBLE;
                }
                true
            }
            RequestMode::Unknown => return IMPOSSIBLE,
        };
        let mut list = Vec::new();
        for (at, &device) in devices.devices.iter().enumerate() {
            let Some(described) = inventory.described(device) else { continue };
            if !inventory.pool(described.pool).valid || !alternative.selects(device, inventory) {
                continue;
            }
            let tolerated = |taint| alternative.tolerations.iter().any(|t| t.covers(taint));
            let free = alternative.admin_access || !busy.contains(at);
            if free && described.taints.iter().all(|taint| tolerated(*taint)) {
                list.push(at as u32);
            } else if all {
                // `All` means every matching device: one that is unavailable makes it unsatisfiable.
                return IMPOSSIBLE;
            }
        }
        match alternative.mode {
            RequestMode::Exactly(count) => (list, count.max(1) as usize),
            RequestMode::All if list.len() <= DEVICES_MAX => {
                let count = list.len();
                (list, count)
            }
            RequestMode::All | RequestMode::Unknown => IMPOSSIBLE,
        }
    }
}

/// Remaining counters of the pools of a node's devices.
struct Counters(Vec<(PoolIdx, Vec<i64>)>);

impl Counters {
    fn new(inventory: &Inventory, in_use: impl Fn(DeviceIdx) -> bool, devices: &NodeDevices) -> Self {
        let mut pools = Vec::new();
        for &index in &devices.pools {
            let pool = inventory.pool(index);
            if pool.counters.is_empty() {
                continue;
            }
            let mut left = pool.counters.to_vec();
            // Devices on other nodes draw from the same counters.
            for &device in pool.devices.iter().filter(|d| in_use(**d)) {
                for (counter, amount) in inventory.described(device).into_iter().flat_map(|d| &d.draws) {
                    left[*counter as usize] -= amount;
                }
            }
            pools.push((index, left));
        }
        Self(pools)
    }

    /// Consumes a device's counters; consumes nothing when one is insufficient.
    fn draw(&mut self, pool: PoolIdx, draws: &[(u32, i64)]) -> bool {
        if draws.is_empty() {
            return true;
        }
        let Some((_, left)) = self.0.iter_mut().find(|(p, _)| *p == pool) else { return false };
        if draws.iter().any(|(counter, amount)| left[*counter as usize] < *amount) {
            return false;
        }
        for (counter, amount) in draws {
            left[*counter as usize] -= amount;
        }
        true
    }

    fn give_back(&mut self, pool: PoolIdx, draws: &[(u32, i64)]) {
        if let Some((_, left)) = self.0.iter_mut().find(|(p, _)| *p == pool) {
            for (counter, amount) in draws {
                left[*counter as usize] += amount;
            }
        }
    }
}

/// A device chosen so far.
#[derive(Clone, Copy)]
struct Choice {
    claim: usize,
    label: Sym,
    at: u32,
    admin_access: bool,
}

struct Search<'a> {
    inventory: &'a Inventory,
    devices: &'a NodeDevices,
    claims: &'a [&'a DeviceClaim],
    options: &'a Options,
    busy: FixedBitSet,
    counters: Counters,
    /// By claim and constraint: attribute values of the devices chosen so far.
    values: Vec<Vec<SmallVec<[Sym; 8]>>>,
    chosen: Vec<Choice>,
    steps: u32,
}

impl<'a> Search<'a> {
    /// Whether all requests from this one on can be satisfied.
    fn next_request(&mut self, claim: usize, request: usize) -> bool {
        let claims = self.claims;
        let Some(current) = claims.get(claim) else { return true };
        let Some(device_request) = current.requests.get(request) else {
            return self.next_request(claim + 1, 0);
        };
        let options = self.options;
        for (alternative, (list, count)) in
            device_request.alternatives.iter().zip(&options.lists[claim][request])
        {
            let allocated = self.chosen.iter().filter(|c| c.claim == claim).count();
            if *count == 0 || allocated + count > DEVICES_MAX {
                continue;
            }
            if self.fill(claim, request, alternative, list, *count) {
                return true;
            }
        }
        false
    }

    /// Whether `missing` devices of `list`, and then all later requests, can be allocated.
    fn fill(
        &mut self,
        claim: usize,
        request: usize,
        alternative: &'a Alternative,
        list: &[u32],
        missing: usize,
    ) -> bool {
        if missing == 0 {
            return self.next_request(claim, request + 1);
        }
        for skip in 0..(list.len() + 1).saturating_sub(missing) {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return false;
            }
            if self.take(claim, alternative, list[skip]) {
                if self.fill(claim, request, alternative, &list[skip + 1..], missing - 1) {
                    return true;
                }
                self.release(alternative);
            }
        }
        false
    }

    fn take(&mut self, claim: usize, alternative: &Alternative, at: u32) -> bool {
        let inventory = self.inventory;
        let Some(device) = inventory.described(self.devices.devices[at as usize]) else { return false };
        if alternative.admin_access {
            if self.chosen.iter().any(|c| c.claim == claim && c.at == at) {
                return false;
            }
        } else if self.busy.contains(at as usize) {
            return false;
        }
        let holds = |position: &u16| {
            let constraint = self.claims[claim].constraints[usize::from(*position)];
            let values = &self.values[claim][usize::from(*position)];
            device.attribute(constraint.attribute).is_some_and(|value| match constraint.kind {
                ConstraintKind::Match => values.first().is_none_or(|first| *first == value),
                ConstraintKind::Distinct => !values.contains(&value),
            })
        };
        if !alternative.constraints.iter().all(holds) {
            return false;
        }
        if !alternative.admin_access {
            if !self.counters.draw(device.pool, &device.draws) {
                return false;
            }
            self.busy.insert(at as usize);
        }
        for position in &alternative.constraints {
            let attribute = self.claims[claim].constraints[usize::from(*position)].attribute;
            let value = device.attribute(attribute).expect("the constraint was just checked");
            self.values[claim][usize::from(*position)].push(value);
        }
        self.chosen.push(Choice {
            claim,
            label: alternative.label,
            at,
            admin_access: alternative.admin_access,
        });
        true
    }

    /// Undoes the last `take`.
    fn release(&mut self, alternative: &Alternative) {
        let choice = self.chosen.pop().expect("every release follows a take");
        for position in &alternative.constraints {
            self.values[choice.claim][usize::from(*position)].pop();
        }
        let inventory = self.inventory;
        if !choice.admin_access
            && let Some(device) = inventory.described(self.devices.devices[choice.at as usize])
        {
            self.busy.set(choice.at as usize, false);
            self.counters.give_back(device.pool, &device.draws);
        }
    }

    fn results(&self) -> Vec<Allocation> {
        let of_claim = |claim: usize| {
            let allocated = self.chosen.iter().filter(|c| c.claim == claim).map(|c| AllocatedDevice {
                request: c.label,
                device: self.devices.devices[c.at as usize],
                admin_access: c.admin_access,
            });
            Allocation::of(allocated.collect(), self.inventory)
        };
        (0..self.claims.len()).map(of_claim).collect()
    }
}
