//! Resource vectors: a fixed order of dimensions, integers in base units.
//!
//! Dimension 0 is CPU (millicores), 1 memory (bytes), 2 GPU (millionths of a device), 3 pods; every other resource
//! gets the next free dimension when it is first seen. Missing components count as 0.

use crate::ids::{Idx, IndexVec, Sym};
use crate::input::{self, AmountList};
use crate::intern::Interner;
use smallvec::SmallVec;
use std::ops::{AddAssign, Index, IndexMut, SubAssign};

/// One dimension of a resource vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim(pub u16);

impl Idx for Dim {
    fn new(position: usize) -> Self {
        Self(u16::try_from(position).expect("fewer than 2^16 resource names"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// CPU, in millicores.
pub const CPU: Dim = Dim(0);
/// Memory, in bytes.
pub const MEMORY: Dim = Dim(1);
/// GPUs, in millionths of a device.
pub const GPU: Dim = Dim(2);
/// Pod slots.
pub const PODS: Dim = Dim(3);
/// One whole GPU.
pub const WHOLE_GPU: i64 = input::WHOLE_GPU;
/// Larger values are clamped on input (2^53), so that sums stay exact in 64 bits.
pub const AMOUNT_MAX: i64 = 1 << 53;

/// The resources that queues account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueResource {
    /// Millicores.
    Cpu,
    /// Bytes.
    Memory,
    /// Millionths of a device.
    Gpu,
}

/// One value per queue resource, in declaration order; indexed by [`QueueResource`].
pub type PerResource<T> = [T; 3];

impl<T> Index<QueueResource> for PerResource<T> {
    type Output = T;
    #[inline]
    fn index(&self, resource: QueueResource) -> &T {
        &self[resource as usize]
    }
}

impl<T> IndexMut<QueueResource> for PerResource<T> {
    #[inline]
    fn index_mut(&mut self, resource: QueueResource) -> &mut T {
        &mut self[resource as usize]
    }
}

/// Amounts by dimension.
#[derive(Clone, Default)]
pub struct Amounts(SmallVec<[i64; 6]>);

impl Amounts {
    /// All amounts 0.
    pub fn zero() -> Self {
        Self::default()
    }
    /// The amount in one dimension.
    #[inline]
    pub fn get(&self, dim: Dim) -> i64 {
        self.0.get(dim.index()).copied().unwrap_or(0)
    }
    /// Sets the amount in one dimension.
    pub fn set(&mut self, dim: Dim, amount: i64) {
        if self.0.len() <= dim.index() {
            if amount == 0 {
                return;
            }
            self.0.resize(dim.index() + 1, 0);
        }
        self.0[dim.index()] = amount;
    }
    /// Adds to one dimension.
    pub fn add(&mut self, dim: Dim, amount: i64) {
        self.set(dim, self.get(dim) + amount);
    }
    /// Number of stored dimensions; everything beyond is 0.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether all amounts are 0.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&v| v == 0)
    }
    /// Dimensions with a non-zero amount.
    pub fn iter(&self) -> impl Iterator<Item = (Dim, i64)> + '_ {
        self.0.iter().enumerate().filter(|(_, v)| **v != 0).map(|(i, &v)| (Dim::new(i), v))
    }
    /// Whether every component is at most the other's.
    #[inline]
    pub fn fits(&self, free: &Amounts) -> bool {
        self.0.iter().enumerate().all(|(i, &v)| v <= free.0.get(i).copied().unwrap_or(0))
            && free.0.iter().skip(self.0.len()).all(|&v| v >= 0)
    }
    /// Component-wise maximum.
    pub fn max_with(&mut self, other: &Amounts) {
        for (i, &v) in other.0.iter().enumerate() {
            let dim = Dim::new(i);
            if v > self.get(dim) {
                self.set(dim, v);
            }
        }
    }
    /// The stored components.
    pub fn as_slice(&self) -> &[i64] {
        &self.0
    }
}

impl AddAssign<&Amounts> for Amounts {
    fn add_assign(&mut self, other: &Amounts) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a += b;
        }
    }
}

