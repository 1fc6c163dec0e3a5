//! A binary heap that takes its order as an argument.
//!
//! The queue order is not transitive, so that the first element depends on the algorithm. This is the array heap of
//! Go's `container/heap`, which KAI uses.

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
    /// Creates an empty heap.
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
    /// The first item.
    pub fn peek(&self) -> Option<T> {
        self.items.first().copied()
    }
    /// Adds an item.
    pub fn push(&mut self, item: T, before: impl Fn(T, T) -> bool) {
        self.items.push(item);
        self.up(self.items.len() - 1, &before);
    }
    /// Removes the first item.
    pub fn pop(&mut self, before: impl Fn(T, T) -> bool) -> Option<T> {
        let last = self.items.len().checked_sub(1)?;
        self.items.swap(0, last);
        self.down(0, last, &before);
        self.items.pop()
    }
    /// Restores the order after the key of the first item changed.
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
