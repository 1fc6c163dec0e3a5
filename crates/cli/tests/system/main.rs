//! The whole system on the embedded cluster, in virtual time: workloads in, pods that run, wait or leave out. The same
//! on a real control plane is in `real`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod abuse;
mod binding;
mod budgets;
mod claims;
mod consolidation;
mod copies;
mod eviction;
mod faults;
mod gang;
mod limits;
mod lost_answers;
mod node_loss;
mod patience;
mod pools;
mod quick_start;
mod real;
mod sharing;
mod topology;
mod usage;
mod world;
