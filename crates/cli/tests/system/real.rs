//! The same scenarios on a real control plane, in real time: every component a process of its own, under its own
//! service account with the rights in `deploy/rbac`, and no right that nothing uses.

mod odd;
mod plane;
mod rights;

use crate::world::World;
use crate::{eviction, gang, quick_start, sharing};
use kai_kubetest::real::Programs;
use plane::Plane;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

type Scenario = for<'a> fn(&'a World<Arc<Plane>>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Name, number of nodes, what happens.
const SCENARIOS: [(&str, usize, Scenario); 11] = [
    (plane::WITH_CLAIMS, 1, |world| Box::pin(odd::claims(world))),
    ("one-pod", 2, |world| Box::pin(quick_start::one_pod(world))),
    ("one-job", 1, |world| Box::pin(quick_start::one_job(world))),
    ("all-or-nothing", 2, |world| Box::pin(gang::all_or_nothing(world))),
    ("elastic", 1, |world| Box::pin(gang::elastic(world))),
    ("reclaim", 1, |world| Box::pin(eviction::reclaim(world))),
    ("preemption", 1, |world| Box::pin(eviction::preemption(world))),
    ("halves", 1, |world| Box::pin(sharing::halves(world))),
    ("owners", 1, |world| Box::pin(odd::owners(world))),
    ("refusals", 1, |world| Box::pin(odd::refusals(world))),
    ("volumes", 1, |world| Box::pin(odd::volumes(world))),
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
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let plane = Arc::new(Plane::start(&programs).await);
        for (name, nodes, scenario) in SCENARIOS {
            let world = plane.world(name, nodes).await;
            println!("scenario {name}");
            scenario(&world).await;
            world.cluster.clear(world.namespace()).await;
        }
        let requests = plane.stop().await;
        rights::check(&requests);
    });
}
