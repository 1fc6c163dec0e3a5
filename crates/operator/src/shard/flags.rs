//! Further command line options of a shard's scheduler.

use kai_api::SchedulingShard;

/// Flags of the scheduler that `spec.args` may set, sorted.
pub(crate) const SCHEDULER_FLAGS: &[&str] = &[
    "allow-consolidating-reclaim",
    "burst",
    "condition-hints",
    "cpu-worker-node-label-key",
    "default-staleness-grace-period",
    "detailed-fit-errors",
    "direct-binding",
    "enable-profiler",
    "full-hierarchy-fairness",
    "gpu-worker-node-label-key",
    "implicit-groups",
    "leader-elect",
    "listen-address",
    "log-json",
    "max-consolidation-preemptees",
    "metrics-namespace",
    "mig-worker-node-label-key",
    "namespace",
    "nodepool-label-key",
    "num-of-status-recording-workers",
    "partition-label-value",
    "plugin-server-port",
    "profiler-port",
    "pyroscope-address",
    "pyroscope-block-profiler-rate",
    "pyroscope-mutex-profiler-rate",
    "qps",
    "queue-label-key",
    "resource-reservation-app-label",
    "restrict-node-scheduling",
    "schedule-csi-storage",
    "schedule-period",
    "scheduler-conf",
    "scheduler-name",
    "stuck-in-releasing-threshold",
    "update-pod-eviction-condition",
    "use-scheduling-signatures",
    "v",
    "version",
];

/// Names under which guides document a flag, and the flag.
const DOCUMENTED: &[(&str, &str)] =
    &[("max-number-consolidation-preemptees", "max-consolidation-preemptees")];

/// The arguments, in the order of their names, and a notice for each that the scheduler does not have.
pub(super) fn of(shard: &SchedulingShard) -> (Vec<String>, Vec<String>) {
    let mut args = Vec::new();
    let mut notices = Vec::new();
    for (name, value) in shard.spec.args.iter().flatten() {
        if SCHEDULER_FLAGS.contains(&name.as_str()) {
            args.push(format!("--{name}={value}"));
            continue;
        }
        let meant = DOCUMENTED.iter().find(|(documented, _)| documented == name);
        let hint = meant.map_or_else(
            || "see `kai scheduler --help`".to_owned(),
            |(_, flag)| format!("the flag is called `{flag}`"),
        );
        notices.push(format!("spec.args: the scheduler has no flag `{name}`, it is ignored; hint: {hint}"));
    }
    (args, notices)
}
