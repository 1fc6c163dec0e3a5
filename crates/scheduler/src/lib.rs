//! The scheduler: watch events in, cycles over one long-lived cluster, decisions out as API writes.
//!
//! [`run`] is the process. The server's news become changes in one inbox; the `heart` takes them in, plans when the
//! `rhythm` says so, counts what was decided at once (`flight`, `marks`) and hands the writes on (`effect`). Where past
//! use counts, [`usage`] reads it from its database beside all that.
//! Not here: how a pod is bound, which is the binder's work, and every decision, which is the engine's.

mod aside;
mod effect;
mod flight;
mod heart;
mod inbox;
mod marks;
mod metrics;
pub mod options;
pub mod resources;
mod rhythm;
pub mod serve;
mod timers;
mod told;
pub mod usage;

pub use options::{Eviction, Options};

use heart::Heart;
use inbox::Inbox;
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// What the scheduler's leases are timed by.
pub const LEASE_TIMING: kai_runtime::leader_election::Timing = kai_runtime::leader_election::Timing {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(5),
};

/// Schedules. Returns only when something that must not end has ended; when it is dropped, everything stops.
pub async fn run(
    mut process: Process,
    mut options: Options,
    plugins: PluginSet,
    mut queries: mpsc::Receiver<serve::Query>,
) {
    let offered = loop {
        match resources::offered(&process.api).await {
            Ok(offered) => break offered,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot ask what the server offers");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    options.settings.device_claims &= offered.device_claims;
    options.settings.numa_zones &= offered.numa_zones;
    options.params.device_claims = options.settings.device_claims;
    let inbox = Arc::new(Inbox::default());
    let kinds = resources::follow(&mut process, &inbox, offered);
    let usage = options.usage.clone();
    let mut heart = Heart::new(options, &plugins, &process, Arc::clone(&inbox), kinds);
    if let Some(source) = usage {
        let (clock, measures, inbox) =
            (process.clock, heart.metrics.usage_source.clone(), Arc::clone(&inbox));
        process.tasks.spawn(async move {
            source.follow(clock, &measures, |usage| inbox.put(inbox::Change::Usage(usage))).await;
        });
    }
    let health = process.health.clone();
    loop {
        let wake = heart.next();
        let alarm = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = process.failed() => return,
            Some(query) = queries.recv() => serve::answer(&mut heart, query),
            () = inbox.filled() => {}
            () = alarm => {}
        }
        let _work = health.begin("a cycle", Heart::CYCLE_MAX);
        heart.take(inbox.take());
        heart.beat();
    }
}
