//! The ledger on virtual time, and against the exact sums.

use super::*;
use serde_json::{Value, json};

const HOUR: i64 = 3_600;

fn at(seconds: i64) -> Timestamp {
    Timestamp(1_769_860_800_000_000 + seconds * 1_000_000)
}

fn ledger(params: &Value) -> Ledger {
    let config = Config::parse(&json!({"usageParams": params}), |_| None).unwrap();
    let mut ledger = Ledger::new(&config);
    assert_eq!(ledger.load([]), [""; 0]);
    ledger
}

fn observe(ledger: &mut Ledger, now: i64, gpus: &[(&str, f64)]) {
    observe_with(ledger, now, gpus, 8.0, None);
}

fn observe_with(ledger: &mut Ledger, now: i64, gpus: &[(&str, f64)], capacity: f64, half_life: Option<i64>) {
    let allocations = gpus.iter().map(|(queue, gpus)| Allocation {
        queue,
        half_life: half_life.map(Span::from_secs),
        amounts: [0.0, 0.0, *gpus],
    });
    let exists = |name: &str| gpus.iter().any(|(queue, _)| *queue == name);
    ledger.observe(at(now), [0.0, 0.0, capacity], allocations, exists);
}

fn gpu_share(usage: &Usage, queue: &str) -> f64 {
    usage.get(queue).map_or(0.0, |share| share[2])
}

#[test]
fn usage_is_allocation_over_capacity() {
    let mut ledger = ledger(&json!({}));
    observe(&mut ledger, 0, &[("a", 4.0), ("b", 0.0)]);
    observe(&mut ledger, HOUR, &[("a", 0.0), ("b", 2.0)]);
    let usage = ledger.usage(at(2 * HOUR));
    assert_eq!((gpu_share(&usage, "a"), gpu_share(&usage, "b")), (0.25, 0.125));
}

#[test]
fn capacity_that_changes_weighs_as_long_as_it_was_there() {
    let mut ledger = ledger(&json!({}));
    observe_with(&mut ledger, 0, &[("a", 4.0)], 4.0, None);
    observe_with(&mut ledger, HOUR, &[("a", 4.0)], 12.0, None);
    let share = gpu_share(&ledger.usage(at(2 * HOUR)), "a");
    assert!((share - 0.5).abs() < 1e-9, "{share}");
}

#[test]
fn queue_has_its_own_half_life() {
    let mut ledger = ledger(&json!({"halfLifePeriod": "24h"}));
    observe_with(&mut ledger, 0, &[("a", 8.0)], 8.0, Some(HOUR));
    observe_with(&mut ledger, HOUR, &[("a", 0.0)], 8.0, Some(HOUR));
    // One half-life of full usage is followed by one without usage: (1/2 - 1/4) of (1 - 1/4).
    let share = gpu_share(&ledger.usage(at(2 * HOUR)), "a");
    assert!((share - 1.0 / 3.0).abs() < 1e-6, "{share}");
}

#[test]
fn tumbling_window_begins_without_usage() {
    let params = json!({
        "windowType": "tumbling", "windowSize": "1d", "tumblingWindowStartTime": "2026-01-31T12:00:00Z",
    });
    let mut ledger = ledger(&params);
    observe(&mut ledger, HOUR, &[("a", 8.0)]);
    observe(&mut ledger, 23 * HOUR, &[("a", 4.0)]);
    assert!(gpu_share(&ledger.usage(at(24 * HOUR)), "a") > 0.9, "on the boundary the previous window counts");
    let share = gpu_share(&ledger.usage(at(25 * HOUR)), "a");
    assert!((share - 0.5).abs() < 1e-9, "{share}");
}

#[test]
fn cron_window_begins_without_usage() {
    // At midnight; the ledger begins at noon.
    let mut ledger = ledger(&json!({"windowType": "cron", "cronString": "0 0 * * *"}));
    observe(&mut ledger, HOUR, &[("a", 8.0)]);
    assert!(gpu_share(&ledger.usage(at(11 * HOUR)), "a") > 0.9);
    observe(&mut ledger, 12 * HOUR + 60, &[("a", 4.0)]);
    let share = gpu_share(&ledger.usage(at(14 * HOUR)), "a");
    assert!((share - 0.5).abs() < 0.01, "only the part since midnight counts: {share}");
    observe(&mut ledger, 20 * HOUR, &[("a", 0.0)]);
    let share = gpu_share(&ledger.usage(at(36 * HOUR - 1)), "a");
    assert!((share - 0.5 * 8.0 / 24.0).abs() < 0.01, "eight of the 24 hours: {share}");
}

#[test]
fn cpu_and_memory_are_kept_beside_gpus_and_survive_saving() {
    const GIB: f64 = (1_u64 << 30) as f64;
    let mut ledger = ledger(&json!({"halfLifePeriod": "6h"}));
    let observe = |ledger: &mut Ledger, now: i64, amounts: Amounts| {
        let allocations = std::iter::once(Allocation { queue: "a", half_life: None, amounts });
        ledger.observe(at(now), [64.0, 512.0 * GIB, 8.0], allocations, |_| true);
    };
    observe(&mut ledger, 0, [16.0, 256.0 * GIB, 2.0]);
    observe(&mut ledger, HOUR, [16.0, 256.0 * GIB, 2.0]);
    let close = |usage: &Usage, expected: [f64; 3]| {
        let found = usage["a"];
        assert!(
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-3),
            "{found:?}"
        );
    };
    close(&ledger.usage(at(2 * HOUR)), [0.25, 0.5, 0.25]);
    let records = ledger.take_unsaved().into_iter().filter_map(|(name, text)| Some((name, text?)));
    let config = Config::parse(&json!({"usageParams": {"halfLifePeriod": "6h"}}), |_| None).unwrap();
    let mut loaded = Ledger::new(&config);
    assert_eq!(loaded.load(records), [""; 0]);
    // The CPUs alone are given back.
    observe(&mut loaded, 2 * HOUR, [0.0, 256.0 * GIB, 2.0]);
    let usage = loaded.usage(at(8 * HOUR));
    let [cpu, memory, gpu] = usage["a"];
    assert!(cpu < 0.2 && cpu > 0.0, "{cpu}");
    assert!((memory - 0.5).abs() < 1e-3 && (gpu - 0.25).abs() < 1e-3, "{memory} {gpu}");
}

