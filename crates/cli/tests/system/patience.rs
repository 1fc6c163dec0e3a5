//! What the mere passing of time allows: no event comes, and yet somebody has to leave.

use crate::world::World;
use kai_api::well_known::annotation::{LAST_EVICTION, LAST_START, STALE_SINCE};
use kai_object as object;
use kai_scheduler::resources::POD_GROUP;
use kai_units::{Span, Timestamp};
use serde_json::json;
use std::time::Duration;

/// How much later than allowed something may happen, on a busy machine.
const LATE: Span = Span::from_secs(8);
/// How long groups run before they may be evicted.
const MINIMUM: Span = Span::from_secs(12);

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gang_below_its_minimum_leaves_after_its_grace() {
    staleness(&World::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_gang_that_names_no_grace_has_a_minute() {
    let world = World::new(1).await;
    world.queue("a", 8).await;
    world.gang("gang", "a", 4, 1, json!({})).await;
    world.runs("gang", 4).await;
    world.delete_pod("gang-0").await;
    world.pass(Duration::from_secs(50)).await;
    assert_eq!(world.running("gang").await, 3, "it has a minute");
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.running("gang").await, 0, "{}", world.story().await);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nobody_is_preempted_before_the_minimum_run_time() {
    preempted_in_time(&World::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nothing_is_reclaimed_before_the_minimum_run_time() {
    reclaimed_in_time(&World::new(1).await).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_group_evicts_nobody_before_its_preemption_delay() {
    delay(&World::new(1).await).await;
}

/// On one node of eight GPUs.
pub(crate) async fn staleness<B>(world: &World<B>) {
    world.queue("a", 8).await;
    world.gang("gang", "a", 4, 1, json!({"stalenessGracePeriod": "8s"})).await;
    world.runs("gang", 4).await;
    world.delete_pod("gang-0").await;
    let since = time_of(world, "gang", STALE_SINCE).await;
    assert_eq!(world.running("gang").await, 3, "it has some time");
    world.runs("gang", 0).await;
    let evicted = time_of(world, "gang", LAST_EVICTION).await;
    came_in_time(since, Span::from_secs(8), evicted);
}

/// On one node of eight GPUs.
pub(crate) async fn preempted_in_time<B>(world: &World<B>) {
    let gpus = json!({"quota": 8, "limit": -1, "overQuotaWeight": 1});
    world.queue_below(Some("teams"), "a", &gpus, json!({"preemptMinRuntime": "12s"})).await;
    low(world).await;
    world.gang("high", "a", 1, 8, json!({"priorityClassName": "build"})).await;
    gives_way_in_time(world).await;
}

/// On one node of eight GPUs.
pub(crate) async fn reclaimed_in_time<B>(world: &World<B>) {
    let gpus = json!({"quota": 4, "limit": -1, "overQuotaWeight": 1});
    world.queue_below(Some("teams"), "a", &gpus, json!({"reclaimMinRuntime": "12s"})).await;
    world.queue("b", 4).await;
    low(world).await;
    world.gang("high", "b", 1, 4, json!({"priorityClassName": "train"})).await;
    gives_way_in_time(world).await;
}

/// A gang that has its places; its time begins.
async fn low<B>(world: &World<B>) {
    world.gang("low", "a", 8, 1, json!({"priorityClassName": "train"})).await;
    world.comes("all pods of `low` have a node", async || world.placed("low").await.len() == 8).await;
}

async fn gives_way_in_time<B>(world: &World<B>) {
    world.runs("high", 1).await;
    let asked = created(world, "high").await;
    let started = time_of(world, "low", LAST_START).await;
    let evicted = time_of(world, "low", LAST_EVICTION).await;
    assert!((evicted - asked).0 > Span::from_secs(2).0, "nobody had to wait: {asked}, {evicted}");
    came_in_time(started, MINIMUM, evicted);
}

async fn created<B>(world: &World<B>, group: &str) -> Timestamp {
    let group = world.get(&POD_GROUP, group).await.unwrap();
    object::str_at(&group, "/metadata/creationTimestamp").parse().unwrap()
}

/// On one node of eight GPUs.
pub(crate) async fn delay<B>(world: &World<B>) {
    world.queue("a", 8).await;
    low(world).await;
    let spec = json!({"priorityClassName": "build", "preemptionDelay": "8s"});
    world.gang("high", "a", 1, 8, spec).await;
    world.says("high", "preemption delay window").await;
    assert_eq!(world.placed("low").await.len(), 8);
    world.runs("high", 1).await;
    let asked = created(world, "high").await;
    came_in_time(asked, Span::from_secs(8), time_of(world, "low", LAST_EVICTION).await);
}

/// Waits for the time in an annotation of a group.
async fn time_of<B>(world: &World<B>, group: &str, annotation: &str) -> Timestamp {
    let what = format!("group `{group}` has `{annotation}`");
    world.comes(&what, async || world.time_of(group, annotation).await.is_some()).await;
    world.time_of(group, annotation).await.unwrap()
}

/// Times are written in whole seconds.
fn came_in_time(from: Timestamp, wait: Span, at: Timestamp) {
    let passed = at - from;
    assert!(wait.0 <= passed.0, "{at} is too soon after {from}");
    assert!(passed.0 <= wait.0 + LATE.0, "{at} is too late after {from}");
}
