//! A sorted list from which elements are removed mostly at the front.

/// Elements in order; those before `start` are removed.
#[derive(Debug)]
pub(crate) struct SortedList<T> {
    elements: Vec<T>,
    start: usize,
}

impl<T> Default for SortedList<T> {
    fn default() -> Self {
        Self { elements: Vec::new(), start: 0 }
    }
}

impl<T: Copy> SortedList<T> {
    pub(crate) fn remaining(&self) -> &[T] {
        &self.elements[self.start..]
    }

    /// The elements, to be sorted by the caller.
    pub(crate) fn elements_mut(&mut self) -> &mut Vec<T> {
        self.elements.drain(..std::mem::take(&mut self.start));
        &mut self.elements
    }

    /// Inserts an element at a position among the remaining ones.
    pub(crate) fn insert(&mut self, at: usize, element: T) {
        self.elements.insert(self.start + at, element);
    }

    /// Removes up to `most` matching elements. Costs as many steps as there are elements up to the last match: the
    /// ones kept are moved towards it.
    pub(crate) fn remove_matching(&mut self, most: usize, is_removed: impl Fn(&T) -> bool) {
        let (mut found, mut end) = (0, self.start);
        for at in self.start..self.elements.len() {
            if found == most {
                break;
            }
            if is_removed(&self.elements[at]) {
                (found, end) = (found + 1, at + 1);
            }
        }
        let mut to = end;
        for at in (self.start..end).rev() {
            if !is_removed(&self.elements[at]) {
                to -= 1;
                self.elements[to] = self.elements[at];
            }
        }
        self.start = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(elements: &[u32]) -> SortedList<u32> {
        SortedList { elements: elements.to_vec(), start: 0 }
    }

    #[test]
    fn remaining_elements_keep_their_order() {
        let mut list = list(&[5, 1, 4, 2, 3]);
        list.remove_matching(2, |element| [1, 2].contains(element));
        assert_eq!(list.remaining(), [5, 4, 3]);
        list.remove_matching(1, |element| *element == 5);
        list.insert(1, 9);
        assert_eq!(list.remaining(), [4, 9, 3]);
        assert_eq!(*list.elements_mut(), [4, 9, 3]);
    }

    #[test]
    fn unmatched_elements_are_not_removed() {
        let mut list = list(&[1, 2]);
        list.remove_matching(3, |element| *element == 7);
        assert_eq!(list.remaining(), [1, 2]);
        list.remove_matching(0, |_| true);
        assert_eq!(list.remaining(), [1, 2]);
    }
}
