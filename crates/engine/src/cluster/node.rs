//! A node: its description, and the ledger of idle, used and releasing amounts.
//!
//! Invariant: a ledger is a function of the description and of the sequence of loads added and not removed.

use super::gpu_group::{SharedGpu, SharedGpus};
use crate::class::Taint;
use crate::cluster::pod::{GpuGroups, Occupancy, Status};
use crate::cluster::shape::Shape;
use crate::ids::{PodIdx, Sym};
use crate::input::{GpuMemory, GpuRequest, MigStrategy, NodeCondition};
use crate::numa::NumaNode;
use crate::resource::{self, Amounts, Dims, WHOLE_GPU};
use crate::share::QueueAmounts;
use smallvec::SmallVec;

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The object exists; a name that is only referenced has a slot too.
    pub present: bool,
    /// Node name.
    pub name: Sym,
    /// Position in name order.
    pub rank: u32,
    /// Labels, sorted by key symbol.
    pub labels: Box<[(Sym, Sym)]>,
    /// Taints.
    pub taints: Box<[Taint]>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Conditions that make the node unschedulable.
    pub bad_conditions: Box<[NodeCondition]>,
    /// Allocatable amounts, DRA devices included.
    pub allocatable: Amounts,
    /// Memory of each GPU.
    pub gpu_memory: GpuMemory,
    /// Number of GPUs, by label.
    pub gpu_count: Option<u32>,
    /// MIG strategy.
    pub mig_strategy: MigStrategy,
    /// The node offers MIG instances.
    pub is_mig: bool,
    /// Some of its GPUs come from a DRA driver.
    pub has_dra_gpus: bool,
    /// gpu-worker role.
    pub gpu_worker: bool,
    /// cpu-worker role.
    pub cpu_worker: bool,
    /// Attach limits per driver.
    pub attach_limits: Box<[(Sym, u32)]>,
    /// Pods that occupy the node, releasing ones included; in no particular order.
    pub pods: Vec<PodIdx>,
    /// Idle, used and releasing amounts.
    pub ledger: NodeLedger,
    /// Equal versions mean equal ledgers.
    pub version: u64,
    /// Equal versions mean equal descriptions.
    pub described_version: u64,
    /// Its contribution to the cluster total while it is ready: allocatable amounts less pods of other schedulers.
    pub offers: QueueAmounts,
    /// The described allocatable amounts, without DRA devices.
    pub described: Amounts,
    /// NUMA zones of its `NodeResourceTopology`.
    pub described_numa: Option<Box<NumaNode>>,
}

/// Idle, used and releasing amounts of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLedger {
    /// Idle.
    pub idle: Amounts,
    /// In use, pipelined pods included.
    pub used: Amounts,
    /// Being released, less what pipelined pods reserve. Only `idle + releasing` is meaningful by itself.
    pub releasing: Amounts,
    /// GPUs that are shared.
    pub gpus: SharedGpus,
    /// Pods with old-style MIG requests.
    pub legacy_mig: u32,
    /// How many counted pods use each DRA device.
    pub devices: SmallVec<[(Sym, DeviceUse); 2]>,
    /// NUMA zones with their free amounts.
    pub numa: Option<Box<NumaNode>>,
}

/// Pods per occupancy of a device that several pods may share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Pods that hold it.
    pub active: u32,
    /// Pods that release it.
    pub releasing: u32,
    /// Pods pipelined to it.
    pub pipelined: u32,
}

impl DeviceUse {
    fn of(&mut self, hold: Occupancy) -> &mut u32 {
        match hold {
            Occupancy::Active => &mut self.active,
            Occupancy::Releasing => &mut self.releasing,
            Occupancy::Pipelined => &mut self.pipelined,
        }
    }
    /// The device's charge to used, idle and releasing, in devices. It is used while an active pod holds it and
    /// releasing once all holders release it; pipelined pods reserve it once.
    fn charge(self) -> [i64; 3] {
        let releasing = i64::from(self.active == 0 && self.releasing > 0);
        let pipelined = i64::from(self.active == 0 && self.pipelined > 0);
        let active = i64::from(self.active > 0);
        [active + releasing + pipelined, -active - releasing, releasing - pipelined]
    }
    fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// The load of one pod on a node.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// The pod's specification.
    pub shape: &'a Shape,
    /// GPUs of its device claims, in millionths.
    pub claim_gpus: i64,
    /// GPU devices of its claims.
    pub devices: SmallVec<[Sym; 2]>,
    /// Shared GPUs.
    pub groups: &'a GpuGroups,
    /// A reservation pod: the pods that share its GPU account for it.
    pub reservation: bool,
}

