//! View models of a cluster: queues, pod groups, nodes, verdicts and explanations, as plain serialisable structs.
//!
//! [`reader::ClusterReader`] reads through the API everything that the scheduler reads, plans one cycle on it and keeps
//! both as a [`ClusterView`]. [`queues`], [`groups`], [`nodes`] and [`why`] derive a view model each, [`overview`] the first three together; [`usage`] reads the usage
//! ledger; [`what_if`] compares with changes that have not been made; [`verdicts`] and
//! [`evictions`] do so from the outcome of a cycle alone. Nothing is written to the cluster, and nothing is printed.

pub mod amounts;
pub mod evictions;
pub mod groups;
pub mod hints;
pub mod nodes;
pub mod overview;
pub mod queues;
pub mod reader;
pub mod usage;
pub mod verdicts;
pub mod what_if;
pub mod why;
pub mod workload;

mod findings;
mod missing_queue;
mod names;
mod natural_order;
mod suggestions;

pub use findings::FindingView;
pub use names::Names;
pub use natural_order::natural_order;
pub use reader::{ClusterReader, ClusterView};
