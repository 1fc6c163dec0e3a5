//! The same scenarios on a real control plane, in real time: every component a process of its own, under its own
//! service account with the rights in `deploy/rbac`, and no right that nothing uses.
//!
//! Each scenario has a node pool with a scheduler of its own, so that many can go on at once.

mod odd;
mod plane;
mod removal;
mod rights;
mod starving;

use crate::world::World;
use crate::{
    binding, budgets, claims, consolidation, eviction, gang, limits, node_loss, patience, quick_start,
    sharing, topology,
};
use futures::{FutureExt as _, StreamExt as _};
use kai_clock::Stopwatch;
use kai_kubetest::real::Programs;
use kai_sim::NodeGroup;
use plane::Plane;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

type Run = for<'a> fn(&'a World<Arc<Plane>>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// How many go on at once: they mostly wait.
const AT_ONCE: usize = 8;

/// A scenario: its name, its nodes, what happens.
struct Scenario {
    name: &'static str,
    nodes: fn() -> NodeGroup,
    run: Run,
}

const fn scenario(name: &'static str, nodes: fn() -> NodeGroup, run: Run) -> Scenario {
    Scenario { name, nodes, run }
}

fn one() -> NodeGroup {
    NodeGroup::gpu_nodes(1, 8)
}

fn two() -> NodeGroup {
    NodeGroup::gpu_nodes(2, 8)
}

/// Those that take longest come first.
const SCENARIOS: [Scenario; 30] = [
    scenario("said-again", one, |world| Box::pin(odd::said_again(world))),
    scenario("node-deleted", two, |world| Box::pin(node_loss::deleted(world))),
    scenario("node-not-ready", two, |world| Box::pin(node_loss::not_ready(world))),
    scenario("binding-set-aside", one, |world| Box::pin(binding::set_aside(world))),
    scenario("binding-counted", one, |world| Box::pin(binding::counted(world))),
    scenario("preempted-in-time", one, |world| Box::pin(patience::preempted_in_time(world))),
    scenario("reclaimed-in-time", one, |world| Box::pin(patience::reclaimed_in_time(world))),
    scenario("staleness", one, |world| Box::pin(patience::staleness(world))),
    scenario("preemption-delay", one, |world| Box::pin(patience::delay(world))),
    scenario("all-or-nothing", two, |world| Box::pin(gang::all_or_nothing(world))),
    scenario("eviction-refused", one, |world| Box::pin(budgets::refused(world))),
    scenario("budget", one, |world| Box::pin(budgets::protected(world))),
    scenario("topology", topology::nodes, |world| Box::pin(topology::one_rack(world))),
    scenario("consolidation", two, |world| Box::pin(consolidation::repacking(world))),
    scenario("limits", one, |world| Box::pin(limits::held(world))),
    scenario("claims", claims::nodes, |world| Box::pin(claims::of_their_own(world))),
    scenario("claim-shared", claims::nodes, |world| Box::pin(claims::shared(world))),
    scenario("one-pod", two, |world| Box::pin(quick_start::one_pod(world))),
    scenario("one-job", one, |world| Box::pin(quick_start::one_job(world))),
    scenario("elastic", one, |world| Box::pin(gang::elastic(world))),
    scenario("reclaim", one, |world| Box::pin(eviction::reclaim(world))),
    scenario("preemption", one, |world| Box::pin(eviction::preemption(world))),
    scenario("halves", one, |world| Box::pin(sharing::halves(world))),
    scenario("owners", one, |world| Box::pin(odd::owners(world))),
    scenario("refusals", one, |world| Box::pin(odd::refusals(world))),
    scenario("volumes", one, |world| Box::pin(odd::volumes(world))),
    scenario("repaired", one, |world| Box::pin(odd::repaired(world))),
    scenario("devices-as-resources", one, |world| Box::pin(odd::devices_as_resources(world))),
    scenario("maps", one, |world| Box::pin(odd::maps(world))),
    scenario(plane::BY_DELETING, one, |world| Box::pin(eviction::preemption(world))),
];

#[test]
fn scenarios_hold_on_a_real_control_plane_with_exactly_the_rights_that_are_granted() {
    // Cargo's folder for files of tests is below that of all builds.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let programs = match Programs::find(target) {
        Ok(programs) => programs,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    // `KAI_REAL_SCENARIOS=limits,claims` runs only these.
    let wanted = std::env::var("KAI_REAL_SCENARIOS").ok();
    let is_wanted = |scenario: &&Scenario| {
        wanted.as_ref().is_none_or(|wanted| wanted.split(',').any(|name| name == scenario.name))
    };
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(is_wanted).collect();
    assert!(!chosen.is_empty(), "`KAI_REAL_SCENARIOS` names no scenario: {wanted:?}");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs).await);
        let places = Semaphore::new(AT_ONCE);
        let all = futures::stream::iter(&chosen).map(|scenario| live(&plane, &places, scenario));
        let mut all = all.buffer_unordered(SCENARIOS.len());
        let mut failed = Vec::new();
        while let Some(lived) = all.next().await {
            let Lived { name, ran_ms, all_ms } = lived;
            match ran_ms {
                Some(ran) => println!("{name}: {:.1} s, {:.1} s with clearing up", ran / 1e3, all_ms / 1e3),
                None => println!("{name}: failed after {:.1} s", all_ms / 1e3),
            }
            failed.extend(ran_ms.is_none().then_some(name));
        }
        assert!(failed.is_empty(), "these scenarios failed: {failed:?}");
        let requests = plane.requests().await;
        if wanted.is_none() {
            rights::check(&requests);
            let removed = removal::each_right_is_needed(&plane, &requests).await;
            println!("{removed} rights were taken away, one by one");
            let said = starving::what_is_denied_is_said(&plane).await;
            println!("{said} rights were said to be missing at a start without any");
        }
    });
}

/// What became of a scenario.
struct Lived {
    name: &'static str,
    /// How long it took; nothing when it failed.
    ran_ms: Option<f64>,
    /// The same with clearing up.
    all_ms: f64,
}

/// Lives through a scenario.
async fn live(plane: &Arc<Plane>, places: &Semaphore, scenario: &Scenario) -> Lived {
    let place = places.acquire().await.unwrap();
    let watch = Stopwatch::start();
    let story = async {
        let world = plane.world(scenario.name, (scenario.nodes)()).await;
        (scenario.run)(&world).await;
        let ran_ms = watch.elapsed_ms();
        drop(place);
        plane.clear(&world).await;
        ran_ms
    };
    // One that fails says so itself, and the others go on.
    let ran_ms = AssertUnwindSafe(story).catch_unwind().await.ok();
    Lived { name: scenario.name, ran_ms, all_ms: watch.elapsed_ms() }
}
