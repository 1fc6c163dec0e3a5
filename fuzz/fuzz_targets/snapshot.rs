//! Snapshot files: any bytes are parsed or refused, and a parsed snapshot survives writing and reading.
#![no_main]

use kai_cache::snapshot::{self, Limits};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    let Ok(first) = snapshot::read("input", Cursor::new(bytes), Limits::default()) else { return };
    let mut written = Vec::new();
    snapshot::write_json(&first, &mut written).expect("memory takes everything");
    let second = snapshot::read("written", Cursor::new(&written), Limits::default());
    let second = second.expect("what we write can be read");
    assert!(first.objects == second.objects, "objects are read back as they were written");
});
