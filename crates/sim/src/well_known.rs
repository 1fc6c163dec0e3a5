//! Annotations that control simulated nodes and pods, and annotations that simulated nodes write.

/// On a pod: run time of the containers, such as `90s`, `5m` or `1h30m`; until deletion without it.
pub const RUN_FOR: &str = "sim.kai.scheduler/run-for";
/// On a pod: exit code of the containers; `0` without it. A list such as `1,1,0` applies to consecutive runs, its last
/// entry to all further ones.
pub const EXIT_CODE: &str = "sim.kai.scheduler/exit-code";
/// On a pod: time from the bind to running.
pub const START_DELAY: &str = "sim.kai.scheduler/start-delay";
/// On a pod: time that the containers take to stop; limited by the grace period.
pub const STOP_DELAY: &str = "sim.kai.scheduler/stop-delay";
/// On a pod, written by the node: the uuids of its allocated GPUs, such as `GPU-node-1-0,GPU-node-1-3`. The same
/// uuids are in `status.containerStatuses[].allocatedResourcesStatus`.
pub const GPU_DEVICES: &str = "sim.kai.scheduler/gpu-devices";
/// On a node: failure mode, one of `unreachable` (no heartbeats, pods keep running), `down` (no heartbeats, containers
/// are dead) and `not-ready` (reports `Ready=False`).
pub const FAILURE: &str = "sim.kai.scheduler/failure";
/// On a node: `true` for simulated nodes.
pub const SIMULATED: &str = "sim.kai.scheduler/node";
