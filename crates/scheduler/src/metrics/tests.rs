//! Names and labels of the metrics are those of KAI, so its dashboards and alerts keep working.

use super::*;
use kai_engine::observer::{Scenarios, SearchResult, Searched};
use kai_units::Span;

/// KAI's metrics and their labels, without those of the Go runtime.
const KAI_METRICS: &[(&str, &[&str])] = &[
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
fn metrics_have_the_names_and_labels_of_kai() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, "kai");
    let one = BTreeMap::from([("default".to_owned(), Span(1_000_000))]);
    let budgets = SearchBudgets { action: one.clone(), generator: one, ..SearchBudgets::default() };
    metrics.set_configuration(&budgets, ["proportion"].into_iter());
    metrics.search.record_search(&Searched {
        action: "preempt",
        result: SearchResult::Solved,
        reduced_budget: false,
        filtered: true,
        action_exhausted: true,
    });
    metrics.search.record_attempt(&TimedAttempt {
        action: "preempt",
        generator: "NodeLocalGreedy".to_owned(),
        result: SearchResult::Solved,
        scenarios: Scenarios::default(),
        seconds: 0.001,
    });
    metrics.action_ms.with_label_values(&["allocate"]).set(1.0);
    metrics.groups_scheduled.with_label_values(&["allocate"]).inc();
    metrics.count_evicted_pod(["g", "n", "u", "p", "reclaim"].map(str::to_owned));
    let report = QueueReport { name: "q".to_owned(), ..QueueReport::default() };
    let outcome = Outcome { queues: vec![report], ..Outcome::default() };
    metrics.set_queues(&outcome, |_| "", |_| [0.0; 3]);

    let labels = |family: &prometheus::proto::MetricFamily| {
        let series = &family.get_metric()[0];
        series.get_label().iter().map(|pair| pair.name().to_owned()).collect::<Vec<_>>()
    };
    let found: BTreeMap<String, Vec<String>> =
        registry.gather().iter().map(|family| (family.name().to_owned(), labels(family))).collect();
    for (name, wanted) in KAI_METRICS {
        let found = found.get(&format!("kai_{name}"));
        assert_eq!(
            found.map(|labels| labels.iter().map(String::as_str).collect()),
            Some(wanted.to_vec()),
            "{name}"
        );
    }
}

#[test]
fn evicted_pods_of_old_groups_are_dropped() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, "kai");
    let labels =
        |at: usize| [format!("g{at}"), "a".to_owned(), String::new(), String::new(), "reclaim".to_owned()];
    for at in 0..EVICTED_MAX + 10 {
        metrics.count_evicted_pod(labels(at));
    }
    let families = registry.gather();
    let evicted = families.iter().find(|f| f.name() == "kai_pod_group_evicted_pods_total").unwrap();
    assert_eq!(evicted.get_metric().len(), EVICTED_MAX);
    metrics.count_evicted_pod(labels(EVICTED_MAX));
    let twice = metrics.evicted_pods.with_label_values(&labels(EVICTED_MAX)).get();
    assert!((twice - 2.0).abs() < f64::EPSILON, "{twice}");
}

#[test]
fn metrics_of_deleted_and_renamed_queues_are_removed() {
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
    metrics.set_queues(&outcome, |_| "", |_| [0.0; 3]);
    assert_eq!(names().len(), 2);
    let outcome = Outcome { queues: vec![report("b")], ..Outcome::default() };
    metrics.set_queues(&outcome, |_| "Team B", |_| [0.0; 3]);
    let shown = names();
    assert!(matches!(&shown[..], [one] if one.contains("Team B")), "{shown:?}");
}
