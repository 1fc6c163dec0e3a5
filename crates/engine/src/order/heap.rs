//! A binary heap whose order is given with each call.
//!
//! The queue order is not transitive, so that which queue comes out first depends on how the heap is kept; this is
//! the textbook array heap, and it is part of the definition of the order.

/// A binary heap.
#[derive(Clone, Debug)]
pub struct Heap<T> {
    items: Vec<T>,
}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<T: Copy> Heap<T> {
    /// An empty heap.
    pub fn new() -> Self {
        Self::default()
    }
    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// The item on top.
    pub fn peek(&self) -> Option<T> {
        self.items.first().copied()
    }
    /// Adds an item.
    pub fn push(&mut self, item: T, before: impl Fn(T, T) -> bool) {
        self.items.push(item);
        self.up(self.items.len() - 1, &before);
    }
    /// Takes the item on top.
    pub fn pop(&mut self, before: impl Fn(T, T) -> bool) -> Option<T> {
        let last = self.items.len().checked_sub(1)?;
        self.items.swap(0, last);
        self.down(0, last, &before);
        self.items.pop()
    }
    /// Finds the place of the item on top again after its key changed.
    pub fn fix_top(&mut self, before: impl Fn(T, T) -> bool) {
        self.down(0, self.items.len(), &before);
    }

    fn up(&mut self, mut at: usize, before: &impl Fn(T, T) -> bool) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !before(self.items[at], self.items[parent]) {
                break;
            }
            self.items.swap(at, parent);
            at = parent;
        }
    }

    fn down(&mut self, mut at: usize, end: usize, before: &impl Fn(T, T) -> bool) {
        loop {
            let left = 2 * at + 1;
            if left >= end {
                break;
            }
            let right = left + 1;
            let better =
                if right < end && before(self.items[right], self.items[left]) { right } else { left };
            if !before(self.items[better], self.items[at]) {
                break;
            }
            self.items.swap(at, better);
            at = better;
        }
    }
}
