//! End-to-end tests: all components on the embedded API server and simulated nodes, in virtual time.
//!
//! `real_control_plane` runs the same scenarios on kube-apiserver, etcd and kube-controller-manager.

#![expect(clippy::unwrap_used, reason = "a panic shows where a test failed")]

mod admission;
mod autoscaling;
mod bind_failures;
mod combined;
mod condition_hints;
mod consolidation;
mod direct_binding;
mod disruption_budgets;
mod documents;
mod eviction;
mod fault_injection;
mod gang_scheduling;
mod gpu_sharing;
mod high_availability;
mod historical_usage;
mod hostile_tenants;
mod implicit_groups;
mod kai_roles;
mod kai_suites;
mod late_conditions;
mod lost_responses;
mod metadata_watches;
mod migration;
mod node_failure;
mod node_pools;
mod numa;
mod older_resource_api;
mod plugins;
mod queue_limits;
mod quick_start;
mod real_control_plane;
mod resource_claims;
mod robustness;
mod shard_changes;
mod shard_rollout;
mod test_cluster;
mod time_based_transitions;
mod time_limits;
mod topology;
mod topology_switch;
mod what_if;
mod workload_kinds;
mod write_budget;
