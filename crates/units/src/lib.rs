//! Quantities, durations and timestamps of Kubernetes as exact integers, and object keys.
//!
//! Independent of all API types. Every parser is total: malformed text gives an error that contains it.

// Objects come from everyone who may write to the API server: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod duration;
pub mod key;
pub mod quantity;
pub mod rfc3339;
pub mod time;

pub use duration::DurationError;
pub use key::Key;
pub use quantity::{Quantity, QuantityError};
pub use rfc3339::TimestampError;
pub use time::{Span, Timestamp};
