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
    absurd_claim_harms_only_itself
    age_decides_between_equals
    anti_affinity_moves_on_to_the_next_domain
    attach_limit_is_respected
    bad_conditions_keep_pods_away
    best_effort_pods_run_on_full_nodes
    beyond_its_share_of_memory_is_reclaimable
    binpack_fills_the_fuller_node
    bound_volume_pins_its_pod
    broken_group_is_not_scheduled
    cheaper_victims_that_may_not_be_lost_are_passed_over
    claims_get_devices
    claims_need_a_cluster_that_serves_them
    config_maps_must_exist
    consolidation_moves_all_or_nobody
    consolidation_moves_as_many_groups_as_it_may
    consolidation_moves_no_more_groups_than_it_may
    consolidation_moves_part_of_a_gang
    consolidation_needs_preemptible_groups
    cordoned_node_takes_nothing
    cpu_pods_prefer_cpu_nodes
    csi_capacity_is_counted
    device_class_backs_a_resource
    disabled_parts_of_a_plugin_do_nothing
    disruption_budget_counts_moves
    disruption_budget_is_kept
    elastic_group_moves_as_many_pods_as_it_must
    elastic_group_within_quota_is_left_alone
    elastic_groups_grow_in_turn
    elastic_growth_by_task_priority
    elastic_victim_keeps_what_fits_elsewhere
    evicted_pods_are_not_admitted_and_evicted_again
    exact_fractions_fill_a_limit
    existing_anti_affinity_is_respected
    extended_resources_are_counted
    finishing_gang_is_not_stale
    foreign_pods_shrink_the_cluster
    fraction_moves_to_another_gpu_of_its_node
    fraction_waits_beside_a_leaving_one
    fractions_by_memory
    fractions_of_several_devices
    fractions_pack_by_default
    fractions_share_a_gpu
    fractions_spread_on_request
    free_room_beats_waiting
    gang_is_whole_or_absent
    gang_spans_nodes
    gang_waits_for_its_last_member
    gang_waits_together
    gates_hold_surplus_pods_back
    group_with_optional_sub_groups_may_preempt
    halves_of_two_gpus_come_together
    higher_priority_queue_takes_the_surplus
    host_ports_clash
    immediate_claim_must_be_bound
    kai_search_lets_the_first_group_speak_for_its_queue
    large_parts_of_two_gpus_cannot_come_together
    leaders_go_first
    legacy_mig_is_never_placed
    limit_caps_a_queue
    limit_zero_lets_nothing_run
    lost_pods_keep_their_room
    memory_request_gate_is_per_node
    mig_instances_are_resources
    mig_single_takes_whole_requests_only
    mig_slices_cost_their_size
    min_sub_group_asks_for_what_is_missing
    min_sub_group_counts_satisfied_members
    min_sub_group_never_binds_part_of_a_member
    minimum_run_time_before_reclaim_is_that_of_the_victims_side
    minimum_run_time_leaves_surplus_unprotected
    minimum_run_time_protects
    missing_optional_sub_group_is_not_stale
    missing_queue_is_a_verdict
    missing_volume_claim_is_final
    modest_queue_does_not_shield_its_sibling
    moved_groups_get_the_places_found_for_them
    names_like_gpu_are_no_gpus
    namespaces_tell_groups_apart
    nested_queue_reclaims_from_a_queue_at_the_top
    node_affinity_matches_labels_and_names
    node_selector_matches_labels
    nominated_node_wins
    non_preemptible_group_stays_within_quota
    non_preemptible_groups_are_never_taken
    numa_ignores_burstable_pods
    numa_prefers_fewer_zones
    numa_restricted_may_span
    numa_single_node_policy
    one_sub_group_below_its_minimum_is_stale
    only_the_whole_gpu_is_given_up
    opening_a_shared_gpu_takes_two_slots
    optional_members_are_asked_for_one_by_one
    pod_affinity_follows
    pod_affinity_to_itself_can_begin
    pod_anti_affinity_spreads
    pod_of_unknown_sub_group_stays_out
    pod_slots_run_out
    pool_too_small_is_final
    preemptible_use_does_not_block_quota
    preemption_delay_counts_from_the_last_eviction
    preemption_delay_is_waited_for
    preemption_goes_down_within_its_queue
    preemptor_beyond_quota_evicts_nobody
    prefer_no_schedule_is_avoided
    preferred_node_affinity_breaks_ties
    preferred_pod_affinity_scores
    priority_decides_within_a_queue
    queue_depth_keeps_the_first
    queue_within_quota_keeps_all
    queues_do_not_take_from_each_other_for_ever
    queues_of_one_age_go_by_name
    quota_comes_before_surplus
    reclaim_may_end_below_quota
    reclaim_may_move_what_is_at_quota
    reclaim_takes_inside_and_outside_its_department
    reclaimer_stays_within_every_share
    reservation_left_alone_still_holds_its_gpu
    reservation_pods_hold_no_gpu_twice
    rest_of_a_division_stays_with_its_priority
    rest_of_a_division_stays_within_the_request
    roles_separate_cpu_and_gpu
    search_that_gives_up_ends_only_itself
    share_below_every_request_starts_no_chase
    shared_claim_needs_its_queues_label
    shared_gpus_do_not_attract_cpu_pods
    shares_go_down_three_levels
    small_group_reclaims_behind_a_large_one
    spread_fraction_waits_for_a_leaving_gpu
    spread_prefers_the_emptier_node
    stale_gangs_are_evicted_after_their_grace
    stuck_pods_are_no_victims
    stuck_pods_free_nothing
    sub_groups_each_need_their_minimum
    sub_groups_nest
    surplus_follows_weights
    surplus_pods_go_by_task_priority
    taints_need_tolerations
    topology_growth_stays_in_its_domain
    topology_nodes_without_labels_stay_out
    topology_per_sub_group
    topology_preferred_level_falls_back
    topology_required_and_preferred
    topology_required_level_above_one_node
    topology_required_level_holds_all
    topology_spread_is_enforced
    unknown_topology_is_a_verdict
    unlimited_quotas_do_not_reclaim
    unready_member_is_passed_over
    usage_counts_by_k
    usage_lowers_the_share
    victims_are_looked_for_in_one_domain
    victims_in_several_steps_are_evicted_once
    volume_zone_is_respected
    waiting_for_a_leaving_pod
    waiting_pods_use_up_idle_gpus
    what_was_placed_stays_for_the_cycle
    worst_share_is_taken_first
}
