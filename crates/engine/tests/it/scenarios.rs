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
    age_decides_between_equals
    anti_affinity_moves_on_to_the_next_domain
    attach_limit_is_respected
    bad_conditions_keep_pods_away
    best_effort_pods_run_on_full_nodes
    binpack_fills_the_fuller_node
    bound_volume_pins_its_pod
    broken_group_is_not_scheduled
    claims_get_devices
    claims_need_a_cluster_that_serves_them
    config_maps_must_exist
    cordoned_node_takes_nothing
    cpu_pods_prefer_cpu_nodes
    csi_capacity_is_counted
    device_class_backs_a_resource
    disabled_parts_of_a_plugin_do_nothing
    elastic_groups_grow_in_turn
    elastic_growth_by_task_priority
    exact_fractions_fill_a_limit
    existing_anti_affinity_is_respected
    extended_resources_are_counted
    foreign_pods_shrink_the_cluster
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
    higher_priority_queue_takes_the_surplus
    host_ports_clash
    immediate_claim_must_be_bound
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
    missing_queue_is_a_verdict
    missing_volume_claim_is_final
    names_like_gpu_are_no_gpus
    namespaces_tell_groups_apart
    node_affinity_matches_labels_and_names
    node_selector_matches_labels
    nominated_node_wins
    non_preemptible_group_stays_within_quota
    numa_ignores_burstable_pods
    numa_prefers_fewer_zones
    numa_restricted_may_span
    numa_single_node_policy
    opening_a_shared_gpu_takes_two_slots
    pod_affinity_follows
    pod_affinity_to_itself_can_begin
    pod_anti_affinity_spreads
    pod_of_unknown_sub_group_stays_out
    pod_slots_run_out
    pool_too_small_is_final
    preemptible_use_does_not_block_quota
    prefer_no_schedule_is_avoided
    preferred_node_affinity_breaks_ties
    preferred_pod_affinity_scores
    priority_decides_within_a_queue
    queue_depth_keeps_the_first
    queues_of_one_age_go_by_name
    quota_comes_before_surplus
    reservation_pods_hold_no_gpu_twice
    rest_of_a_division_stays_with_its_priority
    rest_of_a_division_stays_within_the_request
    roles_separate_cpu_and_gpu
    shared_claim_needs_its_queues_label
    shared_gpus_do_not_attract_cpu_pods
    shares_go_down_three_levels
    spread_fraction_waits_for_a_leaving_gpu
    spread_prefers_the_emptier_node
    stuck_pods_free_nothing
    sub_groups_each_need_their_minimum
    sub_groups_nest
    surplus_follows_weights
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
    unready_member_is_passed_over
    usage_counts_by_k
    usage_lowers_the_share
    volume_zone_is_respected
    waiting_for_a_leaving_pod
    waiting_pods_use_up_idle_gpus
}
