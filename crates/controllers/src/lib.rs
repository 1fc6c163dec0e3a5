//! Controllers that maintain the status of pod groups and queues, and the pods that make an autoscaler add nodes.
//!
//! Three components, each with `Options` and a `run` that never returns: [`podgroup`] maintains
//! `status.resourcesStatus` of pod groups, [`queue`] maintains the status and the metrics of queues, [`node_scale`]
//! creates scaling pods.
//! Each consists of a pure function from observed to desired state, tested by tables, and a thin layer that reads and
//! writes. All are level-triggered and may stop between any two writes.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod node_scale;
pub mod podgroup;
pub mod queue;

mod amounts;