impl Node {
    /// The value of a label.
    pub fn label(&self, key: Sym) -> Option<Sym> {
        self.labels.binary_search_by_key(&key, |(k, _)| *k).ok().map(|i| self.labels[i].1)
    }
    /// Number of whole GPUs, by label or else by allocatable amount.
    pub fn gpus_total(&self) -> i64 {
        self.gpu_count.map_or(self.allocatable.get(resource::GPU) / WHOLE_GPU, i64::from)
    }
    /// Not cordoned and without bad conditions.
    pub fn is_ready(&self) -> bool {
        !self.unschedulable && self.bad_conditions.is_empty()
    }
    /// Neither GPUs nor MIG instances.
    pub fn is_cpu_only(&self) -> bool {
        !self.is_mig && self.allocatable.get(resource::GPU) <= 0 && !self.has_dra_gpus
    }
    /// Idle plus releasing.
    pub fn free(&self, dim: resource::Dim) -> i64 {
        self.ledger.idle.get(dim) + self.ledger.releasing.get(dim)
    }
    /// No resource and no shared GPU is overcommitted.
    pub fn is_sound(&self) -> bool {
        let free = |dim: resource::Dim| self.free(dim) >= 0;
        (0..self.ledger.idle.len()).all(|dim| free(resource::Dim(dim as u16)))
            && self.ledger.gpus.iter().all(|gpu| self.gpu_memory.mib - gpu.allocated + gpu.releasing >= 0)
    }
    /// Resets the ledger to an empty node.
    pub fn reset_ledger(&mut self) {
        self.ledger = NodeLedger {
            idle: self.allocatable.clone(),
            numa: self.described_numa.clone(),
            ..NodeLedger::default()
        };
    }
    /// Adds a pod's load to the ledger.
    pub fn add(&mut self, load: &Load<'_>, status: Status) {
        let total = self.gpus_total();
        let tracked = self.track(load, status.occupancy(), Direction::Add);
        let ledger = &mut self.ledger;
        ledger.used += &tracked;
        match status.occupancy() {
            Occupancy::Releasing => {
                ledger.releasing += &tracked;
                ledger.idle -= &tracked;
            }
            Occupancy::Pipelined => ledger.releasing -= &tracked,
            Occupancy::Active => ledger.idle -= &tracked,
        }
        if load.shape.is_shared() {
            let mib = load.shape.memory_on(self.gpu_memory.mib);
            for &group in load.groups {
                ledger.add_shared(group, mib, status.occupancy(), total);
            }
        }
        ledger.legacy_mig += u32::from(load.shape.spec.legacy_mig);
    }
    /// Removes a pod's load from the ledger.
    pub fn remove(&mut self, load: &Load<'_>, status: Status) {
        let total = self.gpus_total();
        let tracked = self.track(load, status.occupancy(), Direction::Remove);
        let ledger = &mut self.ledger;
        ledger.used -= &tracked;
        match status.occupancy() {
            Occupancy::Releasing => {
                ledger.releasing -= &tracked;
                ledger.idle += &tracked;
            }
            Occupancy::Pipelined => ledger.releasing += &tracked,
            Occupancy::Active => ledger.idle += &tracked,
        }
        if load.shape.is_shared() {
            let mib = load.shape.memory_on(self.gpu_memory.mib);
            for &group in load.groups {
                ledger.remove_shared(group, mib, status.occupancy(), total);
            }
        }
        ledger.legacy_mig -= u32::from(load.shape.spec.legacy_mig);
    }

    /// The part of a load that resource vectors account for; updates the device counters.
    fn track(&mut self, load: &Load<'_>, hold: Occupancy, direction: Direction) -> Amounts {
        let mut tracked = load.shape.request.clone();
        let gpus = if load.shape.is_shared() || load.reservation {
            0
        } else {
            tracked.get(resource::GPU) + load.claim_gpus
        };
        if gpus > 0 && self.allocatable.get(resource::GPU) > 0 {
            self.ledger.count_devices(&load.devices, hold, direction);
        }
        // Known devices are counted individually, since pods may share them.
        tracked.set(resource::GPU, (gpus - load.devices.len() as i64 * WHOLE_GPU).max(0));
        for dim in 0..tracked.len() {
            let dim = resource::Dim(dim as u16);
            // A device class serves what the node lacks, and accounts for it.
            if self.allocatable.get(dim) == 0 {
                tracked.set(dim, 0);
            }
        }
        tracked
    }

