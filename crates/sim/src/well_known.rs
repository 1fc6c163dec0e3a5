//! The annotations with which users steer simulated nodes and pods, and those that simulated nodes write.

/// On a pod: how long its containers run, such as `90s`, `5m` or `1h30m`; without it they run until deleted.
pub const RUN_FOR: &str = "sim.kai.scheduler/run-for";
/// On a pod: with what code its containers exit, `0` if absent. A list such as `1,1,0` is for one run after another;
/// the last counts for all further ones.
pub const EXIT_CODE: &str = "sim.kai.scheduler/exit-code";
/// On a pod: how long it takes from being bound to running.
pub const START_DELAY: &str = "sim.kai.scheduler/start-delay";
/// On a pod: how long its containers take to stop when it is deleted; its grace period is the limit.
pub const STOP_DELAY: &str = "sim.kai.scheduler/stop-delay";
/// On a pod, written by the node: the uuids of the GPUs it was given, such as `GPU-node-1-0,GPU-node-1-3`. The same
/// uuids are in `status.containerStatuses[].allocatedResourcesStatus`.
pub const GPU_DEVICES: &str = "sim.kai.scheduler/gpu-devices";
/// On a node: how it fails, one of `unreachable` (nothing is heard of it, its pods run on), `down` (its containers
/// die too) and `not-ready` (it says itself that it is not ready). Without it the node works.
pub const FAILURE: &str = "sim.kai.scheduler/failure";
/// On a node: marks it as simulated; the value is `true`.
pub const SIMULATED: &str = "sim.kai.scheduler/node";
