//! `CSIStorageCapacity` objects and the nodes they apply to.

use super::{SymKey, intern_key};
use crate::ids::Sym;
use crate::input::CapacityInput;
use crate::intern::Interner;
use crate::terms::selector::{Anchor, Query};
use rustc_hash::FxHashMap;

/// All capacities, indexed by the node labels they select.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacities {
    by_key: FxHashMap<SymKey, u32>,
    slots: Vec<Option<Capacity>>,
    free: Vec<u32>,
    by_anchor: FxHashMap<Anchor, Vec<u32>>,
}

/// Free capacity of a class.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    pub(super) class: Sym,
    pub(super) bytes: i64,
    /// Nodes it applies to; none means all.
    nodes: Option<Query>,
}

const EVERYWHERE: Anchor = Anchor { namespace: None, label: None };

impl Capacity {
    fn anchors(&self) -> Vec<Anchor> {
        self.nodes.as_ref().map_or_else(|| vec![EVERYWHERE], Query::anchors)
    }
}

impl Capacities {
    pub(super) fn set(&mut self, input: &CapacityInput, names: &mut Interner) {
        let key = intern_key(&input.key, names);
        self.remove(key);
        let capacity = Capacity {
            class: names.intern(&input.class),
            bytes: input.bytes,
            nodes: input.nodes.as_ref().map(|selector| Query::of_labels(selector, names)),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        for anchor in capacity.anchors() {
            self.by_anchor.entry(anchor).or_default().push(slot);
        }
        self.slots[slot as usize] = Some(capacity);
        self.by_key.insert(key, slot);
    }

    pub(super) fn remove(&mut self, key: SymKey) {
        let Some(slot) = self.by_key.remove(&key) else { return };
        let old = self.slots[slot as usize].take().expect("a key leads to a capacity");
        for anchor in old.anchors() {
            if let Some(filed) = self.by_anchor.get_mut(&anchor) {
                filed.retain(|s| *s != slot);
            }
        }
        self.free.push(slot);
    }

    /// Number of slots, empty ones included.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The capacity in a slot.
    pub(super) fn get(&self, slot: u32) -> Option<&Capacity> {
        self.slots[slot as usize].as_ref()
    }

    /// The capacities that apply to a node, with their slots.
    pub(super) fn reaching(&self, labels: &[(Sym, Sym)]) -> impl Iterator<Item = (u32, &Capacity)> {
        let of_label = |&(key, value): &(Sym, Sym)| [Some((key, Some(value))), Some((key, None))];
        let anchors = labels.iter().flat_map(of_label).chain([None]);
        let filed =
            anchors.filter_map(|label| self.by_anchor.get(&Anchor { namespace: None, label })).flatten();
        filed
            .filter_map(|&slot| Some((slot, self.get(slot)?)))
            .filter(|(_, capacity)| capacity.nodes.as_ref().is_none_or(|nodes| nodes.matches_labels(labels)))
    }
}
