//! The usage ledger: past usage of queues without a database, kept by the scheduler in ConfigMaps.
//!
//! `Ledger` is pure: it observes the allocations of queues after each cycle and computes their usage, with the windows and
//! the half-life of the Prometheus queries. `keeper` loads and saves its records.

pub(crate) mod keeper;
mod record;
mod series;

use super::Usage;
use super::config::Config;
use super::window::Window;
use kai_engine::input::WHOLE_GPU;
use kai_units::{Span, Timestamp};
use series::{Resolution, Series, is_zero, same};
use std::collections::{BTreeMap, BTreeSet};

/// CPU in cores, memory in bytes, and GPUs.
pub type Amounts = [f64; 3];

/// Prefix of the records of the capacity, followed by the half-life in microseconds. No name of a queue begins so.
const CAPACITY: &str = "_capacity.";

/// Base units of the engine in a core.
const MILLICORES: f64 = 1e3;

/// What one queue has allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation<'a> {
    pub(crate) queue: &'a str,
    /// The queue's own half-life.
    pub(crate) half_life: Option<Span>,
    pub(crate) amounts: Amounts,
}

/// The mean usage of a queue in one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageSample {
    /// Start of the bucket.
    pub from: Timestamp,
    pub amounts: Amounts,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    window: Window,
    half_life: Option<Span>,
    /// Records that cannot be read must not be overwritten before they were read once.
    is_loaded: bool,
    queues: BTreeMap<String, Series>,
    /// By half-life in microseconds; 0 is none.
    capacity: BTreeMap<i64, Series>,
    /// Records to be written or removed.
    unsaved: BTreeSet<String>,
}

