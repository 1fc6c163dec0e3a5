//! Virtual time: cycle after cycle on one cluster, with pods that start, run, finish, are evicted and come back.
//!
//! [`Simulation`] owns a cluster, a policy and a clock of its own. Each step plans a cycle, carries its outcome out
//! the way a binder, a kubelet and a controller would, and jumps to the next moment at which anything can change.
//! [`Report`] says what became of it: shares of queues over time, utilisation, waiting times, evictions, and why
//! groups wait.
//! Invariant: equal input gives an equal report; no clock is read and nothing is drawn at random.
//! Not here: reading files and printing.

mod agenda;
mod gang;
mod history;
mod options;
mod report;
mod script;
mod simulation;
mod usage;
mod world;

pub use history::{QueueSample, Sample};
pub use options::{Options, UsageOptions, Window};
pub use report::{Eviction, GroupResult, QueueResult, Report, Waits};
pub use script::{AfterEviction, PodScript, Script};
pub use simulation::{Progress, Simulation};
