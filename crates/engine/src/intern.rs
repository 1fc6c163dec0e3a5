//! String interner: strings are stored once and compared as numbers.
//!
//! All texts are concatenated in one buffer, indexed by an open-addressing hash table. A cluster has several names
//! per pod; the overhead per name is twelve bytes and no allocation.

use crate::ids::{Idx, Sym};
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;
use std::ops::Range;

/// The strings of one cluster. Symbols carry no order: compare texts where an order matters.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    /// All texts.
    buffer: String,
    /// End of each text; it begins at the end of the previous one.
    ends: Vec<u32>,
    /// Open addressing with linear probing; the number of slots is a power of two.
    slots: Vec<Slot>,
}

/// A slot of the table: the text at `position - 1`, or empty at 0.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u32,
    position: u32,
}

impl Interner {
    /// The symbol of a text, interned on first use.
    pub fn intern(&mut self, text: &str) -> Sym {
        // The load factor is at most 3/4, so that probing terminates.
        if (self.ends.len() + 1) * 4 > self.slots.len() * 3 {
            self.rehash((self.slots.len() * 2).max(64));
        }
        let hash = hash_of(text);
        let at = match self.probe(text, hash) {
            Ok(sym) => return sym,
            Err(at) => at,
        };
        let sym = Sym::new(self.ends.len());
        self.buffer.push_str(text);
        self.ends.push(u32::try_from(self.buffer.len()).expect("less than 4 GiB of names"));
        self.slots[at] = Slot { hash, position: self.ends.len() as u32 };
        sym
    }

    /// Reserves capacity for more strings.
    pub fn reserve(&mut self, more: usize) {
        self.ends.reserve(more);
        let slots = ((self.ends.len() + more) * 4 / 3 + 1).next_power_of_two();
        if slots > self.slots.len() {
            self.rehash(slots);
        }
    }

    /// The symbol of a text that is already interned.
    pub fn find(&self, text: &str) -> Option<Sym> {
        if self.slots.is_empty() { None } else { self.probe(text, hash_of(text)).ok() }
    }

    /// The text of a symbol.
    pub fn text(&self, sym: Sym) -> &str {
        &self.buffer[self.range(sym.index())]
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing was interned.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    #[inline]
    fn range(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        start..self.ends[index] as usize
    }

    /// The symbol of a text, or the empty slot for it. Requires an empty slot.
    #[inline]
    fn probe(&self, text: &str, hash: u32) -> Result<Sym, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.position == 0 {
                return Err(at);
            }
            let index = slot.position as usize - 1;
            if slot.hash == hash && self.buffer.as_bytes()[self.range(index)] == *text.as_bytes() {
                return Ok(Sym::new(index));
            }
            at = (at + 1) & mask;
        }
    }

    fn rehash(&mut self, count: usize) {
        let mut slots = vec![Slot::default(); count];
        let mask = slots.len() - 1;
        for slot in self.slots.iter().filter(|slot| slot.position > 0) {
            let mut at = slot.hash as usize & mask;
            while slots[at].position > 0 {
                at = (at + 1) & mask;
            }
            slots[at] = *slot;
        }
        self.slots = slots;
    }
}

fn hash_of(text: &str) -> u32 {
    let hash = FxBuildHasher.hash_one(text);
    // Folds both halves: which of them is well mixed depends on the hasher.
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_one_symbol_and_every_symbol_its_text() {
        let mut names = Interner::default();
        assert_eq!((names.find("a"), names.is_empty()), (None, true));
        let texts: Vec<String> =
            (0..2000).map(|i| if i == 7 { String::new() } else { format!("ä-{i}") }).collect();
        let syms: Vec<Sym> = texts.iter().map(|text| names.intern(text)).collect();
        for (text, sym) in texts.iter().zip(&syms) {
            assert_eq!((names.intern(text), names.find(text)), (*sym, Some(*sym)));
            assert_eq!(names.text(*sym), text);
        }
        assert_eq!((names.len(), names.find("ä-2000")), (2000, None));
    }
}
