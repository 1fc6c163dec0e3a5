//! A simulated cluster in one process: the embedded API server, the controllers of kube-controller-manager, and nodes.
//!
//! The entry point is [`Cluster`]. Its parts are ordinary `kube` clients of the API server and use tokio's clock: under a
//! paused runtime a simulated day takes seconds, and the same seed gives the same sequence of requests, which the digest
//! of [`Journal`] shows. [`Faults`] injects faults between a client and the API server.
//! Not here: scheduling. A pod stays pending until a client binds it.

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
pub use faults::{FaultRates, Faults, Outage, Right, Rights};
pub use journal::Journal;
pub use node::NodeGroup;
