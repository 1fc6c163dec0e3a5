//! Dashboards and alerts that were made for KAI find what they look for.

use super::*;
use kai_engine::observer::{Scenarios, SearchResult, Searched};
use kai_units::Span;

/// Names and labels that KAI has, without what comes with its language.
const WANTED: &[(&str, &[&str])] = &[
    ("action_scheduling_latency_milliseconds", &["action"]),
    ("close_session_latency_milliseconds", &[]),
    ("e2e_scheduling_latency_milliseconds", &[]),
    ("open_session_latency_milliseconds", &[]),
    ("plugin_scheduling_latency_milliseconds", &["OnSession", "plugin"]),
    ("pod_group_evicted_pods_total", &["action", "namespace", "nodepool", "podgroup", "uid"]),
    ("podgroups_acted_on_by_action", &["action"]),
    ("podgroups_scheduled_by_action", &["action"]),
    ("queue_cpu_usage", &["queue_display_name", "queue_metadata_name", "queue_name"]),
    ("queue_fair_share_cpu_cores", &["queue_display_name", "queue_metadata_name", "queue_name"]),
    ("queue_fair_share_gpu", &["queue_display_name", "queue_metadata_name", "queue_name"]),
    ("queue_fair_share_memory_gb", &["queue_display_name", "queue_metadata_name", "queue_name"]),
    ("queue_gpu_usage", &["queue_display_name", "queue_metadata_name", "queue_name"]),
    ("queue_memory_usage", &["queue_display_name", "queue_metadata_name", "queue_name"]),
    ("scenario_search_action_budget_configured_seconds", &["action"]),
    ("scenario_search_action_budget_exhausted_total", &["action"]),
    ("scenario_search_duration_seconds", &["action", "generator", "result"]),
    ("scenario_search_generator_budget_configured_seconds", &["generator"]),
    ("scenario_search_job_budget_configured_seconds", &[]),
    ("scenario_search_jobs_total", &["action", "reduced_budget", "result"]),
    ("scenario_search_scenarios_total", &["action", "generator", "state"]),
    ("scenarios_filtered_by_action", &["action"]),
    ("scenarios_simulation_by_action", &["action"]),
    ("task_bind_latency_milliseconds", &[]),
    ("task_scheduling_latency_milliseconds", &[]),
    ("total_preemption_attempts", &[]),
    ("usage_query_latency_milliseconds", &[]),
];

#[test]
fn every_metric_has_the_name_and_the_labels_that_are_known() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, "kai");
    let one = BTreeMap::from([("default".to_owned(), Span(1_000_000))]);
    let budgets = SearchBudgets { action: one.clone(), generator: one, ..SearchBudgets::default() };
    metrics.configured(&budgets, ["proportion"].into_iter());
    metrics.search.searched(&Searched {
        action: "preempt",
        result: SearchResult::Solved,
        reduced_budget: false,
        filtered: true,
        action_exhausted: true,
    });
    metrics.search.attempted(&TimedAttempt {
        action: "preempt",
        generator: "NodeLocalGreedy".to_owned(),
        result: SearchResult::Solved,
        scenarios: Scenarios::default(),
        seconds: 0.001,
    });
    metrics.action_ms.with_label_values(&["allocate"]).set(1.0);
    metrics.groups_scheduled.with_label_values(&["allocate"]).inc();
    metrics.pod_was_evicted(["g", "n", "u", "p", "reclaim"].map(str::to_owned));
    let report = QueueReport { name: "q".to_owned(), ..QueueReport::default() };
    let outcome = Outcome { queues: vec![report], ..Outcome::default() };
    metrics.queues(&outcome, |_| "", |_| [0.0; 3]);

    let labels = |family: &prometheus::proto::MetricFamily| {
        let series = &family.get_metric()[0];
        series.get_label().iter().map(|pair| pair.name().to_owned()).collect::<Vec<_>>()
    };
    let found: BTreeMap<String, Vec<String>> =
        registry.gather().iter().map(|family| (family.name().to_owned(), labels(family))).collect();
    for (name, wanted) in WANTED {
        let found = found.get(&format!("kai_{name}"));
        assert_eq!(
            found.map(|labels| labels.iter().map(String::as_str).collect()),
            Some(wanted.to_vec()),
            "{name}"
        );
    }
}

#[test]
fn groups_that_come_and_go_do_not_pile_up_in_metrics() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, "kai");
    let labels =
        |at: usize| [format!("g{at}"), "a".to_owned(), String::new(), String::new(), "reclaim".to_owned()];
    for at in 0..EVICTED_MAX + 10 {
        metrics.pod_was_evicted(labels(at));
    }
    let families = registry.gather();
    let evicted = families.iter().find(|f| f.name() == "kai_pod_group_evicted_pods_total").unwrap();
    assert_eq!(evicted.get_metric().len(), EVICTED_MAX);
    metrics.pod_was_evicted(labels(EVICTED_MAX));
    let twice = metrics.evicted_pods.with_label_values(&labels(EVICTED_MAX)).get();
    assert!((twice - 2.0).abs() < f64::EPSILON, "{twice}");
}

#[test]
fn a_queue_that_is_gone_or_has_another_name_for_people_is_shown_no_longer_as_it_was() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, "kai");
    let report = |name: &str| QueueReport { name: name.to_owned(), ..QueueReport::default() };
    let names = || {
        let families = registry.gather();
        let shares = families.iter().find(|family| family.name() == "kai_queue_fair_share_gpu");
        let labels = shares.into_iter().flat_map(prometheus::proto::MetricFamily::get_metric);
        let label = |metric: &prometheus::proto::Metric| {
            metric.get_label().iter().map(|label| label.value().to_owned()).collect::<Vec<_>>().join("/")
        };
        labels.map(label).collect::<Vec<_>>()
    };
    let outcome = Outcome { queues: vec![report("a"), report("b")], ..Outcome::default() };
    metrics.queues(&outcome, |_| "", |_| [0.0; 3]);
    assert_eq!(names().len(), 2);
    let outcome = Outcome { queues: vec![report("b")], ..Outcome::default() };
    metrics.queues(&outcome, |_| "Team B", |_| [0.0; 3]);
    let shown = names();
    assert!(matches!(&shown[..], [one] if one.contains("Team B")), "{shown:?}");
}
