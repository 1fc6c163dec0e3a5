//! The operator process: keeps the cluster at what [`desired`] says.
//!
//! One loop: watched objects become [`Facts`], the pure functions of this crate turn them into writes and conditions, and
//! these are sent. A restart loses nothing but the times of the last writes: no object is written more than once a second,
//! whatever others do to it, and a failed write is repeated with backoff.

mod certificates;
mod conditions;
mod prometheus_probe;
mod watched;
mod writes;

use crate::plan::plan;
use crate::settings::Settings;
use crate::{Desired, Facts, Images, ObjectKey, desired, facts, read};
use kai_api::{Config, SchedulingShard};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::Process;
use kai_runtime::api::Api;
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::health::Health;
use kai_runtime::kind::{Key, ResourceKind};
use kai_runtime::watch_value::WatchValue;
use kai_units::Timestamp;
use prometheus_probe::Probe;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use watched::Watched;
use writes::Writes;

/// The only `Config` that has an effect, as in KAI.
pub const CONFIG: &str = "kai-config";
/// Changes are collected for this time before the cluster is reconciled.
const COALESCE: Duration = Duration::from_millis(100);
/// The longest time between two reconciliations: certificates expire and retention periods end without an event.
const INTERVAL: Duration = Duration::from_mins(5);

/// Options of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The namespace of the operator; the installation has the same unless the `Config` names another.
    pub namespace: String,
    /// Where images come from when the `Config` does not say.
    pub images: Images,
}

/// Runs the operator. Never returns, unless one of its tasks has failed.
pub async fn run(mut process: Process, options: Options) {
    let changes = WatchValue::new(0);
    let probe = Probe::new(changes.clone());
    let operator = Operator {
        api: process.api.clone(),
        clock: process.clock,
        recorder: process.recorder.clone(),
        images: options.images,
        writes: Writes::default(),
        changes,
        probe: probe.clone(),
    };
    process.tasks.spawn(async move { probe.run().await });
    let health = process.health.clone();
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = operator.run(options.namespace, &health) => {}
    }
}

struct Operator {
    api: Api,
    clock: Clock,
    recorder: Recorder,
    images: Images,
    writes: Writes,
    /// Counts changes of whatever the desired state follows from.
    changes: WatchValue<u64>,
    probe: Probe,
}

/// The settings as they were read, and why others could not be.
struct Read {
    config: Option<Config>,
    shards: Vec<SchedulingShard>,
    unreadable: BTreeMap<ObjectKey, String>,
}

