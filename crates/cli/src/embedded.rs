//! All components inside one process, as clients of the embedded cluster.

use kai_components::{COMPONENTS, ComponentOptions, SchedulerHandle};
use kai_engine::plugin::PluginSet;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_sim::Cluster;

/// Runs every component of the table as a client of the cluster.
pub fn join(cluster: &mut Cluster, options: &ComponentOptions, plugins: &PluginSet) -> SchedulerHandle {
    let (clock, scheduler) = (cluster.clock(), SchedulerHandle::default());
    for spec in COMPONENTS {
        let (options, plugins, scheduler) = (options.clone(), plugins.clone(), scheduler.clone());
        cluster.run(spec.name, move |client| {
            let process = Process::start(Api::new(client, spec.name), clock, spec.name);
            spec.component.run(process, options.clone(), plugins.clone(), scheduler.clone())
        });
    }
    scheduler
}
