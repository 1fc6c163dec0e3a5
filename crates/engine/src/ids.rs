//! Typed indices into dense vectors.
//!
//! Slots are reused and carry no order; ranks and names do. An index is stored as its position plus one, so that
//! `Option` of an index has the size of an index.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// A typed `u32` index.
pub trait Idx: Copy + Eq + Ord + std::hash::Hash {
    /// The index at a position.
    fn new(position: usize) -> Self;
    /// The position.
    fn index(self) -> usize;
}

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl Idx for $name {
            #[inline]
            fn new(position: usize) -> Self {
                let one_more = u32::try_from(position).ok().and_then(|p| NonZeroU32::MIN.checked_add(p));
                Self(one_more.expect("fewer than 2^32 - 1 objects"))
            }
            #[inline]
            fn index(self) -> usize {
                // Never wraps; written so that the compiler removes the check.
                self.0.get().wrapping_sub(1) as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.index())
            }
        }
    };
}

index_type!(
    /// A node of the cluster.
    NodeIdx, "n");
index_type!(
    /// A pod of the cluster.
    PodIdx, "p");
index_type!(
    /// A pod group.
    GroupIdx, "g");
index_type!(
    /// A queue.
    QueueIdx, "q");
index_type!(
    /// A distinct pod specification.
    ShapeIdx, "s");
index_type!(
    /// An interned string.
    Sym, "y");
index_type!(
    /// A member of a group's tree: a set or a pod set.
    MemberIdx, "m");
index_type!(
    /// A topology.
    TopologyIdx, "t");
index_type!(
    /// A domain of a topology.
    DomainIdx, "d");
index_type!(
    /// A device claim.
    ClaimIdx, "c");
index_type!(
    /// A set of labels together with a namespace.
    LabelSetIdx, "l");

/// A vector indexed by one index type.
#[derive(Clone, PartialEq, Eq)]
pub struct IndexVec<I, T> {
    items: Vec<T>,
    kind: PhantomData<fn(I) -> I>,
}

impl<I: Idx, T> IndexVec<I, T> {
    /// An empty vector.
    pub fn new() -> Self {
        Self { items: Vec::new(), kind: PhantomData }
    }
    /// An empty vector with reserved capacity.
    pub fn with_capacity(count: usize) -> Self {
        Self { items: Vec::with_capacity(count), kind: PhantomData }
    }
    /// Reserves capacity for more items.
    pub fn reserve(&mut self, more: usize) {
        self.items.reserve(more);
    }
    /// `count` copies of a value.
    pub fn filled(value: T, count: usize) -> Self
    where
        T: Clone,
    {
        Self { items: vec![value; count], kind: PhantomData }
    }
    /// Appends an item.
    pub fn push(&mut self, item: T) -> I {
        let index = I::new(self.items.len());
        self.items.push(item);
        index
    }
    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// All items in slot order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }
    /// All items in slot order, mutably.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }
    /// All indices in slot order.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::new)
    }
    /// All items with their indices.
    pub fn enumerated(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(i, item)| (I::new(i), item))
    }
    /// The item at an index, if there is one.
    pub fn get(&self, index: I) -> Option<&T> {
        self.items.get(index.index())
    }
    /// Grows to hold `count` items.
    pub fn grow(&mut self, count: usize, value: T)
    where
        T: Clone,
    {
        if self.items.len() < count {
            self.items.resize(count, value);
        }
    }
    /// Removes all items.
    pub fn clear(&mut self) {
        self.items.clear();
    }
}

impl<'a, I: Idx, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, I: Idx, T> IntoIterator for &'a mut IndexVec<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<I: Idx, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Idx, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(items: It) -> Self {
        Self { items: items.into_iter().collect(), kind: PhantomData }
    }
}

impl<I: Idx, T> Index<I> for IndexVec<I, T> {
    type Output = T;
    #[inline]
    fn index(&self, index: I) -> &T {
        &self.items[index.index()]
    }
}

impl<I: Idx, T> IndexMut<I> for IndexVec<I, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.items[index.index()]
    }
}

impl<I: Idx, T: std::fmt::Debug> std::fmt::Debug for IndexVec<I, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}
