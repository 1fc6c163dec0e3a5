//! Strings, stored once and compared as numbers.

use crate::ids::{IndexVec, Sym};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The strings of one cluster. Symbols carry no order: compare texts where an order matters.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    texts: IndexVec<Sym, Arc<str>>,
    by_text: FxHashMap<Arc<str>, Sym>,
}

impl Interner {
    /// The symbol of a text, new if need be.
    pub fn intern(&mut self, text: &str) -> Sym {
        if let Some(&sym) = self.by_text.get(text) {
            return sym;
        }
        let text: Arc<str> = text.into();
        let sym = self.texts.push(Arc::clone(&text));
        self.by_text.insert(text, sym);
        sym
    }

    /// The symbol of a text that has been seen before.
    pub fn find(&self, text: &str) -> Option<Sym> {
        self.by_text.get(text).copied()
    }

    /// The text of a symbol.
    pub fn text(&self, sym: Sym) -> &str {
        &self.texts[sym]
    }

    /// How many distinct strings there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether nothing was interned.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}