    /// Whether a request fits idle, or idle plus releasing, resources.
    pub fn fits(&self, load: &Load<'_>, when: When, dims: &Dims, backed: &dyn Fn(Sym) -> bool) -> bool {
        self.first_lack(load, when, dims, backed).is_none()
    }

    /// The first dimension in which a request does not fit.
    pub fn first_lack(
        &self,
        load: &Load<'_>,
        when: When,
        dims: &Dims,
        backed: &dyn Fn(Sym) -> bool,
    ) -> Option<Lack> {
        let ledger = &self.ledger;
        let free = |dim: resource::Dim| match when {
            When::Now => ledger.idle.get(dim),
            When::Eventually => ledger.idle.get(dim) + ledger.releasing.get(dim),
        };
        let gpu_lack = self.gpu_lack(load, free(resource::GPU));
        if gpu_lack.is_some() {
            return gpu_lack;
        }
        let requested = load.shape.request.as_slice();
        for i in 0..requested.len().max(ledger.idle.len()) {
            let dim = resource::Dim(i as u16);
            if dim == resource::GPU {
                continue;
            }
            let amount = requested.get(i).copied().unwrap_or(0);
            if amount > free(dim) && !(self.allocatable.get(dim) == 0 && backed(dims.name(dim))) {
                return Some(Lack::Dim(dim));
            }
        }
        None
    }

    fn gpu_lack(&self, load: &Load<'_>, free_gpus: i64) -> Option<Lack> {
        let shape = load.shape;
        if shape.is_shared() {
            let hundredths = shape.hundredths_on(self.gpu_memory.mib);
            if hundredths > 100 && hundredths % 100 != 0 {
                return Some(Lack::GpuMemory);
            }
            let mib = shape.memory_on(self.gpu_memory.mib);
            let devices = i64::from(shape.devices());
            let whole = free_gpus.div_euclid(WHOLE_GPU);
            let fitting =
                || self.ledger.gpus.iter().filter(|g| g.fits(mib, self.gpu_memory.mib)).count() as i64;
            if whole >= devices || whole + fitting() >= devices {
                return None;
            }
            return Some(if matches!(shape.gpu, GpuRequest::Memory { .. }) {
                Lack::GpuMemoryFree
            } else {
                Lack::Gpus
            });
        }
        let requested = shape.request.get(resource::GPU) + load.claim_gpus;
        if requested <= free_gpus {
            return None;
        }
        let discount = load.devices.iter().filter(|d| self.ledger.has_device(**d)).count() as i64 * WHOLE_GPU;
        (requested > free_gpus + discount).then_some(Lack::Gpus)
    }

    /// Idle GPUs in millionths, shared ones by their free part, and free GPU memory in MiB.
    pub fn idle_gpu_sum(&self, dims: &Dims) -> (i64, i64) {
        let memory = self.gpu_memory.mib;
        let mut gpus = self.ledger.idle.get(resource::GPU) + dims.mig_quota(&self.ledger.idle);
        let mut mib =
            self.ledger.idle.get(resource::GPU) / WHOLE_GPU * memory + mig_memory(dims, &self.ledger.idle);
        for gpu in self.ledger.gpus.iter().filter(|g| g.allocated > 0) {
            gpus += WHOLE_GPU - portion_up(gpu.allocated, memory);
            mib += memory - gpu.allocated;
        }
        (gpus, mib)
    }

    /// GPUs being released (millionths), and GPU memory being released (MiB).
    pub fn releasing_gpu_sum(&self, dims: &Dims) -> (i64, i64) {
        let memory = self.gpu_memory.mib;
        let mut gpus = self.ledger.releasing.get(resource::GPU) + dims.mig_quota(&self.ledger.releasing);
        let mut mib = self.ledger.releasing.get(resource::GPU) / WHOLE_GPU * memory
            + mig_memory(dims, &self.ledger.releasing);
        for gpu in self.ledger.gpus.iter().filter(|g| g.releasing > 0 && !g.all_releasing()) {
            gpus += portion_up(gpu.releasing, memory);
            mib += gpu.releasing;
        }
        (gpus, mib)
    }
}

fn mig_memory(dims: &Dims, amounts: &Amounts) -> i64 {
    amounts.iter().filter_map(|(dim, n)| dims.mig(dim).map(|p| p.gigabytes * n / 1000)).sum()
}

fn portion_up(mib: i64, memory: i64) -> i64 {
    (mib * 100 + memory - 1) / memory.max(1) * (WHOLE_GPU / 100)
}

/// Which resources count as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Idle.
    Now,
    /// Idle plus releasing.
    Eventually,
}

