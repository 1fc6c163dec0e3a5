//! Who comes first: queues, groups, members of a group, pods.
//!
//! Each order is a list of comparators in plugin order; the first that decides wins, then a built-in fallback.

pub mod evict;
pub mod groups;
pub mod heap;
pub mod listing;
pub mod member;
pub mod pods;
pub mod queue_heap;
pub mod tree_walk;
