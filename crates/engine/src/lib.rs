//! The brain: a cluster in, decisions out.
//!
//! Pure and deterministic: no clock, no randomness, no I/O, no iteration over hash maps. Nothing here knows
//! Kubernetes; whoever does builds [`input`] values.

pub mod input;
