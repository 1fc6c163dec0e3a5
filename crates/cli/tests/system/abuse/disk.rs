//! A full disk under the leases: whoever led stops in time, nobody leads, and somebody does again.

use crate::copies;
use crate::world::Pod;
use kai_cli::stack::{Component, Options};
use kai_sim::{NodeGroup, Outage};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nobody_writes_while_no_lease_can_be_renewed_and_all_resumes() {
    let (world, terms) = copies::world(1, [NodeGroup::gpu_nodes(2, 8)], &Options::simulated()).await;
    world.pod(Pod::new("before", "default-queue", 1)).await;
    world.runs("before", 1).await;
    assert_eq!(terms.load(Ordering::Relaxed), 5, "each component has one leader");
    let faults = world.cluster.faults();
    for (_, names) in copies::COPIES {
        for name in names {
            faults.refuse(name, Outage::full_disk("/leases"));
        }
    }
    // Whoever led may go on for as long as its lease is good.
    world.pass(Duration::from_secs(16)).await;
    world.pod(Pod::new("during", "default-queue", 1)).await;
    let before: u64 = copies_asked(&world);
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.placed("during").await, [], "nobody leads");
    assert_eq!(terms.load(Ordering::Relaxed), 5, "nobody begins to work without a lease");
    let asked = copies_asked(&world) - before;
    // Ten copies look at their lease every two seconds, and try to write to it when it is over.
    assert!(asked < 10 * 2 * 150 + 100, "{asked} requests");
    for (_, names) in copies::COPIES {
        for name in names {
            assert_eq!(faults.counts(name).crashes, 0, "{name}");
            faults.heal(name);
        }
    }
    world.runs("during", 1).await;
    assert_eq!(world.running("before").await, 1);
    assert_eq!(terms.load(Ordering::Relaxed), 10, "each component has one leader again");
    assert!(copies::leader(&world, Component::Scheduler).await.is_some());
}

fn copies_asked(world: &crate::world::World) -> u64 {
    let names = copies::COPIES.iter().flat_map(|(_, names)| names);
    names.map(|name| world.cluster.faults().counts(name).requests).sum()
}
