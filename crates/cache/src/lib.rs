//! The scheduler's cache: translates Kubernetes objects to engine inputs incrementally, and reads and writes snapshots.
//!
//! [`object`] has the reduced objects, [`translate`] turns one object into one engine input, [`Cache`] re-translates
//! exactly what a change affects, and [`snapshot`] reads and writes whole clusters as files.
//! Not here: API clients, and scheduling decisions.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod cache;
pub mod cel;
pub mod config_file;
pub mod finding;
pub mod object;
pub mod settings;
pub mod snapshot;
pub mod store;
mod thread;
pub mod translate;

pub use cache::Cache;
pub use finding::{Finding, Report, Severity};
pub use object::{Kind, Object, Objects, Stored};
pub use settings::{ImplicitGroups, Settings};
pub use snapshot::{Snapshot, SnapshotError};
pub use store::{Eviction, Store};
