//! The server does what it is asked, and the answer gets lost.

use crate::faults::Judge;
use crate::world::{Pod, World};
use kai_cli::stack;
use kai_sim::{NodeGroup, Rates};
use std::time::Duration;

/// Whoever hears nothing asks again and is told that the bind request is there already. The watch is late too, so
/// nothing but the server itself can say whose it is; meanwhile its GPU must not be given a second time.
#[tokio::test(start_paused = true)]
async fn a_binding_whose_answer_was_lost_still_counts() {
    for seed in 0..5 {
        let world = World::of(seed, [NodeGroup::gpu_nodes(1, 4)], &stack::Options::simulated()).await;
        world.queue("a", 4).await;
        let judge = Judge::watch(&world);
        let rates = Rates {
            timeout_after: 300_000,
            timeout: Duration::from_secs(1),
            event_late: 1_000_000,
            delay_max: Duration::from_secs(30),
            ..Rates::default()
        };
        world.cluster.faults().set_rates_of(stack::name::SCHEDULER, rates);
        for number in 0..8 {
            world.pod(Pod::new(&format!("p{number}"), "a", 1)).await;
        }
        world.pass(Duration::from_mins(5)).await;
        judge.is_content(seed);
    }
}
