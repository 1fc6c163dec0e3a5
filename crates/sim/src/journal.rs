//! Records the requests, responses and watch events of all clients in order, as one hash.
//!
//! Two runs with the same seed have the same hash. Where they do not, the recorded lines show the first difference.

use bytes::Bytes;
use kai_clock::Clock;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::sync::Arc;

/// The journal of a run; clones share it.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Hash over all entries, in order.
    pub hash: u64,
    pub entries: u64,
}

impl Journal {
    pub fn new(clock: Clock, lines: Lines) -> Self {
        let lines = match lines {
            Lines::Kept => Some(Vec::new()),
            Lines::Hashed => None,
        };
        let state = State { hash: 0, entries: 0, lines };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    pub fn note(&self, client: &str, what: &str, content: &Bytes) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut own = FxHasher::default();
        // Chained: the hash of an entry includes all previous ones.
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

    pub fn digest(&self) -> Digest {
        let state = self.state.lock();
        Digest { hash: state.hash, entries: state.entries }
    }

    /// Empty unless lines are kept.
    pub fn lines(&self) -> Vec<String> {
        self.state.lock().lines.clone().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    Kept,
    /// Only the hash is kept.
    Hashed,
}
