//! Simulates scheduling cycles over virtual time, with pods that start, run, complete, are evicted and are recreated.
//!
//! [`Simulation`] owns a cluster, a policy and a virtual clock. Each step plans a cycle, applies its outcome as a binder, a
//! kubelet and a controller would, and advances to the next time at which anything can change. [`Report`] has the results:
//! allocation of queues over time, utilisation, waiting times, evictions, and the verdicts of pending groups.
//! Invariant: equal input gives an equal report; no clock is read and nothing is drawn at random.
//! Not here: reading files and printing.

mod event_queue;
mod gang;
mod history;
mod options;
mod report;
mod script;
mod simulated_cluster;
mod simulation;
mod usage;

pub use history::{QueueSample, Sample};
pub use options::{Options, UsageOptions, Window};
pub use report::{Eviction, GroupResult, QueueResult, Report, Waits};
pub use script::{AfterEviction, PodScript, Script};
pub use simulation::{Progress, Simulation};
