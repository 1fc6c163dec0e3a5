//! Objects: any objects become a cluster, and a cycle on it yields an outcome without a violated invariant.
#![no_main]

use kai_cache::snapshot::{self, Limits};
use kai_cache::{Settings, Store};
use kai_engine::plugin::PluginSet;
use kai_engine::{ClusterState, Config, Cycle, Params, Policy, audit, plan};
use kai_units::Timestamp;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

/// The first of July 2026.
const NOW: Timestamp = Timestamp(1_782_864_000_000_000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(objects) = snapshot::read_objects("input", Cursor::new(bytes), Limits::default()) else { return };
    let mut store = Store::of(Settings::default(), objects);
    let mut cluster = ClusterState::new();
    store.drain(|delta| cluster.apply(delta));
    let _ = store.findings();
    let policy = Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin());
    let cycle = Cycle { now: NOW, seed: 7 };
    let outcome = plan(&mut cluster, &policy, cycle);
    assert_eq!(audit::audit(&cluster, &policy, &outcome), [], "no invariant is violated");
    assert_eq!(plan(&mut cluster, &policy, cycle).hash, outcome.hash, "a cycle leaves no trace");
});
