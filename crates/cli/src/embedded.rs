//! All components inside one process, as clients of the embedded cluster.

pub mod admission;

use anyhow::anyhow;
use kai_clock::Clock;
use kai_components::combined::{Components, StartComponent, Started};
use kai_components::supervisor::Restarts;
use kai_components::{COMPONENTS, ComponentOptions, ComponentSpec, MEMBERS, SchedulerHandle, name};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::metrics::components::Registries;
use kai_sim::Cluster;
use std::pin::Pin;
use std::sync::Arc;

/// No client-side rate limit.
const UNLIMITED: (f64, u32) = (-1.0, 0);

/// Runs every component of the table as a client of the cluster. One that ends or panics stays away, so that tests
/// notice it.
pub fn join(cluster: &mut Cluster, options: &ComponentOptions, plugins: &PluginSet) -> SchedulerHandle {
    join_with(cluster, fixed(options), plugins)
}

/// As [`join`]; every start of a component reads the options anew.
pub fn join_with(
    cluster: &mut Cluster,
    options: impl Fn() -> ComponentOptions + Clone + Send + Sync + 'static,
    plugins: &PluginSet,
) -> SchedulerHandle {
    let (clock, scheduler) = (cluster.clock(), SchedulerHandle::default());
    for spec in COMPONENTS {
        let start = starter(spec, clock, options.clone(), plugins, &scheduler);
        cluster.run(spec.name, start);
    }
    scheduler
}

/// As [`join`], but a component that ends or panics is restarted.
pub fn join_supervised(
    cluster: &mut Cluster,
    options: &ComponentOptions,
    plugins: &PluginSet,
    restarts: &Restarts,
) -> SchedulerHandle {
    let (clock, scheduler) = (cluster.clock(), SchedulerHandle::default());
    for spec in COMPONENTS {
        let start = starter(spec, clock, fixed(options), plugins, &scheduler);
        supervise(cluster, spec.name, restarts, start);
    }
    scheduler
}

/// As [`join`], with the components of `kai all` in one process: as one client, on shared watches.
pub fn join_combined(
    cluster: &mut Cluster,
    options: &ComponentOptions,
    plugins: &PluginSet,
) -> SchedulerHandle {
    let (clock, scheduler) = (cluster.clock(), SchedulerHandle::default());
    let is_member = |spec: &&ComponentSpec| MEMBERS.contains(&spec.component);
    for spec in COMPONENTS.iter().filter(|spec| !is_member(spec)) {
        cluster.run(spec.name, starter(spec, clock, fixed(options), plugins, &scheduler));
    }
    let (options, plugins, handle) = (options.clone(), plugins.clone(), scheduler.clone());
    cluster.run(name::COMBINED, move |client| {
        let started = COMPONENTS.iter().filter(is_member).map(|spec| {
            let (options, plugins, scheduler) = (options.clone(), plugins.clone(), handle.clone());
            let start: StartComponent = Arc::new(move |process| {
                spec.component.run(process, options.clone(), plugins.clone(), scheduler.clone())
            });
            let name = spec.name.to_owned();
            Started { name, user_agent: spec.name, limits: UNLIMITED, lease: None, start }
        });
        let process = Process::start(Api::new(client, name::COMBINED), clock, name::COMBINED);
        let components = Components::new(started.collect(), Registries::from(process.metrics.clone()));
        components.run(process)
    });
    scheduler
}

fn supervise(
    cluster: &mut Cluster,
    name: &'static str,
    restarts: &Restarts,
    start: impl Fn(kube::Client) -> Running + Clone + Send + Sync + 'static,
) {
    let restarts = restarts.clone();
    cluster.run(name, move |client| {
        let (restarts, start) = (restarts.clone(), start.clone());
        async move {
            let run = || {
                let running = start(client.clone());
                async {
                    running.await;
                    Err(anyhow!("one of its tasks ended"))
                }
            };
            restarts.supervise(name, run).await;
        }
    });
}

fn fixed(options: &ComponentOptions) -> impl Fn() -> ComponentOptions + Clone + Send + Sync + 'static {
    let options = options.clone();
    move || options.clone()
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

fn starter(
    spec: &'static ComponentSpec,
    clock: Clock,
    options: impl Fn() -> ComponentOptions + Clone + Send + Sync + 'static,
    plugins: &PluginSet,
    scheduler: &SchedulerHandle,
) -> impl Fn(kube::Client) -> Running + Clone + Send + Sync + 'static {
    let (plugins, scheduler) = (plugins.clone(), scheduler.clone());
    move |client| {
        let process = Process::start(Api::new(client, spec.name), clock, spec.name);
        spec.component.run(process, options(), plugins.clone(), scheduler.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn component_of_kai_up_that_panics_runs_again_and_is_reported() {
        let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
        let mut cluster = Cluster::builder().starting_at(epoch).start().await.expect("it starts");
        let (restarts, runs) = (Restarts::default(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&runs);
        supervise(&mut cluster, "binder", &restarts, move |_client| {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                assert!(run > 0, "a defect");
                std::future::pending::<()>().await;
            })
        });
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert_eq!(restarts.take(), ["binder panicked: a defect; it is restarted in 1 s"]);
    }
}
