//! Accounts for everything clients in the process asked and were answered, in order: one hash over the whole history.
//!
//! Two runs with the same seed have the same hash. Where they do not, the recorded lines tell the first difference.

use bytes::Bytes;
use kai_clock::Clock;
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError};

/// The history of a run; clones are the same history.
#[derive(Clone, Debug)]
pub struct Journal {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    hash: u64,
    entries: u64,
    lines: Option<Vec<String>>,
}

/// What a journal says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// One hash over everything.
    pub hash: u64,
    /// How much there was.
    pub entries: u64,
}

impl Journal {
    /// An empty history; with `Lines::Kept` its lines can be read.
    pub fn new(clock: Clock, lines: Lines) -> Self {
        let lines = match lines {
            Lines::Kept => Some(Vec::new()),
            Lines::Hashed => None,
        };
        let state = State { hash: 0, entries: 0, lines };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// Adds what a client did or saw.
    pub fn note(&self, client: &str, what: &str, content: &Bytes) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = FxHasher::default();
        // Each entry is hashed together with all before it.
        own.write_u64(state.hash);
        own.write_i64(now.as_microsecond());
        own.write(client.as_bytes());
        own.write(what.as_bytes());
        own.write(content);
        state.hash = own.finish();
        state.entries += 1;
        if let Some(lines) = &mut state.lines {
            lines.push(format!("{now} {client} {what} {}", String::from_utf8_lossy(content).trim_end()));
        }
    }

    /// What the history amounts to so far.
    pub fn digest(&self) -> Digest {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Digest { hash: state.hash, entries: state.entries }
    }

    /// The lines so far, where they are kept.
    pub fn lines(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lines.clone().unwrap_or_default()
    }
}

/// Whether a journal keeps its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// They can be read.
    Kept,
    /// They only count for the hash.
    Hashed,
}
