//! The scheduler process: watch events in, scheduling cycles over one long-lived cluster model, API writes out.
//!
//! [`run`] is the process. Informers, write responses and usage queries push into one event queue. The
//! `scheduler_loop` drains it, plans when the `cycle_trigger` is due, counts its decisions before the API server confirms
//! them (`assumed_bindings`, `pending_annotations`) and submits them as writes (`effect`). With time-based fair share,
//! [`usage`] queries historical usage from Prometheus, or keeps it in a ledger.
//! Not here: how a pod is bound (the binder), and every placement decision (the engine).

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

mod assumed_bindings;
pub mod configuration;
mod cycle_trigger;
mod direct_bindings;
mod effect;
mod event_queue;
mod group_backoff;
mod metrics;
pub mod options;
mod pending_annotations;
pub mod resources;
mod scheduler_loop;
pub mod serve;
mod status_reporter;
mod timers;
pub mod usage;

pub use options::{Binding, Eviction, Options};

use event_queue::{EventQueue, SchedulerEvent};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use scheduler_loop::SchedulerLoop;
use std::sync::Arc;
use std::time::Duration;

/// Timing of the leader election, as in KAI's scheduler.
pub const LEASE_TIMING: kai_runtime::leader_election::Timing = kai_runtime::leader_election::Timing {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(5),
};

/// Runs the scheduler. Returns only when a task of the process has failed; dropping the future stops everything.
pub async fn run(
    mut process: Process,
    mut options: Options,
    plugins: PluginSet,
    mut queries: serve::QueryReceiver,
) {
    process.health.discovering();
    let served = loop {
        match resources::discover(&process.api).await {
            Ok(served) => break served,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "API discovery failed");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    options.settings.device_claims &= served.device_claims.is_some();
    options.settings.numa_zones &= served.numa_zones;
    options.params.device_claims = options.settings.device_claims;
    let events = Arc::new(EventQueue::default());
    let kinds = resources::start_informers(&mut process, &events, served);
    if served != resources::ServedApis::ALL {
        let api = process.api.clone();
        // The end of a task ends the process, which is then started anew.
        process.tasks.spawn(async move { resources::until_more_is_served(&api, served).await });
    }
    let (ledger_name, config_map) = (options.usage_ledger.clone(), options.config_map.clone());
    let has_usage = options.usage.is_some();
    let mut scheduler = SchedulerLoop::new(options, plugins, &process, Arc::clone(&events), kinds);
    scheduler.serve_plugins(queries.handlers.clone());
    if let Some(map) = &config_map {
        configuration::start_watch(&mut process, &events, map);
    }
    if has_usage || config_map.is_some() {
        let (api, clock, events) = (process.api.clone(), process.clock, Arc::clone(&events));
        let (feed, metrics) = (scheduler.usage_feed(), scheduler.metrics.usage_source.clone());
        process.tasks.spawn(async move {
            let publish = |usage| events.push(SchedulerEvent::Usage(usage));
            feed.run(api, ledger_name, clock, &metrics, publish).await;
        });
    }
    let health = process.health.clone();
    loop {
        let deadline = scheduler.next_deadline();
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = process.failed() => return,
            Some(query) = queries.receiver.recv() => serve::answer(&mut scheduler, query),
            () = events.ready() => {}
            () = timer => {}
        }
        let _work = health.begin("a cycle", SchedulerLoop::CYCLE_MAX);
        scheduler.handle(events.drain());
        scheduler.run_due();
    }
}
