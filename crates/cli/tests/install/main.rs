//! Installations by real helm on a real control plane.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails where it is wrong, and prints its times"
)]

mod bad_times;
mod cluster;
mod footprint;
mod move_from_kai;
mod real_node;
