//! What changes when a cluster moves over from KAI.
//!
//! [`check()`] reads values of KAI's chart, the settings of an installation and the objects of a cluster, and returns what
//! is not supported, what differs, and what else to know, each with what to do. It is pure: the caller reads files and
//! clusters. [`rules`] has the predicates and the texts of `docs/differences.md`, which the replay of KAI's recorded
//! answers uses, too.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod check;
mod finding;
mod installed;
mod objects;
pub mod rules;
mod schema;

pub use check::{Input, check};
pub use finding::{Finding, Level};
