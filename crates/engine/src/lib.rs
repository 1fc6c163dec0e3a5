//! The brain: a cluster in, decisions out.
//!
//! Pure and deterministic: no clock, no randomness, no I/O, no iteration over hash maps. Nothing here knows
//! Kubernetes; whoever does builds [`input`] values and hands them over as [`Delta`]s.

pub mod class;
pub mod delta;
pub mod dra;
pub mod ids;
pub mod input;
pub mod intern;
pub mod numa;
pub mod outcome;
pub mod policy;
pub mod ports;
pub mod resource;
pub mod share;
pub mod terms;
pub mod verdict;

pub use delta::Delta;
pub use outcome::{Cycle, Decision, Outcome};
