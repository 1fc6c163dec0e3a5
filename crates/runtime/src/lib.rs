//! What every process around a Kubernetes API shares; nothing in here knows what the process is for.

pub mod api;
pub mod cache;
pub mod controller;
pub mod kind;
pub mod queue;

mod change;

pub use kind::{Key, Kind};
