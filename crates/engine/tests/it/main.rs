//! Tests of the public engine API: scenario files, and properties on random clusters.

mod audit;
mod bounds;
mod configuration;
mod eviction_messages;
mod evictions;
mod group_messages;
mod group_panic;
mod large_inputs;
mod missed_evictions;
mod plugin_callbacks;
mod properties;
mod random_clusters;
mod scenarios;
mod victim_plugins;
