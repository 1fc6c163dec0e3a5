//! Hashes an outcome; equal inputs give equal hashes on every machine.

use crate::outcome::Outcome;
use std::hash::{Hash, Hasher};

/// Hashes decisions, verdicts and shares.
pub(super) fn hash(outcome: &Outcome) -> u64 {
    fnv(|hasher| {
        outcome.decisions.hash(hasher);
        outcome.verdicts.hash(hasher);
        outcome.queues.hash(hasher);
        outcome.total.hash(hasher);
        outcome.carry_over.hash(hasher);
        outcome.started.hash(hasher);
        outcome.staleness.hash(hasher);
        // Without limits nothing is hashed: their existence changes no other hash.
        if !outcome.time_limits.is_empty() {
            outcome.time_limits.hash(hasher);
        }
    })
}

/// Hashes what the closure feeds to the hasher; platform-independent.
pub(crate) fn fnv(feed: impl FnOnce(&mut Fnv)) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    feed(&mut hasher);
    hasher.finish()
}

/// FNV-1a; integers are fed in little-endian order.
pub(crate) struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }
    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }
    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }
    fn write_usize(&mut self, value: usize) {
        self.write(&(value as u64).to_le_bytes());
    }
    fn write_isize(&mut self, value: isize) {
        self.write(&(value as i64).to_le_bytes());
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
