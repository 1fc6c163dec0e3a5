//! The engine from outside: scenario files, and laws that hold on random clusters.

mod audit;
mod bounds;
mod eviction_messages;
mod evictions;
mod laws;
mod quarantine;
mod refusals;
mod scenarios;
mod victim_plugins;
mod worlds;
