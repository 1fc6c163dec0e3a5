//! The eyes: Kubernetes objects to the engine's inputs, kept up to date, and snapshot files both ways.
//!
//! [`object`] holds what is kept of each object, [`translate`] turns one object into one engine input, [`Cache`]
//! re-translates exactly what a change touches, and [`snapshot`] reads and writes whole clusters as files.
//! Not here: talking to an API server, and deciding anything.

pub mod cache;
pub mod cel;
pub mod config_file;
pub mod finding;
pub mod object;
pub mod settings;
pub mod snapshot;
pub mod store;
pub mod translate;

pub use cache::Cache;
pub use finding::{Finding, Report, Severity};
pub use object::{Kind, Object, Objects, Stored};
pub use settings::Settings;
pub use snapshot::{Snapshot, SnapshotError};
pub use store::{Eviction, Store};