impl Operator {
    /// Reconciles after every change. The watches start anew when the installation moves to another namespace, or when the
    /// cluster begins or ceases to serve an optional API.
    async fn run(mut self, namespace: String, health: &Health) {
        let mut namespaces = BTreeSet::from([namespace]);
        loop {
            health.discovering();
            let served = watched::served(&self.api).await;
            let watched = Watched::start(&self.api, health, &self.changes, &namespaces, &served);
            watched.synced().await;
            // Once for all reconciles: changes that come faster than it asks must not keep it from asking.
            let mut served_differs = std::pin::pin!(watched::served_differs(self.api.clone(), served));
            loop {
                let seen = self.changes.get();
                let objects = watched.objects();
                let read = read(&objects);
                if let Some(config) = &read.config {
                    // The old one stays watched: what was deployed there is removed.
                    if namespaces.insert(Settings::new(config).namespace) {
                        break;
                    }
                }
                let pause = self.reconcile(&watched, &read, objects).await;
                tokio::select! {
                    biased;
                    () = self.changes.wait_for(|count| count != seen) => tokio::time::sleep(COALESCE).await,
                    () = &mut served_differs => break,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }

    /// Brings the cluster closer to the desired state; returns when to continue without a change.
    async fn reconcile(
        &mut self,
        watched: &Watched,
        read: &Read,
        objects: BTreeMap<ObjectKey, Value>,
    ) -> Duration {
        let mut facts = self.facts(watched, read, objects).await;
        // The last good state stays while the Config cannot be read.
        let config_is_unreadable = read.unreadable.keys().any(|key| key.kind == "Config");
        let desired = match &read.config {
            None if config_is_unreadable => Desired::default(),
            config => desired(config.as_ref(), &read.shards, &facts),
        };
        for change in plan(&desired, CONFIG, &facts) {
            let key = change.key();
            let outcome = self.writes.write(&self.api, &change, facts.objects.get(&key)).await;
            if let Some(message) = outcome.reverted {
                let owner = owner_of(&desired, &key);
                self.event(&facts.objects, &owner, EventType::Warning, "ChangeReverted", message);
            }
            if let Some(written) = outcome.written {
                watched.put(&written);
                facts.objects.insert(key.clone(), written);
            }
            if outcome.deleted {
                watched.remove(&key);
                facts.objects.remove(&key);
            }
        }
        self.writes.forget_others(&desired);
        if desired.drop_queue_conversion {
            self.writes.drop_queue_conversion(&self.api).await;
        }
        self.announce(&desired, &facts.objects);
        let failed = self.write_conditions(watched, &desired, read, &facts).await;
        let retry = if failed { writes::INTERVAL_MIN } else { INTERVAL };
        self.writes.next_attempt().min(retry).min(INTERVAL)
    }

    async fn facts(
        &mut self,
        watched: &Watched,
        read: &Read,
        mut objects: BTreeMap<ObjectKey, Value>,
    ) -> Facts {
        let requests = read.config.as_ref().map(crate::certificates).unwrap_or_default();
        let certificates = certificates::ensure(&self.api, self.clock, &requests, &mut objects).await;
        self.probe.target(read.config.as_ref());
        let of_kind = |kind: &'static str| {
            objects.iter().filter(move |(key, _)| key.kind == kind).map(|(_, object)| object)
        };
        let leaders = of_kind("Lease").filter_map(|lease| {
            let leader = facts::leader_endpoint(lease, of_kind("Pod"))?;
            Some((object::name(lease).to_owned(), leader))
        });
        Facts {
            images: self.images.clone(),
            apis: watched.apis(),
            fake_gpu_nodes: facts::fake_gpu_nodes(of_kind("Node")),
            cdi: facts::cdi(of_kind("ClusterPolicy")),
            now: Timestamp(self.clock.now().as_microsecond()),
            certificates,
            leaders: leaders.collect(),
            external_prometheus_error: self.probe.error(),
            objects,
        }
    }

    /// Reports settings that have no effect.
    fn announce(&self, desired: &Desired, objects: &BTreeMap<ObjectKey, Value>) {
        let config = ObjectKey::new("Config", "", CONFIG);
        let of_config = desired.config.iter().map(|operand| (config.clone(), operand));
        let of_shards = desired.shards.iter().map(|(name, operand)| (shard_key(name), operand));
        for (owner, operand) in of_config.chain(of_shards) {
            for notice in &operand.notices {
                let message = format!("{}: {notice}", operand.name);
                self.event(objects, &owner, EventType::Warning, "SettingHasNoEffect", message);
            }
        }
    }

    fn event(
        &self,
        objects: &BTreeMap<ObjectKey, Value>,
        owner: &ObjectKey,
        type_: EventType,
        reason: &'static str,
        message: String,
    ) {
        let Some(object) = objects.get(owner) else { return };
        let kind = if owner.kind == "Config" {
            ResourceKind::of::<Config>()
        } else {
            ResourceKind::of::<SchedulingShard>()
        };
        let regarding =
            Regarding { kind, key: Key::new("", &owner.name), uid: object::uid(object).to_owned() };
        self.recorder.record(&Event { regarding, type_, reason, message, annotations: BTreeMap::new() });
    }
}

fn read(objects: &BTreeMap<ObjectKey, Value>) -> Read {
    let mut read = Read { config: None, shards: Vec::new(), unreadable: BTreeMap::new() };
    for (key, object) in objects {
        let error = match key.kind.as_str() {
            "Config" if key.name == CONFIG => {
                read::config(object).map(|config| read.config = Some(config)).err()
            }
            "SchedulingShard" => read::shard(object).map(|shard| read.shards.push(shard)).err(),
            _ => None,
        };
        if let Some(error) = error {
            read.unreadable.insert(key.clone(), error);
        }
    }
    read
}

fn shard_key(name: &str) -> ObjectKey {
    ObjectKey::new("SchedulingShard", "", name)
}

/// The `Config` or the shard that a desired object belongs to.
fn owner_of(desired: &Desired, key: &ObjectKey) -> ObjectKey {
    let has = |operand: &crate::Operand| operand.objects.iter().any(|object| ObjectKey::of(object) == *key);
    let shard = desired.shards.iter().find(|(_, operand)| has(operand));
    shard.map_or_else(|| ObjectKey::new("Config", "", CONFIG), |(name, _)| shard_key(name))
}
