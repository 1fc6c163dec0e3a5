//! Resource vectors: a fixed order of dimensions, integers in base units.
//!
//! Dimension 0 is CPU (millicores), 1 memory (bytes), 2 GPU (millionths of a device), 3 pods; every other resource
//! gets the next free dimension when it is first seen. Missing components count as 0.
//!
//! Vectors are as long as their highest dimension, and any pod may request a resource of any name. Beyond
//! [`REQUESTED_MAX`] names, requests of resources that no node offers share one dimension, which never fits.

use crate::ids::{Idx, IndexVec, Sym};
use crate::input::{self, AmountList};
use crate::intern::Interner;
use rustc_hash::{FxHashMap, FxHashSet};
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

/// Requested resources get dimensions of their own while there are fewer than this many.
pub const REQUESTED_MAX: usize = 256;
/// The name of the dimension that all further requested resources share.
pub const UNOFFERED: &str = "resources that no node offers";

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
    by_name: FxHashMap<Sym, Dim>,
    mig: IndexVec<Dim, Option<MigProfile>>,
    /// The dimension of [`UNOFFERED`].
    unoffered: Option<Dim>,
    /// The requested names that share it.
    shared: FxHashSet<Sym>,
    has_offered_shared: bool,
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
        let mut dims = Self {
            names: IndexVec::new(),
            by_name: FxHashMap::default(),
            mig: IndexVec::new(),
            unoffered: None,
            shared: FxHashSet::default(),
            has_offered_shared: false,
        };
        for name in [input::CPU, input::MEMORY, input::GPU, input::PODS] {
            dims.push(names.intern(name), None);
        }
        dims
    }
    fn push(&mut self, name: Sym, mig: Option<MigProfile>) -> Dim {
        let dim = self.names.push(name);
        self.mig.push(mig);
        self.by_name.insert(name, dim);
        dim
    }
    /// Number of dimensions.
    pub fn len(&self) -> usize {
        self.names.len()
    }
    /// Never true: four dimensions always exist.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
    /// The dimension of a resource that nodes offer, created on first use; `None` where there are too many.
    pub fn offered(&mut self, name: &str, names: &mut Interner) -> Option<Dim> {
        let sym = names.intern(name);
        if let Some(dim) = self.find(sym) {
            return Some(dim);
        }
        if self.names.len() >= usize::from(u16::MAX) {
            return None;
        }
        self.has_offered_shared |= self.shared.contains(&sym);
        Some(self.push(sym, MigProfile::parse(name)))
    }
    /// The dimension of a resource that a pod requests.
    pub fn requested(&mut self, name: &str, names: &mut Interner) -> Dim {
        let sym = names.intern(name);
        if let Some(dim) = self.find(sym) {
            return dim;
        }
        if self.names.len() < REQUESTED_MAX {
            return self.push(sym, MigProfile::parse(name));
        }
        self.shared.insert(sym);
        if let Some(dim) = self.unoffered {
            return dim;
        }
        let dim = self.push(names.intern(UNOFFERED), None);
        self.unoffered = Some(dim);
        dim
    }
    /// Whether a dimension is shared by resources that no node offers.
    pub fn is_unoffered(&self, dim: Dim) -> bool {
        self.unoffered == Some(dim)
    }
    /// Whether a node offers a resource whose requests share [`UNOFFERED`]: the cluster must be built anew, where nodes
    /// come first.
    pub fn is_outdated(&self) -> bool {
        self.has_offered_shared
    }
    /// The dimension of a resource name, if it exists.
    pub fn find(&self, name: Sym) -> Option<Dim> {
        self.by_name.get(&name).copied()
    }
    /// The name of a dimension.
    pub fn name(&self, dim: Dim) -> Sym {
        self.names[dim]
    }
    /// The MIG profile that a dimension stands for.
    pub fn mig(&self, dim: Dim) -> Option<MigProfile> {
        self.mig[dim]
    }
    /// Turns a list of offered amounts into a vector.
    pub fn offer(&mut self, list: &AmountList, names: &mut Interner) -> Amounts {
        let mut amounts = Amounts::zero();
        for (name, amount) in list {
            if let Some(dim) = self.offered(name, names) {
                amounts.add(dim, (*amount).clamp(-AMOUNT_MAX, AMOUNT_MAX));
            }
        }
        amounts
    }
    /// Turns a list of requested amounts into a vector.
    pub fn request(&mut self, list: &AmountList, names: &mut Interner) -> Amounts {
        let mut amounts = Amounts::zero();
        for (name, amount) in list {
            let dim = self.requested(name, names);
            // Several names may share a dimension.
            let sum = amounts.get(dim).saturating_add((*amount).clamp(-AMOUNT_MAX, AMOUNT_MAX));
            amounts.set(dim, sum.clamp(-AMOUNT_MAX, AMOUNT_MAX));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_requested_names_has_few_dimensions_and_never_fits() {
        let mut names = Interner::default();
        let mut dims = Dims::new(&mut names);
        let node = dims.offer(&vec![("example.com/known".to_owned(), 8)], &mut names);
        for number in 0..70_000 {
            let request = vec![(format!("example.com/x{number}"), 1), ("example.com/known".to_owned(), 1)];
            let request = dims.request(&request, &mut names);
            assert!(!request.fits(&node), "{number}");
        }
        assert_eq!(dims.len(), REQUESTED_MAX + 1);
        let known = dims.request(&vec![("example.com/known".to_owned(), 1)], &mut names);
        assert!(known.fits(&node));
        assert!(!dims.is_outdated());
        dims.offer(&vec![("example.com/x69999".to_owned(), 8)], &mut names);
        assert!(dims.is_outdated(), "requests of it were resolved to the shared dimension");
    }
}
