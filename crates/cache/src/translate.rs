//! One object in, one engine input out: every rule about what a field means.
//!
//! Functions here are pure. They never fail: what cannot be read is reported and given the meaning that harms least.

pub mod affinity;
pub mod amount;
pub mod device;
pub mod gpu;
pub mod group;
pub mod node;
pub mod numa;
pub mod pod;
pub mod queue;
pub mod request;
pub mod selector;
pub mod spec;
pub mod storage;
