//! Scheduling engine: turns a cluster model into an outcome of bindings, evictions and verdicts.
//!
//! Pure and deterministic: no clock, no randomness, no I/O, no iteration in hash order. The engine has no Kubernetes
//! types; callers translate objects to [`input`] values and apply them as [`Delta`]s.
#![warn(missing_docs)] // plugins outside the workspace use this API

mod actions;
pub mod audit;
pub mod carry_over;
pub mod class;
pub mod cluster;
pub mod cycle;
pub mod delta;
pub mod disruption;
pub mod dra;
pub mod explain;
pub mod ids;
pub mod input;
pub mod intern;
pub mod node_set;
pub mod numa;
pub mod observer;
pub mod order;
pub mod outcome;
pub mod place;
pub mod plan;
pub mod plugin;
pub mod policy;
pub mod ports;
pub mod resource;
mod search;
pub mod share;
pub mod signature;
pub mod state;
pub mod storage;
pub mod terms;
#[cfg(test)]
mod test_cluster;
pub mod time_limit;
pub mod topology;
pub mod verdict;

pub use carry_over::CarryOver;
pub use cluster::Cluster;
pub use cycle::{Focus, Focused, Others, plan, plan_focused, plan_observed, refresh};
pub use delta::Delta;
pub use observer::{Observer, Unobserved};
pub use outcome::{Cycle, Decision, Outcome};
pub use policy::{Config, Params, Policy};
pub use state::ClusterState;
