//! Units and quantities: what Kubernetes writes as text, as exact integers.
//!
//! Nothing here knows pods, nodes or queues. Every parser is total: bad text gives an error that names it.

pub mod duration;
pub mod quantity;
pub mod rfc3339;
pub mod time;

pub use duration::DurationError;
pub use quantity::{Quantity, QuantityError};
pub use rfc3339::TimestampError;
pub use time::{Span, Timestamp};