impl Ledger {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            window: config.window.clone(),
            half_life: config.half_life,
            is_loaded: false,
            queues: BTreeMap::new(),
            capacity: BTreeMap::new(),
            unsaved: BTreeSet::new(),
        }
    }

    /// Adds what was saved; returns the records that cannot be read, with the reason.
    pub(super) fn load(&mut self, records: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
        let mut invalid = Vec::new();
        for (name, text) in records {
            match (record::decode(&text), name.strip_prefix(CAPACITY)) {
                (Ok(series), None) => {
                    self.queues.insert(name, series);
                }
                (Ok(series), Some(_)) => {
                    let half_life = series.resolution.half_life.map_or(0, |half_life| half_life.0);
                    self.capacity.insert(half_life, series);
                }
                (Err(error), _) => invalid.push(format!("`{name}`: {error}")),
            }
        }
        self.is_loaded = true;
        invalid
    }

    /// Takes over the allocations of all queues and the capacity of the cluster; both hold until the next call. Queues that
    /// do not exist any more are removed.
    pub(crate) fn observe<'a>(
        &mut self,
        now: Timestamp,
        capacity: Amounts,
        allocations: impl Iterator<Item = Allocation<'a>>,
        exists: impl Fn(&str) -> bool,
    ) {
        if !self.is_loaded {
            return;
        }
        self.begin_window(now);
        let length = self.window.length(now);
        for Allocation { queue, half_life, amounts } in allocations {
            let resolution = Resolution::of(length, half_life.or(self.half_life));
            let unsaved = &mut self.unsaved;
            match self.queues.get_mut(queue) {
                Some(series) => {
                    if series.resolution != resolution {
                        *series = series.with_resolution(resolution);
                        unsaved.insert(queue.to_owned());
                    }
                    if !same(series.current, amounts) {
                        series.set(now, amounts);
                        unsaved.insert(queue.to_owned());
                    }
                }
                None if is_zero(&amounts) => {}
                None => {
                    let mut series = Series::new(resolution, now);
                    series.set(now, amounts);
                    self.queues.insert(queue.to_owned(), series);
                    unsaved.insert(queue.to_owned());
                }
            }
        }
        let unsaved = &mut self.unsaved;
        self.queues.retain(|queue, _| {
            let keep = exists(queue);
            if !keep {
                unsaved.insert(queue.clone());
            }
            keep
        });
        self.observe_capacity(now, capacity, Resolution::of(length, self.half_life));
    }

    /// One series for each half-life in use.
    fn observe_capacity(&mut self, now: Timestamp, capacity: Amounts, default: Resolution) {
        let mut wanted: BTreeMap<i64, Resolution> = BTreeMap::from([(micros(default.half_life), default)]);
        wanted.extend(self.queues.values().map(|series| {
            let resolution = series.resolution;
            (micros(resolution.half_life), resolution)
        }));
        let known = self.capacity.values().next().cloned();
        let unsaved = &mut self.unsaved;
        self.capacity.retain(|half_life, _| {
            let keep = wanted.contains_key(half_life);
            if !keep {
                unsaved.insert(capacity_name(*half_life));
            }
            keep
        });
        for (half_life, resolution) in wanted {
            let series = self.capacity.entry(half_life).or_insert_with(|| {
                unsaved.insert(capacity_name(half_life));
                // What is known of the past holds for every half-life.
                known.as_ref().map_or_else(|| Series::new(resolution, now), Clone::clone)
            });
            if series.resolution != resolution {
                *series = series.with_resolution(resolution);
                unsaved.insert(capacity_name(half_life));
            }
            if !same(series.current, capacity) {
                series.set(now, capacity);
                unsaved.insert(capacity_name(half_life));
            }
        }
    }

    /// The usage of each queue as a fraction of the capacity; forgets queues of which nothing counts any more.
    pub(crate) fn usage(&mut self, now: Timestamp) -> Usage {
        let Some(begin) = self.window.begin(now) else { return Usage::new() };
        self.begin_window(now);
        let capacity: BTreeMap<i64, Amounts> = self
            .capacity
            .iter_mut()
            .map(|(half_life, series)| (*half_life, series.integral(begin, now)))
            .collect();
        let mut usage = Usage::new();
        let unsaved = &mut self.unsaved;
        self.queues.retain(|queue, series| {
            let used = series.integral(begin, now);
            if series.is_empty() {
                unsaved.insert(queue.clone());
                return false;
            }
            let total = capacity.get(&micros(series.resolution.half_life)).copied().unwrap_or_default();
            let mut total = total.into_iter();
            let share = used.map(|used| match total.next() {
                Some(total) if total > 0.0 => super::rounded(used / total),
                Some(_) | None => 0.0,
            });
            usage.insert(queue.clone(), share);
            true
        });
        usage
    }

    /// The records that differ from what was saved; `None` is one to remove. They count as saved.
    pub(super) fn take_unsaved(&mut self) -> BTreeMap<String, Option<String>> {
        let names = std::mem::take(&mut self.unsaved);
        let record = |name: &str| match name.strip_prefix(CAPACITY) {
            Some(half_life) => self.capacity.get(&half_life.parse().ok()?).map(record::encode),
            None => self.queues.get(name).map(record::encode),
        };
        names.into_iter().map(|name| (record(&name), name)).map(|(text, name)| (name, text)).collect()
    }

    /// Records that were not saved after all.
    pub(super) fn restore_unsaved(&mut self, names: impl IntoIterator<Item = String>) {
        self.unsaved.extend(names);
    }

    /// Windows other than sliding ones begin without usage.
    fn begin_window(&mut self, now: Timestamp) {
        if let (true, Some(begin)) = (self.window.is_reset(), self.window.begin(now)) {
            self.queues
                .values_mut()
                .chain(self.capacity.values_mut())
                .for_each(|series| series.restart(begin));
        }
    }
}

fn micros(half_life: Option<Span>) -> i64 {
    half_life.map_or(0, |half_life| half_life.0)
}

fn capacity_name(half_life: i64) -> String {
    format!("{CAPACITY}{half_life}")
}

/// Amounts of the engine in the units of the ledger.
pub fn in_units(amounts: [i64; 3]) -> Amounts {
    let [cpu, memory, gpu] = amounts.map(|amount| amount as f64);
    [cpu / MILLICORES, memory, gpu / WHOLE_GPU as f64]
}

/// The usage of queues over time as saved, for display. Records that cannot be read are left out.
pub fn history(
    records: impl IntoIterator<Item = (String, String)>,
    now: Timestamp,
) -> BTreeMap<String, Vec<UsageSample>> {
    let queues = records.into_iter().filter(|(name, _)| !name.starts_with(CAPACITY));
    let read = |(name, text): (String, String)| {
        let mut series = record::decode(&text).ok()?;
        series.advance(now);
        let samples = series.means(now).into_iter().map(|(from, amounts)| UsageSample { from, amounts });
        Some((name, samples.collect()))
    };
    queues.filter_map(read).collect()
}

#[cfg(test)]
mod tests;
