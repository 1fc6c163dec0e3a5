//! What every process around a Kubernetes API shares; nothing in here knows what the process is for.
//!
//! [`connect`] and [`api`] reach the server, [`watch`] and [`cache`] keep what is known of it, [`controller`] and
//! [`queue`] bring things to what they should be, [`writer`] and [`event`] write in the background, [`lease`] lets one of
//! several copies work, [`signal`] is what parts of a process wait for, and [`health`], [`http`] and [`log`] say how it goes. [`process::Process`] puts these together.
//! Under a paused tokio runtime all of it runs on virtual time.

pub mod api;
pub mod cache;
pub mod connect;
pub mod controller;
pub mod event;
pub mod health;
pub mod http;
pub mod kind;
pub mod lease;
pub mod limit;
pub mod log;
pub mod process;
pub mod queue;
pub mod signal;
pub mod watch;
pub mod writer;

mod brake;
mod change;
mod denial;

pub use kind::{Key, Kind};
pub use process::Process;
