//! A resource pool: slices of its newest generation, resolved into devices and counters.

use super::inventory::{Device, DeviceIdx, PoolIdx};
use super::place::Place;
use crate::ids::Sym;
use crate::input::{self, SliceInput, TaintEffect};
use crate::intern::Interner;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// A pool with its slices and resolved devices.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) driver: Sym,
    pub(super) name: Sym,
    /// Slices of all generations, by object name.
    pub(super) slices: BTreeMap<String, SliceInput>,
    /// Devices of the newest generation, in order.
    pub(super) devices: Vec<DeviceIdx>,
    /// Nodes with local devices in the pool.
    pub(super) nodes: Vec<Sym>,
    /// All slices of the newest generation exist.
    pub(super) complete: bool,
    /// No device is described twice.
    pub(super) valid: bool,
    /// The driver provides GPUs.
    pub(super) gpu_driver: bool,
    /// Capacity of each counter.
    pub(super) counters: Box<[i64]>,
}

impl Pool {
    pub(super) fn new(driver: Sym, name: Sym, gpu_driver: bool) -> Self {
        Self {
            driver,
            name,
            slices: BTreeMap::new(),
            devices: Vec::new(),
            nodes: Vec::new(),
            complete: true,
            valid: true,
            gpu_driver,
            counters: Box::default(),
        }
    }
}

/// Resolved slices of a pool.
pub(super) struct Resolved {
    pub(super) devices: Vec<(Sym, Device)>,
    pub(super) complete: bool,
    pub(super) valid: bool,
    pub(super) counters: Box<[i64]>,
}

/// Counters of a pool by set and name, with their capacity.
struct Counters<'a> {
    index: BTreeMap<(&'a str, &'a str), u32>,
    capacity: Vec<i64>,
}

/// Resolves the newest generation of a pool. A device that consumes an unknown counter is skipped; a pool with a
/// duplicate device is invalid and not used.
pub(super) fn resolve(pool: &Pool, index: PoolIdx, names: &mut Interner) -> Resolved {
    let newest = pool.slices.values().map(|s| s.generation).max();
    let slices: Vec<&SliceInput> = pool.slices.values().filter(|s| Some(s.generation) == newest).collect();
    let complete = slices.first().is_none_or(|s| s.slice_count == slices.len() as i64);
    let counters = counters_of(&slices);
    let mut seen: FxHashSet<&str> = FxHashSet::default();
    let mut devices = Vec::new();
    let mut valid = true;
    for slice in &slices {
        let shared = Place::build(&slice.nodes, names);
        for device in &slice.devices {
            if !seen.insert(&device.name) {
                valid = false;
                continue;
            }
            let Some(draws) = draws_of(device, &counters) else { continue };
            let place = match (&slice.nodes, &device.nodes) {
                (input::SliceNodes::PerDevice, Some(own)) => Place::build(own, names),
                (
                    input::SliceNodes::PerDevice
                    | input::SliceNodes::Node(_)
                    | input::SliceNodes::Selector(_)
                    | input::SliceNodes::All,
                    _,
                ) => shared.clone(),
            };
            let position = u32::try_from(devices.len()).expect("fewer than 2^32 devices");
            devices
                .push((names.intern(&device.name), describe(device, index, position, place, draws, names)));
        }
    }
    Resolved { devices, complete, valid, counters: counters.capacity.into() }
}

fn describe(
    device: &input::Device,
    pool: PoolIdx,
    position: u32,
    place: Place,
    draws: Box<[(u32, i64)]>,
    names: &mut Interner,
) -> Device {
    let mut attributes: Vec<(Sym, Sym)> =
        device.attributes.iter().map(|(k, v)| (names.intern(k), names.intern(v))).collect();
    attributes.sort_unstable();
    let taints = device.taints.iter().filter_map(|taint| match taint.effect {
        Some(effect @ (TaintEffect::NoSchedule | TaintEffect::NoExecute)) => {
            Some((names.intern(&taint.key), names.intern(&taint.value), effect))
        }
        Some(TaintEffect::PreferNoSchedule) | None => None,
    });
    let taints = taints.collect();
    Device { pool, position, place, attributes: attributes.into(), taints, draws }
}

fn counters_of<'a>(slices: &[&'a SliceInput]) -> Counters<'a> {
    let mut counters = Counters { index: BTreeMap::new(), capacity: Vec::new() };
    for set in slices.iter().flat_map(|s| &s.counters) {
        for (name, amount) in &set.counters {
            let next = u32::try_from(counters.capacity.len()).expect("fewer than 2^32 counters");
            counters.index.entry((&set.name, name)).or_insert_with(|| {
                counters.capacity.push(*amount);
                next
            });
        }
    }
    counters
}

/// A device's counter consumption, summed by counter; none when a counter is missing.
fn draws_of(device: &input::Device, counters: &Counters<'_>) -> Option<Box<[(u32, i64)]>> {
    let mut draws: BTreeMap<u32, i64> = BTreeMap::new();
    for set in &device.consumes {
        for (name, amount) in &set.counters {
            let counter = *counters.index.get(&(set.name.as_str(), name.as_str()))?;
            *draws.entry(counter).or_default() += amount;
        }
    }
    Some(draws.into_iter().collect())
}
