//! Loads the usage ledger from ConfigMaps at the start, and saves what changed at most once a minute.
//!
//! Each record is one key of a ConfigMap, and each ConfigMap has a bounded number of keys. Only the leader writes: the API
//! client is fenced.

use super::super::{Error, Usage};
use super::Ledger;
use crate::metrics::UsageSource;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kai_api::well_known::label;
use kai_clock::Clock;
use kai_runtime::api::{self, Api, Part};
use kai_runtime::kind::Key;
use kai_runtime::url::query_value;
use kai_units::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const SAVE_INTERVAL: Duration = Duration::from_mins(1);
/// About 800 KiB, below the largest size of a ConfigMap.
const RECORDS_MAX: usize = 1_000;

/// Reads and writes the records of a ledger.
pub(crate) struct Keeper {
    api: Api,
    /// Namespace, and name of the first ConfigMap; those of further ones end with a number.
    name: Key,
    ledger: Arc<Mutex<Ledger>>,
    is_loaded: bool,
    last_save: Option<Instant>,
    /// The number of the ConfigMap of each record.
    part_of: BTreeMap<String, usize>,
    /// Of the keeper before this one, until the ledger is loaded.
    inherited: Inherited,
}

/// What a keeper passes on to the next one of the same process, which saves it when that is due.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Records that were not saved; none is one to remove.
    unsaved: BTreeMap<String, Option<String>>,
    last_save: Option<Instant>,
}

impl Keeper {
    pub(crate) fn new(api: Api, name: Key, ledger: Arc<Mutex<Ledger>>, inherited: Inherited) -> Self {
        let last_save = inherited.last_save;
        Self { api, name, ledger, is_loaded: false, last_save, part_of: BTreeMap::new(), inherited }
    }

    /// The usage of all queues. Loads the ledger the first time, and saves it if that is due.
    pub(crate) async fn usage(&mut self, clock: Clock, metrics: &UsageSource) -> Result<Usage, Error> {
        if !self.is_loaded {
            self.load().await.map_err(|error| Error::Ledger(Box::new(error)))?;
            self.is_loaded = true;
        }
        let usage = self.ledger.lock().usage(Timestamp(clock.now().as_microsecond()));
        if self.last_save.is_none_or(|last| last.elapsed() >= SAVE_INTERVAL)
            && let Err(error) = self.save().await
        {
            metrics.failures.inc();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the usage ledger was not saved; usage is lost when this process ends; hint: the scheduler needs the \
                 rights to create and patch config maps in its namespace"
            );
        }
        Ok(usage)
    }

    /// What the next keeper has to know.
    pub(crate) fn finish(self) -> Inherited {
        let mut unsaved = self.inherited.unsaved;
        if self.is_loaded {
            unsaved = self.ledger.lock().take_unsaved();
        }
        Inherited { unsaved, last_save: self.last_save }
    }

    async fn load(&mut self) -> api::Result<()> {
        let selector = format!("labelSelector={}", query_value(&selector(&self.name)));
        let maps = self.api.list_selected::<ConfigMap>(&selector, &self.name.namespace).await?;
        let mut records = BTreeMap::new();
        for map in maps.items {
            let name = map.metadata.name.unwrap_or_default();
            let Some(part) = self.part(&name) else { continue };
            let data = map.data.unwrap_or_default();
            self.part_of.extend(data.keys().map(|record| (record.clone(), part)));
            records.extend(data);
        }
        for (name, text) in &self.inherited.unsaved {
            match text {
                Some(text) => drop(records.insert(name.clone(), text.clone())),
                None => drop(records.remove(name)),
            }
        }
        let mut ledger = self.ledger.lock();
        let invalid = ledger.load(records);
        ledger.restore_unsaved(std::mem::take(&mut self.inherited.unsaved).into_keys());
        drop(ledger);
        if !invalid.is_empty() {
            let (count, records) = (invalid.len(), invalid.into_iter().take(5).collect::<Vec<_>>());
            tracing::warn!(count, ?records, "records of the usage ledger are invalid; their usage is lost");
        }
        Ok(())
    }

    async fn save(&mut self) -> api::Result<()> {
        let unsaved = self.ledger.lock().take_unsaved();
        let mut parts: BTreeMap<usize, BTreeMap<String, Option<String>>> = BTreeMap::new();
        for (record, text) in unsaved {
            let part = self.assign(&record);
            parts.entry(part).or_default().insert(record, text);
        }
        let mut outcome = Ok(());
        for (part, records) in parts {
            self.last_save = Some(Instant::now());
            match self.write(part, &records).await {
                Ok(()) => {
                    for removed in records.iter().filter(|(_, text)| text.is_none()).map(|(record, _)| record)
                    {
                        self.part_of.remove(removed);
                    }
                }
                Err(error) => {
                    self.ledger.lock().restore_unsaved(records.into_keys());
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    async fn write(&self, part: usize, records: &BTreeMap<String, Option<String>>) -> api::Result<()> {
        let key = self.key(part);
        let patch = json!({"data": records});
        match self.api.patch::<ConfigMap>(&key, Part::Main, &patch).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(|_| ()),
        }
        let present = records.iter().filter_map(|(record, text)| Some((record.clone(), text.clone()?)));
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(key.name),
                namespace: Some(key.namespace),
                labels: Some(BTreeMap::from([(label::USAGE_LEDGER.to_owned(), self.name.name.clone())])),
                ..ObjectMeta::default()
            },
            data: Some(present.collect()),
            ..ConfigMap::default()
        };
        self.api.create(&map).await.map(|_| ())
    }

    /// The ConfigMap of a record: the one it is in, else the first with space.
    fn assign(&mut self, record: &str) -> usize {
        if let Some(part) = self.part_of.get(record) {
            return *part;
        }
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for part in self.part_of.values() {
            *counts.entry(*part).or_default() += 1;
        }
        // One more ConfigMap than there are always has space.
        let has_space = |part: &usize| counts.get(part).is_none_or(|count| *count < RECORDS_MAX);
        let part = (0..=counts.len()).find(has_space).unwrap_or(0);
        self.part_of.insert(record.to_owned(), part);
        part
    }

    fn key(&self, part: usize) -> Key {
        let name = &self.name.name;
        let name = if part == 0 { name.clone() } else { format!("{name}-{part}") };
        Key::new(&self.name.namespace, &name)
    }

    /// The number of a ConfigMap.
    fn part(&self, name: &str) -> Option<usize> {
        match name.strip_prefix(&self.name.name)? {
            "" => Some(0),
            rest => rest.strip_prefix('-')?.parse().ok().filter(|part| self.key(*part).name == name),
        }
    }
}

/// The label selector of the ConfigMaps of a ledger.
pub(crate) fn selector(name: &Key) -> String {
    format!("{}={}", label::USAGE_LEDGER, name.name)
}
