//! Plans a cluster with changes that have not been made, and searches the smallest changes that run a pending group.
//!
//! [`Model`] applies [`Change`]s to the objects of a cluster, plans a cycle and takes them back. [`hints::find`] proves every
//! hint that way: a change is reported only if a plan with it places the group.
//! Not here: clients, and where the objects come from.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::string_slice, clippy::expect_used))]

mod change;
pub mod hints;
mod model;
mod sentence;

pub use change::{Bound, Change, Edit};
pub use hints::{Hint, Hints, Never};
pub use model::{Model, Undo};
pub use sentence::sentence;
