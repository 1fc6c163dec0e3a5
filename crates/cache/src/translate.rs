//! Translates one object to one engine input: every rule about the meaning of a field.
//!
//! Functions here are pure and total: an invalid field is reported as a finding and gets the safest interpretation.

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
pub mod time_limit;
