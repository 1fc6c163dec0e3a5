//! Many more events than anybody wants: what is kept follows what there is, and not what came and went.

use crate::world::{Pod, World};
use kai_cli::stack;
use kai_runtime::kind::POD;
use kai_sim::NodeGroup;
use serde_json::json;
use std::time::Duration;

/// What a metric of the scheduler says.
fn measured(world: &World, name: &str) -> f64 {
    let registry = world.insight.metrics().pop().expect("the scheduler has begun");
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).expect("there is such a metric");
    let metric = &family.get_metric()[0];
    metric.get_gauge().get_value() + metric.get_counter().get_value()
}

fn requests(world: &World) -> u64 {
    stack::COMPONENTS.iter().map(|component| world.cluster.faults().counts(component.name()).requests).sum()
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn thousands_of_changes_of_one_pod_cost_no_request_and_leave_nothing() {
    let options = stack::Options {
        scheduler: kai_scheduler::Options { traces_max: 200, ..kai_scheduler::Options::default() },
        ..stack::Options::simulated()
    };
    let world = World::of(1, [NodeGroup::gpu_nodes(1, 8)], &options).await;
    world.pod(Pod::new("busy", "default-queue", 1)).await;
    world.runs("busy", 1).await;
    world.pass(Duration::from_mins(1)).await;
    let (asked, kept) = (requests(&world), measured(&world, "kai_kept_names"));
    for number in 0..3_000 {
        let patch = json!({"metadata": {"labels": {"step": number.to_string()}}});
        world.change(&POD, "busy", &patch).await;
    }
    world.pass(Duration::from_secs(20)).await;
    assert!(requests(&world) - asked < 100, "{} requests", requests(&world) - asked);
    let now = measured(&world, "kai_kept_names");
    assert!(now < 2.0 * kept + 250.0, "{now} names, before that {kept}");
    assert!(measured(&world, "kai_audit_differences_total").abs() < f64::EPSILON);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn pods_that_come_and_go_by_the_hundred_leave_nothing() {
    let options = stack::Options {
        scheduler: kai_scheduler::Options { traces_max: 200, ..kai_scheduler::Options::default() },
        ..stack::Options::simulated()
    };
    let world = World::of(1, [NodeGroup::gpu_nodes(4, 8)], &options).await;
    let mut kept = Vec::new();
    for round in 0..16 {
        for number in 0..20 {
            world.pod(Pod::new(&format!("p-{round}-{number}"), "default-queue", 1)).await;
        }
        world.runs(&format!("p-{round}-"), 20).await;
        for number in 0..20 {
            world.delete_pod(&format!("p-{round}-{number}")).await;
        }
        world.pass(Duration::from_secs(40)).await;
        kept.push(measured(&world, "kai_kept_names"));
    }
    let most = kept.iter().copied().fold(0.0, f64::max);
    assert!(most < 1_500.0, "{kept:?} names");
    assert!(kept.windows(2).any(|pair| pair[1] < pair[0]), "what is gone is forgotten: {kept:?} names");
    world.pass(Duration::from_mins(2)).await;
    for kind in [POD, kai_scheduler::resources::BIND_REQUEST, kai_scheduler::resources::POD_GROUP] {
        assert_eq!(world.list(&kind).await.len(), 0, "{}", kind.plural);
    }
}