#[test]
fn unchanged_allocations_need_no_save() {
    let mut ledger = ledger(&json!({}));
    observe(&mut ledger, 0, &[("a", 4.0)]);
    assert_eq!(ledger.take_unsaved().into_keys().collect::<Vec<_>>(), ["_capacity.0", "a"]);
    for minute in 1..100 {
        observe(&mut ledger, minute * 60, &[("a", 4.0)]);
        ledger.usage(at(minute * 60));
    }
    assert!(ledger.take_unsaved().is_empty());
    observe(&mut ledger, 2 * HOUR, &[]);
    assert_eq!(ledger.take_unsaved(), BTreeMap::from([("a".to_owned(), None)]), "the queue was deleted");
}

#[test]
fn queue_whose_usage_is_out_of_the_window_is_forgotten() {
    let mut ledger = ledger(&json!({"windowSize": "1h"}));
    observe(&mut ledger, 0, &[("a", 4.0)]);
    observe(&mut ledger, 60, &[("a", 0.0)]);
    ledger.take_unsaved();
    assert!(ledger.usage(at(30 * 60)).contains_key("a"));
    assert!(ledger.usage(at(3 * HOUR)).is_empty());
    assert_eq!(ledger.take_unsaved(), BTreeMap::from([("a".to_owned(), None)]));
}

#[test]
fn loaded_ledger_continues_with_the_saved_allocations() {
    let params = json!({"halfLifePeriod": "6h"});
    let mut first = ledger(&params);
    observe(&mut first, 0, &[("a", 8.0), ("b", 1.0)]);
    observe(&mut first, HOUR, &[("a", 2.0), ("b", 1.0)]);
    let records: BTreeMap<String, String> =
        first.take_unsaved().into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    let config = Config::parse(&json!({"usageParams": params}), |_| None).unwrap();
    let mut second = Ledger::new(&config);
    let mut damaged = records.clone();
    damaged.insert("c".to_owned(), "1 2".to_owned());
    let invalid = second.load(damaged);
    assert!(matches!(&*invalid, [text] if text.starts_with("`c`")), "{invalid:?}");
    // Nothing was observed for an hour; the pods ran on.
    observe(&mut second, 2 * HOUR, &[("a", 0.0), ("b", 0.0)]);
    observe(&mut first, 2 * HOUR, &[("a", 0.0), ("b", 0.0)]);
    let (first, second) = (first.usage(at(3 * HOUR)), second.usage(at(3 * HOUR)));
    for queue in ["a", "b"] {
        let difference = gpu_share(&first, queue) - gpu_share(&second, queue);
        assert!(difference.abs() < 1e-4, "{queue}: {first:?} {second:?}");
    }
}

#[test]
fn nothing_is_observed_before_the_ledger_is_loaded() {
    let config = Config::parse(&json!({}), |_| None).unwrap();
    let mut ledger = Ledger::new(&config);
    observe(&mut ledger, 0, &[("a", 4.0)]);
    assert!(ledger.take_unsaved().is_empty(), "it would replace what was saved");
}

/// Allocations that change every few minutes for twelve days, compared with sums by minute as Prometheus computes them.
#[test]
fn usage_agrees_with_sums_by_minute_within_one_percent() {
    for (window, half_life) in [("1w", None), ("1d", None), ("1w", Some("6h")), ("2d", Some("1d"))] {
        let mut params = json!({"windowSize": window});
        if let Some(half_life) = half_life {
            params["halfLifePeriod"] = Value::from(half_life);
        }
        let mut ledger = ledger(&params);
        let config = Config::parse(&json!({"usageParams": params}), |_| None).unwrap();
        let end = 12 * 24 * 60;
        let mut minutes = Vec::new();
        for minute in 0..end {
            // Bursts of different lengths, aligned with hours and days as cron jobs are.
            let gpus =
                if minute % 60 < 7 { 6.0 } else { 0.0 } + if minute % 1_440 > 1_300 { 2.0 } else { 0.0 };
            observe(&mut ledger, minute * 60, &[("a", gpus)]);
            minutes.push(gpus);
        }
        let now = at(end * 60);
        let begin = config.window.begin(now).unwrap();
        let (mut used, mut capacity) = (0.0, 0.0);
        for (minute, gpus) in (0_i64..).zip(minutes) {
            let middle = at(minute * 60 + 30);
            if middle < begin {
                continue;
            }
            let age = (now - middle).0 as f64;
            let weight = config.half_life.map_or(1.0, |half_life| (-age / half_life.0 as f64).exp2());
            used += gpus * weight;
            capacity += 8.0 * weight;
        }
        let (expected, actual) = (used / capacity, gpu_share(&ledger.usage(now), "a"));
        assert!((actual / expected - 1.0).abs() < 0.01, "{window} {half_life:?}: {actual} is not {expected}");
    }
}
