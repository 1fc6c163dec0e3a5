//! Compiled regular expressions of schemas, shared by all servers of the process.
//!
//! Compiling the patterns of the installed definitions costs more than everything else that a short simulation does.

use parking_lot::Mutex;
use regex::Regex;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// Patterns that are kept. Clients may define any number of them.
const KEPT_MAX: usize = 1_000;

static KEPT: LazyLock<Mutex<FxHashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// The compiled pattern.
pub(super) fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    if let Some(known) = KEPT.lock().get(pattern) {
        return Ok(known.clone());
    }
    let regex = Regex::new(pattern)?;
    let mut kept = KEPT.lock();
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}
