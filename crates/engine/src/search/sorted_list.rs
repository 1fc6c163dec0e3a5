//! A sorted line of which members leave, mostly at the front.

/// Members in order; those before `start` have left.
#[derive(Debug)]
pub(crate) struct SortedList<T> {
    members: Vec<T>,
    start: usize,
}

impl<T> Default for SortedList<T> {
    fn default() -> Self {
        Self { members: Vec::new(), start: 0 }
    }
}

impl<T: Copy> SortedList<T> {
    /// Everybody who is left.
    pub(crate) fn remaining(&self) -> &[T] {
        &self.members[self.start..]
    }

    /// The members, for whoever puts them in order.
    pub(crate) fn members_mut(&mut self) -> &mut Vec<T> {
        self.members.drain(..std::mem::take(&mut self.start));
        &mut self.members
    }

    /// Puts one in at a position among those that are left.
    pub(crate) fn insert(&mut self, at: usize, member: T) {
        self.members.insert(self.start + at, member);
    }

    /// Takes some out, so many at most. Costs as many steps as there are members up to the last of them: those that
    /// stay move up to it.
    pub(crate) fn remove_matching(&mut self, most: usize, leaves: impl Fn(&T) -> bool) {
        let (mut found, mut end) = (0, self.start);
        for at in self.start..self.members.len() {
            if found == most {
                break;
            }
            if leaves(&self.members[at]) {
                (found, end) = (found + 1, at + 1);
            }
        }
        let mut to = end;
        for at in (self.start..end).rev() {
            if !leaves(&self.members[at]) {
                to -= 1;
                self.members[to] = self.members[at];
            }
        }
        self.start = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(members: &[u32]) -> SortedList<u32> {
        SortedList { members: members.to_vec(), start: 0 }
    }

    #[test]
    fn those_that_stay_keep_their_order() {
        let mut line = line(&[5, 1, 4, 2, 3]);
        line.remove_matching(2, |member| [1, 2].contains(member));
        assert_eq!(line.remaining(), [5, 4, 3]);
        line.remove_matching(1, |member| *member == 5);
        line.insert(1, 9);
        assert_eq!(line.remaining(), [4, 9, 3]);
        assert_eq!(*line.members_mut(), [4, 9, 3]);
    }

    #[test]
    fn nobody_leaves_who_is_not_there() {
        let mut line = line(&[1, 2]);
        line.remove_matching(3, |member| *member == 7);
        assert_eq!(line.remaining(), [1, 2]);
        line.remove_matching(0, |_| true);
        assert_eq!(line.remaining(), [1, 2]);
    }
}
