//! A server that answers 429 or 500 for minutes: it is asked little, nothing crashes, and everything resumes.

use crate::world::{Pod, World};
use kai_cli::stack::{self, COMPONENTS};
use kai_sim::Outage;
use std::time::Duration;

const LONG: Duration = Duration::from_mins(5);
/// The most that a component asks a server in trouble, in that time: a request each two and a half seconds.
const ASKED_MAX: u64 = 120;

/// Lets components meet an outage while work comes in; says what each asked meanwhile.
async fn live_through(world: &World, names: &[&'static str], outage: &Outage) -> Vec<(&'static str, u64)> {
    let faults = world.cluster.faults();
    let asked = |name: &&'static str| (*name, faults.counts(name).requests);
    // A server that comes to be in trouble drops its watches first.
    for name in names {
        faults.partition(name);
    }
    world.pass(Duration::from_millis(1)).await;
    for name in names {
        faults.heal(name);
        faults.refuse(name, outage.clone());
    }
    let before: Vec<(&str, u64)> = names.iter().map(asked).collect();
    for number in 0..24 {
        world.pod(Pod::new(&format!("pod-{number}"), "default-queue", 1)).await;
        world.pass(LONG / 24).await;
    }
    let after = names.iter().map(asked);
    let asked = after.zip(before).map(|((name, after), (_, before))| (name, after - before)).collect();
    for name in names {
        assert_eq!(faults.counts(name).crashes, 0, "{name}");
        faults.heal(name);
    }
    asked
}

async fn everything_is_refused(outage: Outage) {
    let world = World::new(4).await;
    world.pod(Pod::new("first", "default-queue", 1)).await;
    world.runs("first", 1).await;
    let names: Vec<&str> = COMPONENTS.iter().map(|component| component.name()).collect();
    let asked = live_through(&world, &names, &outage).await;
    assert_eq!(world.placed("pod-").await, [], "nobody could do anything");
    for (name, requests) in asked {
        assert!((1..ASKED_MAX).contains(&requests), "{name} asked {requests} times");
    }
    let healed = tokio::time::Instant::now();
    world.runs("pod-", 24).await;
    assert!(healed.elapsed() < Duration::from_mins(1), "it resumes soon: {:?}", healed.elapsed());
    assert_eq!(world.running("first").await, 1);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_is_asked_too_much_is_asked_little_and_all_resumes() {
    everything_is_refused(Outage::of_everything(429).retry_after(5)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_fails_is_asked_little_and_all_resumes() {
    everything_is_refused(Outage::of_everything(500)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_is_away_is_asked_little_and_all_resumes() {
    everything_is_refused(Outage::of_everything(503)).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_component_that_alone_is_refused_resumes_alone() {
    for component in COMPONENTS {
        let world = World::new(4).await;
        let asked = live_through(&world, &[component.name()], &Outage::of_everything(500)).await;
        assert!((1..ASKED_MAX).contains(&asked[0].1), "{asked:?}");
        world.runs("pod-", 24).await;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn writes_that_fail_for_minutes_are_made_up_for() {
    let world = World::new(4).await;
    let faults = world.cluster.faults();
    // The scheduler sees everything, and can write nothing.
    faults.refuse(stack::name::SCHEDULER, Outage::full_disk(""));
    let before = faults.counts(stack::name::SCHEDULER).requests;
    for number in 0..24 {
        world.pod(Pod::new(&format!("pod-{number}"), "default-queue", 1)).await;
    }
    world.pass(LONG).await;
    let asked = faults.counts(stack::name::SCHEDULER).requests - before;
    assert!(asked < 2 * ASKED_MAX, "{asked} requests for 24 pods");
    faults.heal(stack::name::SCHEDULER);
    world.runs("pod-", 24).await;
}