/// The resource that a node lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// GPUs.
    Gpus,
    /// Total memory of each GPU.
    GpuMemory,
    /// Free memory of a GPU.
    GpuMemoryFree,
    /// Another dimension.
    Dim(resource::Dim),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Add,
    Remove,
}

impl NodeLedger {
    /// Whether an active or pipelined pod holds a device.
    pub fn has_device(&self, device: Sym) -> bool {
        self.devices.iter().any(|(d, uses)| *d == device && uses.active + uses.pipelined > 0)
    }

    /// Updates the device counters and their charge.
    fn count_devices(&mut self, devices: &[Sym], hold: Occupancy, direction: Direction) {
        for &device in devices {
            let slot = self.devices.iter().position(|(d, _)| *d == device);
            let slot = slot.unwrap_or_else(|| {
                self.devices.push((device, DeviceUse::default()));
                self.devices.len() - 1
            });
            let uses = &mut self.devices[slot].1;
            let before = uses.charge();
            let count = uses.of(hold);
            *count = match direction {
                Direction::Add => *count + 1,
                Direction::Remove => count.saturating_sub(1),
            };
            let (after, nothing) = (uses.charge(), uses.is_nothing());
            for (amounts, r) in [(&mut self.used, 0), (&mut self.idle, 1), (&mut self.releasing, 2)] {
                amounts.add(resource::GPU, (after[r] - before[r]) * WHOLE_GPU);
            }
            if nothing {
                self.devices.remove(slot);
            }
        }
    }

    fn used_gpus(&self) -> i64 {
        self.used.get(resource::GPU) / WHOLE_GPU + self.gpus.iter().filter(|g| g.used > 0).count() as i64
    }

    /// Idle and used GPUs exceed the node's GPUs: one idle GPU is shared.
    fn idle_is_overstated(&self, total: i64) -> bool {
        total < self.idle.get(resource::GPU) / WHOLE_GPU + self.used_gpus()
    }

    fn add_shared(&mut self, group: Sym, mib: i64, hold: Occupancy, total: i64) {
        let gpu = self.gpus.entry(group);
        gpu.used += mib;
        let after = match hold {
            Occupancy::Releasing => {
                gpu.releasing += mib;
                gpu.allocated += mib;
                gpu.backed = true;
                let all = gpu.used == gpu.releasing;
                let newly = all && !gpu.flagged;
                gpu.flagged |= all;
                if newly {
                    self.releasing.add(resource::GPU, WHOLE_GPU);
                }
                all
            }
            Occupancy::Pipelined => {
                let was_all_releasing = gpu.used - mib == gpu.releasing;
                gpu.releasing -= mib;
                if was_all_releasing {
                    self.releasing.add(resource::GPU, -WHOLE_GPU);
                }
                false
            }
            Occupancy::Active => {
                gpu.allocated += mib;
                gpu.backed = true;
                let first = gpu.used <= mib;
                if std::mem::take(&mut gpu.flagged) {
                    self.releasing.add(resource::GPU, -WHOLE_GPU);
                }
                first
            }
        };
        if after && self.idle_is_overstated(total) {
            self.idle.add(resource::GPU, -WHOLE_GPU);
        }
    }

    fn remove_shared(&mut self, group: Sym, mib: i64, hold: Occupancy, total: i64) {
        let gpu = self.gpus.entry(group);
        gpu.used -= mib;
        match hold {
            Occupancy::Releasing => {
                gpu.releasing -= mib;
                gpu.allocated -= mib;
                if gpu.used <= 0 {
                    if std::mem::take(&mut gpu.flagged) {
                        self.releasing.add(resource::GPU, -WHOLE_GPU);
                    }
                    self.return_idle(total);
                }
            }
            Occupancy::Pipelined => {
                let before = SharedGpu { used: gpu.used + mib, ..gpu.clone() };
                gpu.releasing += mib;
                if before.used == before.releasing || (gpu.used == 0 && gpu.releasing == 0) {
                    self.releasing.add(resource::GPU, WHOLE_GPU);
                }
            }
            Occupancy::Active => {
                gpu.allocated -= mib;
                let empty = gpu.used <= 0;
                if gpu.all_releasing() && !gpu.flagged {
                    gpu.flagged = true;
                    self.releasing.add(resource::GPU, WHOLE_GPU);
                }
                if empty {
                    self.return_idle(total);
                }
            }
        }
    }

    fn return_idle(&mut self, total: i64) {
        if total >= self.idle.get(resource::GPU) / WHOLE_GPU + self.used_gpus() {
            self.idle.add(resource::GPU, WHOLE_GPU);
        }
    }
}
