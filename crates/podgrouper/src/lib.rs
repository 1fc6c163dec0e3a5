//! Pod grouper: creates the `PodGroup` of every pod and assigns the pod to it.
//!
//! For a pod, [`owner_chain`] resolves the owners, the rule of the topmost owner's kind ([`table`]) computes the desired
//! group, starting from what all kinds share ([`workload`]), and [`apply`] computes the writes: one for the group, one for
//! the pod. A further kind is a module in `kind` and a line in [`table::TABLE`]; a user's binary adds kinds with [`own`]. The rules are pure: what they read besides
//! pod and owners they declare, and [`plan`] fetches it: from the API server for the [`controller`], or offline.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod apply;
pub mod cluster;
pub mod controller;
pub mod defaults;
pub mod error;
pub mod expand;
pub mod objects;
pub mod offline;
pub mod options;
pub mod own;
pub mod owner_chain;
pub mod plan;
pub mod reader;
pub mod table;
pub mod workload;

mod fields;
mod implicit;
mod informer_view;
mod keyed_locks;
mod kind;
mod pool;
mod stored_group;
mod stored_pod;

pub use controller::run;
pub use error::{Error, Invalid};
pub use options::{Options, parse_selector};
pub use own::{OwnKind, OwnRule, OwnRules};

#[cfg(test)]
mod tests;