impl SubAssign<&Amounts> for Amounts {
    fn sub_assign(&mut self, other: &Amounts) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a -= b;
        }
    }
}

impl PartialEq for Amounts {
    fn eq(&self, other: &Self) -> bool {
        let most = self.0.len().max(other.0.len());
        (0..most).all(|i| self.get(Dim::new(i)) == other.get(Dim::new(i)))
    }
}
impl Eq for Amounts {}

impl std::hash::Hash for Amounts {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for (dim, amount) in self.iter() {
            dim.hash(state);
            amount.hash(state);
        }
    }
}

impl std::fmt::Debug for Amounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(d, v)| (d.0, v))).finish()
    }
}

/// The dimensions of one cluster.
#[derive(Clone, Debug)]
pub struct Dims {
    names: IndexVec<Dim, Sym>,
    mig: IndexVec<Dim, Option<MigProfile>>,
}

/// A MIG profile: compute slices and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MigProfile {
    /// Compute slices: the quota charge of one instance in GPUs.
    pub slices: i64,
    /// Gigabytes of memory.
    pub gigabytes: i64,
}

impl MigProfile {
    /// Reads `nvidia.com/mig-<slices>g.<memory>gb`; any other form (suffixes included) is no profile.
    pub fn parse(resource: &str) -> Option<Self> {
        let (slices, memory) = resource.strip_prefix("nvidia.com/mig-")?.split_once("g.")?;
        let memory = memory.strip_suffix("gb")?;
        let digits =
            |s: &str| (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok());
        Some(Self { slices: digits(slices)??, gigabytes: digits(memory)?? })
    }
}

/// Whether a resource name is a MIG profile of any form.
pub fn is_mig(resource: &str) -> bool {
    resource.starts_with("nvidia.com/mig-")
}

impl Dims {
    /// The four fixed dimensions.
    pub fn new(names: &mut Interner) -> Self {
        let fixed = [input::CPU, input::MEMORY, input::GPU, input::PODS];
        Self {
            names: fixed.iter().map(|n| names.intern(n)).collect(),
            mig: fixed.iter().map(|_| None).collect(),
        }
    }
    /// Number of dimensions.
    pub fn len(&self) -> usize {
        self.names.len()
    }
    /// Never true: four dimensions always exist.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
    /// The dimension of a resource name, created on first use.
    pub fn dim(&mut self, name: &str, names: &mut Interner) -> Dim {
        let sym = names.intern(name);
        if let Some(dim) = self.find(sym) {
            return dim;
        }
        self.mig.push(MigProfile::parse(name));
        self.names.push(sym)
    }
    /// The dimension of a resource name, if it exists.
    pub fn find(&self, name: Sym) -> Option<Dim> {
        self.names.iter().position(|&n| n == name).map(Dim::new)
    }
    /// The name of a dimension.
    pub fn name(&self, dim: Dim) -> Sym {
        self.names[dim]
    }
    /// The MIG profile that a dimension stands for.
    pub fn mig(&self, dim: Dim) -> Option<MigProfile> {
        self.mig[dim]
    }
    /// Turns a list of named amounts into a vector.
    pub fn amounts(&mut self, list: &AmountList, names: &mut Interner) -> Amounts {
        let mut amounts = Amounts::zero();
        for (name, amount) in list {
            let dim = self.dim(name, names);
            amounts.add(dim, (*amount).clamp(-AMOUNT_MAX, AMOUNT_MAX));
        }
        amounts
    }
    /// Quota charge of the MIG instances in a vector, in millionths of a GPU.
    pub fn mig_quota(&self, amounts: &Amounts) -> i64 {
        let quotas = amounts.iter().filter_map(|(dim, n)| {
            self.mig[dim].map(|profile| profile.slices.saturating_mul(n).saturating_mul(WHOLE_GPU / 1000))
        });
        quotas.fold(0, i64::saturating_add).clamp(-AMOUNT_MAX, AMOUNT_MAX)
    }
}
