//! A whole cluster in one process: the embedded API server, the controllers people expect, and simulated nodes.
//!
//! Begin at [`Cluster`]. Everything in it is an ordinary `kube` client of the API server and lives on tokio's time:
//! under a paused runtime a day of cluster life takes seconds, and the same seed gives the same history, which
//! [`Journal`] proves by hash. [`Faults`] makes the way between a client and the server as bad as wanted.
//! Not here: scheduling. A pod stays pending until somebody binds it.

pub mod cluster;
pub mod connection;
pub mod controllers;
pub mod event;
pub mod faults;
pub mod journal;
pub mod kubelet;
pub mod node;
pub mod well_known;

pub use cluster::{Builder, Cluster};
pub use connection::Connection;
pub use faults::{Faults, Outage, Rates};
pub use journal::Journal;
pub use node::NodeGroup;
