//! The law of hints: every hint, applied to a cluster that is built anew, runs the group; and a search leaves no trace.
//!
//! `KAI_HINT_SEEDS=0..5000` selects other random clusters than the fixed ones.

use crate::random_objects;
use kai_cache::snapshot::{self, Limits};
use kai_cache::{Objects, Settings, Store};
use kai_engine::plugin::PluginSet;
use kai_engine::{ClusterState, Config, Cycle, Outcome, Params, Policy};
use kai_units::Timestamp;
use kai_whatif::hints::{self, Goal};
use kai_whatif::{Change, Model};
use std::io::{Cursor, Read as _};
use std::path::Path;

const PLANS_MAX: u32 = 400;
/// The first of January 2027, after everything in the clusters.
const CYCLE: Cycle = Cycle { now: Timestamp(1_798_761_600_000_000), seed: 1 };

#[derive(Default)]
struct Counts {
    clusters: usize,
    pending: usize,
    with_hints: usize,
    never: usize,
    hints: usize,
    plans: u32,
}

/// Plans changes on a cluster that is built for them alone.
fn plan_anew(
    settings: &Settings,
    objects: &Objects,
    policy: &Policy,
    changes: &[Change],
) -> (ClusterState, Outcome) {
    let (mut store, mut cluster) = (Store::of(settings.clone(), objects.clone()), ClusterState::new());
    let mut model = Model { store: &mut store, cluster: &mut cluster, policy, cycle: CYCLE };
    model.plan();
    model.apply(changes);
    let changed = model.store.objects().clone();
    let (mut store, mut cluster) = (Store::of(settings.clone(), changed), ClusterState::new());
    let outcome = Model { store: &mut store, cluster: &mut cluster, policy, cycle: CYCLE }.plan();
    (cluster, outcome)
}

fn check(what: &str, settings: &Settings, objects: &Objects, policy: &Policy, counts: &mut Counts) {
    let (mut store, mut cluster) = (Store::of(settings.clone(), objects.clone()), ClusterState::new());
    let mut model = Model { store: &mut store, cluster: &mut cluster, policy, cycle: CYCLE };
    let base = model.plan();
    counts.clusters += 1;
    for verdict in &base.verdicts {
        let group = &verdict.group;
        let Some(goal) = Goal::new(model.cluster, group).filter(|goal| !goal.is_reached(&base)) else {
            continue;
        };
        counts.pending += 1;
        let found = hints::find(&mut model, &base, group, PLANS_MAX);
        counts.plans += found.plans;
        counts.never += usize::from(found.never.is_some());
        counts.with_hints += usize::from(!found.hints.is_empty());
        for hint in &found.hints {
            counts.hints += 1;
            let (_, outcome) = plan_anew(settings, objects, policy, &hint.changes);
            assert!(goal.is_reached(&outcome), "{what}: {group} does not run with {:?}", hint.changes);
        }
        assert_eq!(model.plan().hash, base.hash, "{what}: the search for {group} left a trace");
    }
    assert_eq!(model.store.objects(), objects, "{what}: objects were not restored");
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("KAI_HINT_SEEDS") else { return 0..25 };
    let (from, to) = text.split_once("..").expect("a range such as 0..100");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn every_hint_runs_its_group_on_random_clusters() {
    let policy = Policy::resolve(&Config::default(), &Params::default(), &PluginSet::builtin());
    let mut counts = Counts::default();
    let seeds = seeds();
    for seed in seeds.clone() {
        let objects = random_objects::cluster(seed);
        check(
            &format!("KAI_HINT_SEEDS={seed}..{}", seed + 1),
            &Settings::default(),
            &objects,
            &policy,
            &mut counts,
        );
    }
    report(&counts);
    let Counts { pending, with_hints, never, hints, .. } = counts;
    assert!(
        seeds.end - seeds.start < 25
            || (pending > 40 && with_hints * 2 > pending && never > 0 && hints > pending / 2),
        "the clusters have pending groups that can be helped"
    );
}

#[test]
fn every_hint_runs_its_group_on_vendored_clusters() {
    let archive = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/random.zip"));
    let mut members = zip::ZipArchive::new(std::fs::File::open(archive).unwrap()).unwrap();
    let is_snapshot = |name: &&str| {
        Path::new(name).extension().is_some_and(|extension| extension == "json" || extension == "zip")
    };
    let mut names: Vec<String> = members.file_names().filter(is_snapshot).map(str::to_owned).collect();
    names.sort();
    let mut counts = Counts::default();
    let some = if std::env::var_os("KAI_HINT_SEEDS").is_some() { names.len() } else { 3 };
    for name in names.into_iter().take(some) {
        let mut bytes = Vec::new();
        members.by_name(&name).unwrap().read_to_end(&mut bytes).unwrap();
        let snapshot = snapshot::read(&name, Cursor::new(&bytes), Limits::default()).unwrap();
        let policy =
            Policy::resolve(&snapshot.config.engine, &snapshot.engine_params(), &PluginSet::builtin());
        check(&name, &snapshot.settings(), &snapshot.objects, &policy, &mut counts);
    }
    report(&counts);
    assert!(counts.hints > 0, "the clusters have pending groups that can be helped");
}

fn report(counts: &Counts) {
    let Counts { clusters, pending, with_hints, never, hints, plans } = counts;
    eprintln!(
        "{clusters} clusters, {pending} pending groups, {with_hints} with hints, {never} that never fit, {hints} hints, {plans} plans"
    );
}
