//! Hints for the conditions of groups.

use super::*;

/// A queue with a limit of GPUs, and a group `g` beyond it.
fn group_beyond_a_limit(condition_hints: bool, limit: i64) -> (SchedulerLoop, Process) {
    let accept = async move |body: String| (axum::http::StatusCode::CREATED, body);
    let (mut scheduler, process) = scheduler_with(Router::new().fallback(accept));
    scheduler.options.condition_hints = condition_hints;
    let node = json!({
        "metadata": {"name": "n"},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let group = json!({"metadata": {"name": "g", "namespace": "a"}, "spec": {"queue": "q", "minMember": 1}});
    let amounts = json!({"nvidia.com/gpu": "3"});
    let pod = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "p", "annotations": {"pod-group-name": "g"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"phase": "Pending"},
    });
    for kind in Kind::ALL {
        scheduler.handle(vec![SchedulerEvent::Watch(*kind, WatchEvent::Listed(Vec::new(), 1))]);
    }
    scheduler.handle(listed::<Node>(Kind::Node, &[node]));
    scheduler.handle(listed::<Queue>(Kind::Queue, &[queue(limit)]));
    scheduler.handle(listed::<PodGroup>(Kind::PodGroup, &[group]));
    scheduler.handle(listed::<Pod>(Kind::Pod, &[pod]));
    (scheduler, process)
}

fn queue(limit: i64) -> Value {
    let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let gpu = json!({"quota": 2, "limit": limit, "overQuotaWeight": 1});
    json!({"metadata": {"name": "q"}, "spec": {"resources": {"gpu": gpu, "cpu": open, "memory": open}}})
}

/// Runs the loop as its task does. Returns how often it woke up.
async fn run_for(scheduler: &mut SchedulerLoop, time: Duration) -> usize {
    let until = Instant::now() + time;
    let mut rounds = 0;
    while Instant::now() < until && rounds < 1_000 {
        let next = scheduler.next_deadline().unwrap_or(until).min(until);
        let _ = tokio::time::timeout_at(next, scheduler.events.ready()).await;
        let events = scheduler.events.drain();
        scheduler.handle(events);
        scheduler.run_due();
        rounds += 1;
    }
    rounds
}

fn hint(scheduler: &SchedulerLoop) -> Option<String> {
    scheduler.reporter.pending.get(&Key::new("a", "g")).and_then(|status| status.hint.clone())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn hint_is_reported_after_a_while_and_runs_the_group_when_it_is_followed() {
    let (mut scheduler, _process) = group_beyond_a_limit(true, 2);
    run_for(&mut scheduler, Duration::from_secs(5)).await;
    assert_eq!(hint(&scheduler), None, "most groups do not wait that long");
    run_for(&mut scheduler, Duration::from_secs(10)).await;
    assert_eq!(hint(&scheduler).as_deref(), Some("set the GPU limit of queue `q` to 3 (now 2)"));
    let rounds = run_for(&mut scheduler, Duration::from_mins(10)).await;
    assert!(rounds < 50, "an unchanged cluster is not searched again: {rounds} rounds in ten minutes");
    scheduler.handle(applied::<Queue>(Kind::Queue, queue(3)));
    run_for(&mut scheduler, Duration::from_secs(5)).await;
    assert!(scheduler.reporter.pending.is_empty(), "the group is placed: {:?}", scheduler.verdicts);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn hint_is_dropped_and_searched_again_when_the_reason_changes() {
    let (mut scheduler, _process) = group_beyond_a_limit(true, 2);
    run_for(&mut scheduler, Duration::from_secs(15)).await;
    assert!(hint(&scheduler).is_some());
    scheduler.handle(applied::<Queue>(Kind::Queue, queue(1)));
    run_for(&mut scheduler, Duration::from_secs(5)).await;
    assert_eq!(hint(&scheduler), None, "the numbers of the hint are outdated");
    run_for(&mut scheduler, Duration::from_mins(2)).await;
    assert_eq!(hint(&scheduler).as_deref(), Some("set the GPU limit of queue `q` to 3 (now 1)"));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn no_hints_are_searched_by_default() {
    let (mut scheduler, _process) = group_beyond_a_limit(false, 2);
    run_for(&mut scheduler, Duration::from_mins(5)).await;
    assert_eq!(hint(&scheduler), None);
}
