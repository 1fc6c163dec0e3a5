//! The whole system on the embedded cluster, in virtual time: workloads in, pods that run, wait or leave out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod eviction;
mod faults;
mod gang;
mod quick_start;
mod sharing;
mod world;
