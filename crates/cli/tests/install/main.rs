//! Installations by real helm on a real control plane.

mod bad_times;
mod cluster;
mod footprint;
mod real_node;
