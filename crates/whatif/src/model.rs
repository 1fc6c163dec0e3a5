//! A cluster whose objects are changed, planned and restored.
//!
//! Invariant: after [`Model::trial`] the next plan equals the one before.

use crate::change::{Change, Edit};
use kai_cache::object::Change as Stored;
use kai_cache::{Eviction, Kind, Object, Store};
use kai_engine::input::Key;
use kai_engine::{ClusterState, Cycle, Focus, Focused, Outcome, Policy};

/// A cluster with what a plan of it needs.
pub struct Model<'a> {
    pub store: &'a mut Store,
    pub cluster: &'a mut ClusterState,
    pub policy: &'a Policy,
    pub cycle: Cycle,
}

/// What takes changes back.
#[derive(Debug, Default)]
pub struct Undo {
    /// Objects that were changed, with what they were; `None` did not exist. In the order of the changes.
    before: Vec<(Kind, Key, Option<Object>)>,
    /// Assumed evictions of pods that were removed.
    evictions: Vec<(Key, Eviction)>,
}

impl Model<'_> {
    pub fn plan(&mut self) -> Outcome {
        self.store.drain_into(self.cluster);
        kai_engine::plan(self.cluster, self.policy, self.cycle)
    }

    /// Plans a cycle as if the changes were made.
    pub fn trial(&mut self, changes: &[Change]) -> Outcome {
        let undo = self.apply(changes);
        let outcome = self.plan();
        self.revert(undo);
        outcome
    }

    /// Plans as much of a cycle as decides about a group, as if the changes were made. Returns the number of objects that
    /// they edit, too.
    pub fn focused_trial(&mut self, changes: &[Change], focus: Focus<'_>) -> (Focused, usize) {
        let undo = self.apply(changes);
        let edits = undo.before.len();
        self.store.drain_into(self.cluster);
        let focused = kai_engine::plan_focused(self.cluster, self.policy, self.cycle, focus);
        self.revert(undo);
        (focused, edits)
    }

    /// Brings derived values of the cluster up to date, such as fair shares.
    pub fn refresh(&mut self) {
        self.store.drain_into(self.cluster);
        kai_engine::refresh(self.cluster, self.policy, self.cycle);
    }

    /// Makes changes, each to the result of the one before.
    pub fn apply(&mut self, changes: &[Change]) -> Undo {
        let mut undo = Undo::default();
        for change in changes {
            for edit in change.edits(self.store.objects(), self.store.settings(), self.cluster) {
                self.edit(edit, &mut undo);
            }
        }
        undo
    }

    fn edit(&mut self, edit: Edit, undo: &mut Undo) {
        let (kind, key) = match &edit {
            Edit::Put(object) => (object.kind(), object.key()),
            Edit::Remove(kind, key) => (*kind, key.clone()),
        };
        if kind == Kind::Pod
            && let Some(eviction) = self.store.evictions().get(&key)
        {
            undo.evictions.push((key.clone(), eviction.clone()));
        }
        let before = match edit {
            Edit::Put(object) => match self.store.apply(object) {
                Stored::None => return,
                Stored::Added => None,
                Stored::Replaced(before) => Some(before),
            },
            Edit::Remove(..) => match self.store.delete(kind, &key) {
                None => return,
                before => before,
            },
        };
        undo.before.push((kind, key, before));
    }

    /// Takes changes back.
    pub fn revert(&mut self, undo: Undo) {
        for (kind, key, before) in undo.before.into_iter().rev() {
            match before {
                Some(object) => {
                    self.store.apply(object);
                }
                None => {
                    self.store.delete(kind, &key);
                }
            }
        }
        for (pod, eviction) in undo.evictions {
            self.store.assume_eviction(pod, eviction);
        }
        self.store.drain_into(self.cluster);
    }
}
