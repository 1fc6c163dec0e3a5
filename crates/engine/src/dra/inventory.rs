//! Devices by pool and by node, and the device classes that select them.
//!
//! Slices and classes are added one by one; [`Inventory::refresh`] resolves the pools that changed. A device keeps
//! its index for the lifetime of the cluster, so that allocations survive changes of slices.
//! Order: pools by driver and name, slices of a pool by object name, devices as their slice lists them.

use super::place::{NodeView, Place};
use super::pool::{self, Pool};
use crate::ids::{Idx, IndexVec, Sym};
use crate::input::{DeviceClassInput, DeviceId, GPU, SliceInput};
use crate::intern::Interner;
use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A device, whether or not a slice currently describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIdx(u32);

impl Idx for DeviceIdx {
    fn new(position: usize) -> Self {
        Self(u32::try_from(position).expect("fewer than 2^32 devices"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A pool of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolIdx(u32);

impl Idx for PoolIdx {
    fn new(position: usize) -> Self {
        Self(u32::try_from(position).expect("fewer than 2^32 pools"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// Driver.
    pub driver: Sym,
    /// Pool.
    pub pool: Sym,
    /// Name in the pool.
    pub device: Sym,
    /// All three as `driver/pool/device`.
    pub id: Sym,
}

/// A device as its slice describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its pool.
    pub pool: PoolIdx,
    /// Position in its pool.
    pub position: u32,
    /// Where it can be used.
    pub place: Place,
    /// Attributes by name symbol, sorted.
    pub attributes: Box<[(Sym, Sym)]>,
    /// Taints with an effect on new claims.
    pub taints: Box<[(Sym, Sym, crate::input::TaintEffect)]>,
    /// Counters of its pool that it consumes while in use.
    pub draws: Box<[(u32, i64)]>,
}

impl Device {
    /// The value of an attribute.
    pub fn attribute(&self, name: Sym) -> Option<Sym> {
        let at = self.attributes.binary_search_by_key(&name, |(key, _)| *key).ok()?;
        Some(self.attributes[at].1)
    }
}

/// Devices that can be used from one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDevices {
    /// Devices in allocation order.
    pub devices: Box<[DeviceIdx]>,
    /// Pools that they belong to.
    pub pools: Box<[PoolIdx]>,
    /// GPUs among them that are local to this node.
    pub gpus: u32,
}

/// A device class.
#[derive(Clone, Debug, Default)]
struct Class {
    accepts_all: bool,
    accepts: FixedBitSet,
    extended_resource: Option<String>,
}

/// Nodes whose devices changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    nodes: FxHashSet<Sym>,
    all: bool,
}

impl Touched {
    /// Whether a node's devices may have changed.
    pub fn has(&self, node: Sym) -> bool {
        self.all || self.nodes.contains(&node)
    }
    /// Whether no node is touched.
    pub fn is_empty(&self) -> bool {
        !self.all && self.nodes.is_empty()
    }
}

/// All devices and classes.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    names: IndexVec<DeviceIdx, DeviceName>,
    by_name: FxHashMap<(Sym, Sym, Sym), DeviceIdx>,
    described: IndexVec<DeviceIdx, Option<Box<Device>>>,
    pools: IndexVec<PoolIdx, Pool>,
    pool_by_name: FxHashMap<(Sym, Sym), PoolIdx>,
    pool_of_slice: FxHashMap<String, PoolIdx>,
    dirty: BTreeSet<PoolIdx>,
    bound_pools: FxHashMap<Sym, SmallVec<[PoolIdx; 2]>>,
    floating_pools: BTreeSet<PoolIdx>,
    on_node: FxHashMap<Sym, NodeDevices>,
    classes: FxHashMap<Sym, Class>,
    class_names: BTreeMap<String, Sym>,
    backing: FxHashMap<Sym, Sym>,
}

impl Inventory {
    /// The index of a device, created on first use.
    pub fn device(&mut self, id: &DeviceId, names: &mut Interner) -> DeviceIdx {
        let key = (names.intern(&id.driver), names.intern(&id.pool), names.intern(&id.device));
        self.device_by_symbols(key, names)
    }

    fn device_by_symbols(&mut self, key: (Sym, Sym, Sym), names: &mut Interner) -> DeviceIdx {
        if let Some(&device) = self.by_name.get(&key) {
            return device;
        }
        let id = format!("{}/{}/{}", names.text(key.0), names.text(key.1), names.text(key.2));
        let name = DeviceName { driver: key.0, pool: key.1, device: key.2, id: names.intern(&id) };
        let device = self.names.push(name);
        self.described.push(None);
        self.by_name.insert(key, device);
        device
    }

    /// The names of a device.
    pub fn name(&self, device: DeviceIdx) -> DeviceName {
        self.names[device]
    }

    /// The names of a device as texts.
    pub fn id(&self, device: DeviceIdx, names: &Interner) -> DeviceId {
        let name = self.names[device];
        DeviceId {
            driver: names.text(name.driver).to_owned(),
            pool: names.text(name.pool).to_owned(),
            device: names.text(name.device).to_owned(),
        }
    }

    /// Number of devices ever seen.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no device was ever seen.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A device as its slice describes it; none when no valid slice has it.
    pub fn described(&self, device: DeviceIdx) -> Option<&Device> {
        self.described.get(device)?.as_deref()
    }

    /// A pool.
    pub(super) fn pool(&self, pool: PoolIdx) -> &Pool {
        &self.pools[pool]
    }

    /// Adds or replaces a slice.
    pub fn set_slice(&mut self, slice: SliceInput, names: &mut Interner) {
        self.remove_slice(&slice.name);
        let key = (names.intern(&slice.driver), names.intern(&slice.pool));
        let pool = *self.pool_by_name.entry(key).or_insert_with(|| {
            self.pools.push(Pool::new(key.0, key.1, super::demand::mentions_gpu(&slice.driver)))
        });
        self.pool_of_slice.insert(slice.name.clone(), pool);
        self.pools[pool].slices.insert(slice.name.clone(), slice);
        self.dirty.insert(pool);
    }

    /// Removes a slice.
    pub fn remove_slice(&mut self, name: &str) {
        if let Some(pool) = self.pool_of_slice.remove(name) {
            self.pools[pool].slices.remove(name);
            self.dirty.insert(pool);
        }
    }

    /// Adds or replaces a class.
    pub fn set_class(&mut self, class: &DeviceClassInput, names: &mut Interner) {
        let mut accepts = FixedBitSet::new();
        for id in &class.accepts {
            let device = self.device(id, names).index();
            accepts.grow(device + 1);
            accepts.insert(device);
        }
        let name = names.intern(&class.name);
        self.class_names.insert(class.name.clone(), name);
        let extended_resource = class.extended_resource.clone();
        self.classes.insert(name, Class { accepts_all: class.accepts_all, accepts, extended_resource });
        self.map_resources(names);
    }

    /// Removes a class.
    pub fn remove_class(&mut self, name: &str, names: &mut Interner) {
        if let Some(name) = self.class_names.remove(name) {
            self.classes.remove(&name);
            self.map_resources(names);
        }
    }

    /// Whether a class exists.
    pub fn has_class(&self, class: Sym) -> bool {
        self.classes.contains_key(&class)
    }

    /// Whether a class accepts a device.
    pub fn class_accepts(&self, class: Sym, device: DeviceIdx) -> bool {
        self.classes.get(&class).is_some_and(|c| c.accepts_all || c.accepts.contains(device.index()))
    }

    /// The class that backs each extended resource; the first class by name wins.
    fn map_resources(&mut self, names: &mut Interner) {
        self.backing.clear();
        for (text, class) in &self.class_names {
            let implicit = names.intern(&format!("deviceclass.resource.kubernetes.io/{text}"));
            self.backing.entry(implicit).or_insert(*class);
            if let Some(explicit) = &self.classes[class].extended_resource {
                self.backing.entry(names.intern(explicit)).or_insert(*class);
                if is_gpu_resource(explicit) {
                    self.backing.entry(names.intern(GPU)).or_insert(*class);
                }
            }
        }
    }

    /// The class that backs an extended resource.
    pub fn class_backing(&self, resource: Sym) -> Option<Sym> {
        self.backing.get(&resource).copied()
    }

    /// The name that pods use for the GPU resource when a class backs it.
    pub(super) fn gpu_resource_name(&self, class: Sym) -> Option<&str> {
        let name = self.classes.get(&class)?.extended_resource.as_deref()?;
        is_gpu_resource(name).then_some(name)
    }

    /// Resolves the pools that changed and returns the nodes that must be attached again.
    pub fn refresh(&mut self, names: &mut Interner) -> Touched {
        let mut touched = Touched::default();
        for pool in std::mem::take(&mut self.dirty) {
            self.unlink(pool, &mut touched);
            let resolved = pool::resolve(&self.pools[pool], pool, names);
            let key = (self.pools[pool].driver, self.pools[pool].name);
            let mut devices = Vec::with_capacity(resolved.devices.len());
            for (name, device) in resolved.devices {
                let index = self.device_by_symbols((key.0, key.1, name), names);
                self.described[index] = Some(Box::new(device));
                devices.push(index);
            }
            let slot = &mut self.pools[pool];
            slot.devices = devices;
            slot.complete = resolved.complete;
            slot.valid = resolved.valid;
            slot.counters = resolved.counters;
            self.link(pool, &mut touched);
        }
        touched
    }

    fn unlink(&mut self, pool: PoolIdx, touched: &mut Touched) {
        for device in std::mem::take(&mut self.pools[pool].devices) {
            self.described[device] = None;
        }
        for node in std::mem::take(&mut self.pools[pool].nodes) {
            if let Some(pools) = self.bound_pools.get_mut(&node) {
                pools.retain(|p| *p != pool);
                if pools.is_empty() {
                    self.bound_pools.remove(&node);
                }
            }
            touched.nodes.insert(node);
        }
        touched.all |= self.floating_pools.remove(&pool);
    }

    fn link(&mut self, pool: PoolIdx, touched: &mut Touched) {
        let mut nodes: BTreeSet<Sym> = BTreeSet::new();
        for &device in &self.pools[pool].devices {
            match self.described[device].as_deref().map(|d| &d.place) {
                Some(Place::Node(node)) => {
                    nodes.insert(*node);
                }
                Some(Place::Selected(_) | Place::Everywhere) => {
                    self.floating_pools.insert(pool);
                    touched.all = true;
                }
                Some(Place::Nowhere) | None => {}
            }
        }
        for &node in &nodes {
            self.bound_pools.entry(node).or_default().push(pool);
            touched.nodes.insert(node);
        }
        self.pools[pool].nodes = nodes.into_iter().collect();
    }

    /// Computes the devices that a node can use. Required for every node in [`Touched`], for new nodes and for
    /// changed labels.
    pub fn attach(&mut self, node: &NodeView<'_>) {
        let bound = self.bound_pools.get(&node.name).into_iter().flatten();
        let mut pools: Vec<PoolIdx> = bound.chain(&self.floating_pools).copied().collect();
        let text = |pool: &PoolIdx| {
            let pool = &self.pools[*pool];
            (node.names.text(pool.driver), node.names.text(pool.name))
        };
        pools.sort_by(|a, b| text(a).cmp(&text(b)));
        pools.dedup();
        let mut found = NodeDevices::default();
        let mut devices = Vec::new();
        pools.retain(|pool| {
            let before = devices.len();
            for &device in &self.pools[*pool].devices {
                let Some(described) = &self.described[device] else { continue };
                if described.place.reaches(node) {
                    devices.push(device);
                    let own = matches!(described.place, Place::Node(_));
                    found.gpus += u32::from(own && self.pools[*pool].gpu_driver);
                }
            }
            devices.len() > before
        });
        if devices.is_empty() {
            self.on_node.remove(&node.name);
            return;
        }
        found.devices = devices.into_boxed_slice();
        found.pools = pools.into_boxed_slice();
        self.on_node.insert(node.name, found);
    }

    /// Removes a node.
    pub fn detach(&mut self, node: Sym) {
        self.on_node.remove(&node);
    }

    /// The devices that a node can use; none if it was not attached.
    pub fn on(&self, node: Sym) -> Option<&NodeDevices> {
        self.on_node.get(&node)
    }

    /// GPUs that drivers' slices assign to a node.
    pub fn gpus_on(&self, node: Sym) -> u32 {
        self.on(node).map_or(0, |devices| devices.gpus)
    }
}

/// Whether a resource name maps to the GPU dimension.
fn is_gpu_resource(resource: &str) -> bool {
    matches!(resource, "nvidia.com/gpu" | "amd.com/gpu")
}
