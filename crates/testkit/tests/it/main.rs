//! Replays of recordings of KAI.

mod random_clusters;
mod recorded_calls;
