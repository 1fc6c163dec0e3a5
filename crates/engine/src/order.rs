//! Orders queues, groups, members of a group and pods.
//!
//! Each order is a list of comparators in plugin order; the first difference decides, then a built-in fallback.

pub mod evict;
pub mod groups;
pub mod heap;
pub mod listing;
pub mod member;
pub mod pods;
pub mod queue_heap;
pub mod tree_walk;
