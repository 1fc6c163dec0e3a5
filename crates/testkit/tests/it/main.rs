//! Replays of recordings of KAI, and unexpected objects.

mod anonymised_snapshots;
mod hostile_objects;
mod implicit_groups;
mod random_clusters;
mod recorded_calls;
