//! Units and quantities: what Kubernetes writes as text, as exact integers.
//!
//! Nothing here knows pods, nodes or queues. Every parser is total: bad text gives an error that names it.

pub mod time;

pub use time::{Span, Timestamp};
