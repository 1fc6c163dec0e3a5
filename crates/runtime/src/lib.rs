//! Shared runtime of all components around the Kubernetes API; independent of KAI.
//!
//! [`connect`], [`api`] and [`discovery`] reach the server; [`watch`] and [`informer`] keep stores of its objects; [`controller`] and
//! [`work_queue`] reconcile; [`writer`] and [`event`] write in the background; [`leader_election`] activates one of several
//! replicas; [`watch_value`] is the deterministic notification primitive; [`health`], [`degradation`], [`http`], [`metrics`] and
//! [`log`] expose the state of a process. [`process::Process`] combines these.
//! Under a paused tokio runtime all of it runs on virtual time.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod api;
pub mod backoff;
pub mod connect;
pub mod controller;
pub mod degradation;
pub mod discovery;
pub mod event;
pub mod health;
pub mod http;
pub mod informer;
pub mod invalid;
pub mod kind;
pub mod leader_election;
pub mod log;
pub mod metrics;
pub mod process;
pub mod rate_limit;
pub mod url;
pub mod watch;
pub mod watch_value;
pub mod work_queue;
pub mod writer;

mod circuit_breaker;
mod denial;
mod merge_patch;

pub use kind::{ApiObject, Key, ResourceKind, key_of, key_of_typed};
pub use process::Process;
