//! One test per file in `tests/scenarios`.

use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn run(name: &str) {
    let path = folder().join(name).with_extension("scenario");
    if let Err(error) = kai_testkit::scenario::run_file(&path) {
        panic!("{name}: {error:#}");
    }
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_scenario_file_is_run() {
            let listed = [$(stringify!($name)),*];
            let files = std::fs::read_dir(folder()).unwrap();
            let mut names: Vec<String> = files
                .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            assert_eq!(names, listed, "the list in scenarios.rs is the folder, sorted");
        }
    };
}

scenarios! {
    absurd_gpu_memory_request_fails_only_its_own_group
    attach_limit_is_respected
    best_effort_pods_run_on_full_nodes
    binpack_prefers_the_fuller_node
    bound_volume_restricts_the_nodes_of_its_pod
    cheaper_victims_of_queues_within_quota_are_skipped
    claims_are_allocated_devices
    claims_of_terminating_pods_become_free_without_another_victim
    claims_require_dynamic_resource_allocation
    config_maps_must_exist
    consolidation_does_not_exceed_the_configured_number_of_groups
    consolidation_moves_all_victims_or_none
    consolidation_moves_one_fraction_beside_another
    consolidation_moves_part_of_a_gang
    consolidation_moves_up_to_the_configured_number_of_groups
    consolidation_needs_preemptible_groups
    cordoned_node_is_filtered
    cpu_pods_prefer_cpu_nodes
    csi_capacity_is_counted
    device_class_provides_an_extended_resource
    disabled_parts_of_a_plugin_do_nothing
    disruption_budget_counts_moves
    disruption_budget_is_respected
    elastic_group_moves_only_the_required_pods
    elastic_group_within_quota_is_not_reclaimed
    elastic_groups_grow_alternately
    elastic_growth_by_task_priority
    elastic_victim_keeps_pods_that_fit_on_other_nodes
    ended_group_is_not_placed
    every_sub_group_requires_its_minimum
    evicted_pods_are_not_placed_and_evicted_again
    exact_fractions_fill_a_limit
    exhausted_search_budget_ends_only_its_own_search
    existing_anti_affinity_is_respected
    extended_resources_are_counted
    fair_share_below_every_request_causes_no_evictions
    fair_share_is_divided_over_three_levels
    finishing_gang_is_not_stale
    first_pod_with_affinity_to_itself_is_placed
    fraction_is_pipelined_on_a_partly_releasing_gpu
    fraction_moves_to_another_gpu_of_its_node
    fractions_by_memory
    fractions_of_several_devices
    fractions_pack_by_default
    fractions_share_a_gpu
    fractions_spread_on_request
    fractions_that_exceed_one_gpu_are_not_consolidated
    gang_is_not_bound_until_all_members_fit
    gang_is_not_ready_until_all_members_exist
    gang_is_pipelined_as_a_whole
    gang_spans_nodes
    gated_surplus_pod_does_not_block_the_gang
    gpu_without_reservation_is_not_shared
    group_in_backoff_is_not_placed_and_evicts_nothing
    group_is_pipelined_on_a_releasing_pod
    group_whose_evictions_were_refused_is_placed_on_free_capacity
    group_with_optional_sub_groups_may_preempt
    groups_are_identified_by_namespace_and_name
    higher_priority_queue_gets_the_surplus
    host_port_conflict_is_filtered
    idle_capacity_is_preferred_over_releasing_capacity
    immediate_volume_claim_must_be_bound
    invalid_group_is_not_scheduled
    kai_search_orders_a_queue_by_its_first_pending_group
    leader_pods_are_placed_first
    legacy_mig_is_never_placed
    limit_caps_a_queue
    mig_instances_are_resources
    mig_instances_count_by_their_size
    mig_single_supports_whole_requests_only
    min_runtime_does_not_outlast_the_time_limit
    min_runtime_does_not_protect_surplus_pods
    min_runtime_protects_from_preemption
    min_sub_group_counts_satisfied_members
    min_sub_group_never_binds_part_of_a_member
    min_sub_group_requests_only_the_missing_members
    missing_optional_sub_group_is_not_stale
    missing_queue_is_a_verdict
    missing_volume_claim_makes_the_pod_unschedulable
    most_saturated_queue_is_reclaimed_first
    moved_groups_are_bound_to_their_simulated_nodes
    nested_queue_reclaims_from_a_top_level_queue
    next_domain_is_tried_when_anti_affinity_rejects_the_first
    node_affinity_matches_labels_and_names
    node_selector_matches_labels
    nodes_with_unhealthy_conditions_are_filtered
    nodes_without_topology_labels_are_excluded
    nominated_node_is_preferred
    non_preemptible_group_stays_within_quota
    non_preemptible_groups_are_never_evicted
    numa_ignores_burstable_pods
    numa_prefers_fewer_zones
    numa_restricted_may_span
    numa_single_node_policy
    older_group_comes_first_among_equals
    one_sub_group_below_its_minimum_is_stale
    opening_a_shared_gpu_uses_two_pod_slots
    optional_members_are_requested_one_by_one
    oversized_claim_fails_only_its_own_group
    pending_group_does_not_exceed_its_time_limit
    pipelined_pods_use_idle_gpus
    pod_affinity_is_satisfied
    pod_anti_affinity_spreads
    pod_of_unknown_sub_group_is_unschedulable
    pod_slots_are_counted
    pods_of_other_schedulers_reduce_the_cluster_capacity
    pods_of_unknown_phase_keep_their_capacity
    pods_placed_in_a_cycle_are_not_evicted_in_it
    preemptible_use_does_not_block_quota
    preemption_delay_counts_from_the_last_eviction
    preemption_delay_is_respected
    preemption_evicts_lower_priority_in_the_same_queue
    preemptor_beyond_quota_evicts_no_pods
    prefer_no_schedule_is_avoided
    preferred_node_affinity_breaks_ties
    preferred_pod_affinity_scores
    priority_decides_within_a_queue
    queue_above_its_memory_share_is_reclaimable
    queue_depth_limits_the_attempted_groups
    queue_within_quota_does_not_protect_its_sibling
    queue_within_quota_loses_nothing
    queues_of_equal_age_are_ordered_by_name
    quota_comes_before_surplus
    quota_of_gpu_memory_requests_is_checked_per_node
    reclaim_may_move_groups_of_a_queue_at_quota
    reclaim_may_take_a_queue_below_its_quota
    reclaim_min_runtime_is_resolved_on_the_victims_branch
    reclaim_works_within_and_across_departments
    reclaimed_pods_are_not_reclaimed_back
    reclaimer_stays_within_its_share_of_every_resource
    request_beyond_every_node_is_unschedulable
    reservation_pod_is_not_covered_by_a_label
    reservation_pod_without_consumers_still_holds_its_gpu
    reservation_pods_are_not_counted_twice
    resource_names_ending_in_gpu_are_not_gpus
    rounding_remainder_stays_within_its_priority
    rounding_remainder_stays_within_the_request
    shared_claim_needs_its_queues_label
    shared_gpus_do_not_attract_cpu_pods
    small_group_reclaims_behind_a_large_one
    spread_fraction_is_pipelined_on_a_releasing_gpu
    spread_prefers_the_emptier_node
    stale_gangs_are_evicted_after_their_grace_period
    stuck_pods_are_no_victims
    stuck_pods_do_not_count_as_releasing
    sub_groups_nest
    surplus_follows_weights
    surplus_pods_are_evicted_by_task_priority
    taints_require_tolerations
    time_limit_end_is_not_delayed_by_a_disruption_budget
    time_limit_ends_a_gang_once
    time_limit_is_announced_once
    time_limit_makes_a_group_preemptible
    time_limit_makes_a_group_reclaimable
    time_limit_of_the_nearest_queue_applies
    topology_growth_stays_in_its_domain
    topology_per_sub_group
    topology_preferred_level_falls_back
    topology_required_and_preferred
    topology_required_level_above_one_node
    topology_required_level_holds_all
    topology_spread_is_enforced
    unknown_topology_is_a_verdict
    unlimited_quotas_do_not_reclaim
    unneeded_victims_are_restored
    unready_member_is_skipped
    usage_is_scaled_by_the_k_value
    usage_reduces_the_fair_share
    victims_are_searched_in_one_topology_domain
    victims_in_several_steps_are_evicted_once
    volume_zone_is_respected
    worker_roles_separate_cpu_and_gpu_pods
    zero_limit_rejects_all_requests
}
