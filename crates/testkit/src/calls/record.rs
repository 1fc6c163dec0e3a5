//! Reads recorded values: cases, queue attributes, amounts, times.

use kai_engine::ids::{Idx, IndexVec, QueueIdx};
use kai_engine::input::WHOLE_GPU;
use kai_engine::resource::MigProfile;
use kai_engine::share::{Ledger, QueueAmounts, QueueTree, QueueTreeMut};
use serde_json::{Map, Value, json};

/// One recorded call.
pub(super) struct Case<'a> {
    /// The arguments by name.
    pub(super) input: &'a Value,
    /// `result` and `after`.
    pub(super) output: &'a Value,
    /// The whole record.
    pub(super) record: &'a Value,
    /// All records of the function, this one among them.
    file: &'a [Value],
}

impl<'a> Case<'a> {
    pub(super) fn new(record: &'a Value, file: &'a [Value]) -> Self {
        Self { input: &record["input"], output: &record["output"], record, file }
    }

    /// The inputs of all calls that were recorded in one go with this one, and so in one cluster.
    pub(super) fn inputs_beside(&self) -> impl Iterator<Item = &'a Value> {
        let source = &self.record["source"];
        self.file.iter().filter(move |record| record["source"] == *source).map(|record| &record["input"])
    }

    /// The list of return values.
    pub(super) fn result(&self) -> &'a Value {
        &self.output["result"]
    }
}

/// The recorded names of the queue resources, in the order of a [`QueueAmounts`].
pub(super) const NAMES: [&str; 3] = ["cpu", "memory", "gpu"];
/// The same in resource vectors.
const VECTOR_NAMES: [&str; 3] = ["cpu_milli", "memory_bytes", "gpu"];
/// How many base units one recorded unit has.
const SCALE: [f64; 3] = [1.0, 1.0, WHOLE_GPU as f64];

/// A number; 0 when absent.
pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// A whole number; 0 when absent.
pub(super) fn whole(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| number(value).round() as i64)
}

/// A text; empty when absent.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The entries of a list or the values of a map; nothing when absent.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The entries of a map, in key order; nothing when absent.
pub(super) fn map(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// An amount of one resource in base units.
pub(super) fn amount(value: &Value, resource: usize) -> i64 {
    (number(value) * SCALE[resource]).round() as i64
}

/// A bound in base units; -1 is unlimited.
pub(super) fn bound(value: &Value, resource: usize) -> Option<i64> {
    (number(value) >= 0.0).then(|| amount(value, resource))
}

/// Quantities `{cpu, memory, gpu}`.
pub(super) fn quantities(value: &Value) -> QueueAmounts {
    std::array::from_fn(|r| amount(&value[NAMES[r]], r))
}

/// A resource vector as quota counts it, MIG instances included where the positions are known.
pub(super) fn quota_of(vector: &Value, vector_map: &Value) -> QueueAmounts {
    let mut triple: QueueAmounts = std::array::from_fn(|r| amount(&vector[VECTOR_NAMES[r]], r));
    for (position, name) in list(vector_map).enumerate() {
        if let Some(profile) = MigProfile::parse(text(name)) {
            let count = number(&vector[text(name)]) + number(&vector[format!("r{position}")]);
            triple[2] += profile.slices * (count * WHOLE_GPU as f64) as i64;
        }
    }
    triple
}

/// An amount in recorded units.
pub(super) fn recorded(amount: i64, resource: usize) -> Value {
    json!(amount as f64 / SCALE[resource])
}

/// A bound in recorded units.
pub(super) fn recorded_bound(bound: Option<i64>, resource: usize) -> Value {
    bound.map_or(json!(-1), |bound| recorded(bound, resource))
}

/// The ledger of recorded queue attributes; `rank` orders by (creation, id).
pub(super) fn ledger(queue: &Value, rank: u32) -> Ledger {
    let share = |r: usize| &queue[NAMES[r]];
    let amounts = |key: &str| std::array::from_fn(|r| amount(&share(r)[key], r));
    Ledger {
        quota: std::array::from_fn(|r| bound(&share(r)["deserved"], r)),
        limit: std::array::from_fn(|r| bound(&share(r)["max_allowed"], r)),
        weight: std::array::from_fn(|r| number(&share(r)["over_quota_weight"])),
        usage: std::array::from_fn(|r| number(&share(r)["usage"])),
        priority: whole(&queue["priority"]) as i32,
        rank,
        allocated: amounts("allocated"),
        allocated_np: amounts("allocated_non_preemptible"),
        request: amounts("request"),
        fair_share: amounts("fair_share"),
    }
}

/// The order of times inside a case; queues without a time count as the oldest.
pub(super) fn time_rank(value: &Value) -> i64 {
    value["rank"].as_i64().unwrap_or(-1)
}

/// A recorded map of queues.
pub(super) struct Queues {
    /// Keys in the record, in slot order.
    pub(super) keys: Vec<String>,
    names: Vec<String>,
    parents: IndexVec<QueueIdx, Option<QueueIdx>>,
    ledgers: IndexVec<QueueIdx, Ledger>,
}

impl Queues {
    /// Reads a map from key to queue; parents are named by key under `parent` or `parent_queue`.
    pub(super) fn new(queues: &Value) -> Self {
        let keys: Vec<String> = map(queues).map(|(key, _)| key.clone()).collect();
        let ids: Vec<String> = keys.iter().map(|key| text(&queues[key]["uid"]).to_owned()).collect();
        let mut by_age: Vec<usize> = (0..keys.len()).collect();
        by_age.sort_by_key(|&i| (time_rank(&queues[&keys[i]]["created"]), ids[i].clone(), keys[i].clone()));
        let find = |name: &str| keys.iter().position(|key| key == name).map(QueueIdx::new);
        let parent = |key: &String| {
            let queue = &queues[key];
            queue["parent"].as_str().or_else(|| queue["parent_queue"].as_str()).and_then(find)
        };
        let rank = |i: usize| by_age.iter().position(|&at| at == i).unwrap_or(i) as u32;
        Self {
            parents: keys.iter().map(parent).collect(),
            ledgers: keys.iter().enumerate().map(|(i, key)| ledger(&queues[key], rank(i))).collect(),
            names: keys.iter().map(|key| text(&queues[key]["name"]).to_owned()).collect(),
            keys,
        }
    }

    /// The queue with a key.
    pub(super) fn find(&self, key: &str) -> Option<QueueIdx> {
        self.keys.iter().position(|k| k == key).map(QueueIdx::new)
    }

    /// A queue's name in messages.
    pub(super) fn name(&self, queue: QueueIdx) -> &str {
        &self.names[queue.index()]
    }

    /// All queues.
    pub(super) fn all(&self) -> Vec<QueueIdx> {
        self.parents.indices().collect()
    }

    /// All queues with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Ledger)> {
        self.keys.iter().map(String::as_str).zip(self.ledgers.iter())
    }
}

impl QueueTree for Queues {
    fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.parents[queue]
    }
    fn ledger(&self, queue: QueueIdx) -> &Ledger {
        &self.ledgers[queue]
    }
}

impl QueueTreeMut for Queues {
    fn ledger_mut(&mut self, queue: QueueIdx) -> &mut Ledger {
        &mut self.ledgers[queue]
    }
}
