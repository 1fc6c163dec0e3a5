//! Evictions that the server confirmed and whose deletion the watch does not deliver.

use super::*;
use crate::effect::evict::{EvictionResult, Victim};
use kai_cache::Eviction;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The loop after the eviction of pod `a/p`, ten minutes in which the server shows the pod as `shown`, and the number of
/// lookups.
async fn after_eviction(shown: Value) -> (SchedulerLoop, usize) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&lookups);
    let body = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": shown}).to_string();
    let server = Router::new().fallback(move |uri: axum::http::Uri| {
        if uri.query() == Some("fieldSelector=metadata.name%3Dp") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        std::future::ready(body.clone())
    });
    let (mut scheduler, _process) = scheduler_with(server);
    scheduler.handle(listed::<Pod>(Kind::Pod, &[running_pod("p", &json!({}))]));
    let pod = Key::new("a", "p");
    let now = scheduler.now();
    scheduler.cache.assume_eviction(pod.clone(), Eviction { uid: "p".to_owned(), since: now });
    let victim = Victim {
        is_implicit: false,
        pod,
        uid: "p".to_owned(),
        group: None,
        gang_size: 1,
        action: "reclaim",
        message: String::new(),
    };
    let result = EvictionResult {
        preemptor: Some(Key::new("a", "preemptor")),
        evicted: vec![victim],
        kept: Vec::new(),
        rejection: None,
        may_evict: Some(true),
    };
    scheduler.handle(vec![SchedulerEvent::EvictionResult(result)]);
    let until = Instant::now() + Duration::from_mins(10);
    while tokio::time::timeout_at(until, scheduler.events.ready()).await.is_ok() {
        let events = scheduler.events.drain();
        scheduler.handle(events);
    }
    (scheduler, lookups.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn eviction_that_the_server_lost_is_not_assumed_for_ever() {
    let (scheduler, lookups) = after_eviction(json!([running_pod("p", &json!({}))])).await;
    assert!(scheduler.cache.store().evictions().is_empty(), "the pod counts as running again");
    assert_eq!(lookups, 1);
    let (now, preemptor) = (scheduler.now(), Key::new("a", "preemptor"));
    let before = |seconds: i64| Timestamp(now.0 - seconds * 1_000_000);
    let is_waiting = |seconds: i64| scheduler.backoff.active(before(seconds)).contains_key(&preemptor);
    assert!((0..600).any(is_waiting), "the preemptor waits before it evicts again");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn eviction_that_the_watch_delivers_late_stays_assumed() {
    let mut ending = running_pod("p", &json!({}));
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut successor = running_pod("p", &json!({}));
    successor["metadata"]["uid"] = json!("another");
    for shown in [json!([ending]), json!([successor]), json!([])] {
        let (scheduler, lookups) = after_eviction(shown.clone()).await;
        assert_eq!(scheduler.cache.store().evictions().len(), 1, "{shown}");
        assert!((9..=10).contains(&lookups), "{lookups} lookups in ten minutes, one in each: {shown}");
    }
}
