//! `kai simulate` on input of KAI's time-based simulator, cycle by cycle, against KAI's rules computed here from the printed
//! allocations.
//!
//! The rules: the usage of a queue is the sum of its allocations in the last `WindowSize` cycles over the sum of the
//! capacity, both weighted by one half to the power of age over `HalfLifePeriod`; the fair share of siblings follows from
//! quota, weight, usage and `KValue` in rounds, in whole GPUs, and what is left by rounding goes to the largest remainders.

use crate::{kai, scratch, stderr, stdout};
use serde_json::json;
use std::collections::BTreeMap;

/// A queue below `top`.
struct Queue {
    name: &'static str,
    quota: f64,
    weight: f64,
    /// GPUs of each pod, and pods.
    pods: (u32, u32),
}

struct Shape {
    gpus: u32,
    window: usize,
    half_life: Option<u32>,
    k: f64,
    queues: Vec<Queue>,
}

const CYCLES: usize = 120;

fn queue(name: &'static str, quota: f64, weight: f64, pods: (u32, u32)) -> Queue {
    Queue { name, quota, weight, pods }
}

/// Allocation and fair share by queue, for each cycle.
fn simulated(name: &str, shape: &Shape) -> Vec<BTreeMap<String, [f64; 2]>> {
    let mut queues = vec![json!({"Name": "top"})];
    let mut jobs = BTreeMap::new();
    for queue in &shape.queues {
        queues.push(json!({
            "Name": queue.name, "Parent": "top", "Priority": 100, "DeservedGPUs": queue.quota, "Weight": queue.weight,
        }));
        let (gpus, count) = queue.pods;
        jobs.insert(queue.name, json!({"GPUs": gpus, "NumPods": 1, "NumJobs": count}));
    }
    let input = json!({
        "Cycles": CYCLES, "WindowSize": shape.window, "HalfLifePeriod": shape.half_life.unwrap_or_default(), "KValue": shape.k,
        "Nodes": [{"GPUs": shape.gpus, "Count": 1}], "Queues": queues, "Jobs": jobs,
    });
    let output = kai(&["simulate", &scratch(&format!("{name}.json"), input.to_string()), "--csv", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut rows = vec![BTreeMap::new(); CYCLES];
    for line in stdout(&output).lines().skip(1) {
        let [cycle, queue, allocation, fair_share] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let cycle: usize = cycle.parse().expect("a number");
        rows[cycle].insert(queue.to_owned(), [number(allocation), number(fair_share)]);
    }
    rows
}

/// The usage of a queue after some cycles.
fn usage(shape: &Shape, cycles: &[BTreeMap<String, [f64; 2]>], queue: &str) -> f64 {
    let window = &cycles[cycles.len().saturating_sub(shape.window)..];
    let (mut used, mut capacity) = (0.0, 0.0);
    for (age, cycle) in window.iter().rev().enumerate() {
        let weight = shape.half_life.map_or(1.0, |half_life| 0.5f64.powf(age as f64 / f64::from(half_life)));
        used += weight * cycle[queue][0];
        capacity += weight * f64::from(shape.gpus);
    }
    if capacity > 0.0 { used / capacity } else { 0.0 }
}

/// The fair shares of the queues, with their usage.
fn fair_shares(shape: &Shape, usages: &[f64]) -> Vec<f64> {
    let requests: Vec<f64> =
        shape.queues.iter().map(|queue| f64::from(queue.pods.0 * queue.pods.1)).collect();
    let mut shares: Vec<f64> =
        shape.queues.iter().zip(&requests).map(|(queue, request)| queue.quota.min(*request)).collect();
    let mut left = f64::from(shape.gpus) - shares.iter().sum::<f64>();
    let mut remainders = vec![0.0; shares.len()];
    while left > 0.0 {
        let wants: Vec<usize> = (0..shares.len()).filter(|at| requests[*at] > shares[*at]).collect();
        let weights: f64 = wants.iter().map(|at| shape.queues[*at].weight).sum();
        let part = |at: usize| {
            let normal = shape.queues[at].weight / weights;
            (normal + shape.k * (normal - usages[at])).max(0.0)
        };
        let parts: f64 = wants.iter().map(|at| part(*at)).sum();
        if weights <= 0.0 || parts <= 0.0 {
            break;
        }
        let (total, mut is_over) = (left, true);
        for at in wants {
            let fair = total * part(at) / parts;
            let wanted = requests[at] - shares[at];
            let given = if wanted <= fair { wanted } else { (fair + 1e-9).floor() };
            remainders[at] = if wanted <= fair { 0.0 } else { (fair - given).max(0.0) };
            is_over &= wanted >= fair;
            shares[at] += given;
            left -= given;
        }
        if is_over {
            break;
        }
    }
    let mut order: Vec<usize> = (0..shares.len()).filter(|at| remainders[*at] > 1e-6).collect();
    order.sort_by(|one, other| remainders[*other].total_cmp(&remainders[*one]));
    for at in order {
        if left > 1e-6 {
            shares[at] += left.min(1.0);
            left -= 1.0;
        }
    }
    shares
}

/// Compares every cycle; returns how often the queue with most GPUs changed.
fn compare(name: &str, shape: &Shape) -> usize {
    let cycles = simulated(name, shape);
    for (at, cycle) in cycles.iter().enumerate() {
        let before = &cycles[..at];
        let usages: Vec<f64> = shape.queues.iter().map(|queue| usage(shape, before, queue.name)).collect();
        let expected = fair_shares(shape, &usages);
        let printed: Vec<f64> = shape.queues.iter().map(|queue| cycle[queue.name][1]).collect();
        let differs = expected.iter().zip(&printed).any(|(one, other)| (one - other).abs() > 1e-6);
        assert!(!differs, "{name}, cycle {at}: usage {usages:?}, expected {expected:?}, printed {printed:?}");
    }
    let most = |cycle: &BTreeMap<String, [f64; 2]>| {
        let held = shape.queues.iter().map(|queue| cycle[queue.name][0]);
        held.enumerate().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(at, _)| at)
    };
    cycles.windows(2).filter(|pair| most(&pair[0]) != most(&pair[1])).count()
}

#[test]
fn fair_shares_of_every_cycle_follow_from_the_cycles_before() {
    let whole = Shape {
        gpus: 16,
        window: 24,
        half_life: Some(12),
        k: 1.0,
        queues: vec![queue("a", 0.0, 1.0, (16, 6)), queue("b", 0.0, 1.0, (16, 6))],
    };
    assert!(compare("time-whole", &whole) > 2, "queues that want the whole node take turns");
    let small = Shape {
        gpus: 30,
        window: 40,
        half_life: None,
        k: 0.5,
        queues: vec![
            queue("a", 6.0, 3.0, (1, 60)),
            queue("b", 2.0, 2.0, (2, 20)),
            queue("c", 0.0, 1.0, (1, 5)),
        ],
    };
    compare("time-small", &small);
    let slow = Shape {
        gpus: 24,
        window: 60,
        half_life: Some(7),
        k: 2.0,
        queues: vec![
            queue("a", 0.0, 2.0, (8, 9)),
            queue("b", 0.0, 1.0, (8, 9)),
            queue("c", 0.0, 1.0, (4, 9)),
        ],
    };
    assert!(compare("time-slow", &slow) > 0, "usage moves GPUs");
}
