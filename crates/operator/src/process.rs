//! The operator process: keeps the cluster at what [`crate::desired`] says.
//!
//! One loop: watched objects become [`Facts`], the pure functions of this crate turn them into writes and conditions, and
//! these are sent. A restart loses nothing but the times of the last writes: no object is written more than once a second,
//! whatever others do to it, and a failed write is repeated with backoff.

mod certificates;
mod conditions;
mod prometheus_probe;
mod validation;
mod watched;
mod writes;

use crate::plan::{self, plan};
use crate::settings::Settings;
use crate::unread::{Unread, withhold};
use crate::{Desired, Facts, Images, ObjectKey, desired_checked, facts, read};
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
use tokio::time::Instant;
pub use validation::Check;
use validation::Validation;
use watched::Watched;
use writes::Writes;

/// The only `Config` that has an effect, as in KAI.
pub const CONFIG: &str = "kai-config";
/// Changes are collected for this time before the cluster is reconciled.
const COALESCE: Duration = Duration::from_millis(100);
/// The shortest time between two reconciliations. A rollout changes the status of every Deployment many times, and nothing is
/// written twice within a second.
const REST: Duration = Duration::from_millis(500);
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
pub async fn run(process: Process, options: Options) {
    run_checked(process, options, Check::default()).await;
}

/// As [`run`]. Settings that `check` refuses are not deployed.
pub async fn run_checked(mut process: Process, options: Options, check: Check) {
    let changes = WatchValue::new(0);
    let probe = Probe::new(changes.clone());
    let operator = Operator {
        api: process.api.clone(),
        clock: process.clock,
        recorder: process.recorder.clone(),
        images: options.images,
        home: options.namespace,
        health: process.health.clone(),
        writes: Writes::default(),
        validation: Validation::new(check),
        changes,
        probe: probe.clone(),
    };
    process.tasks.spawn(async move { probe.run().await });
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = operator.run() => {}
    }
}

struct Operator {
    api: Api,
    clock: Clock,
    recorder: Recorder,
    images: Images,
    /// The namespace of the operator.
    home: String,
    health: Health,
    writes: Writes,
    validation: Validation,
    /// Counts changes of whatever the desired state follows from.
    changes: WatchValue<u64>,
    probe: Probe,
}

/// The settings as they were read, and why others could not be.
struct Read {
    config: Option<Config>,
    shards: Vec<SchedulingShard>,
    unreadable: BTreeMap<ObjectKey, String>,
    /// Fields that this version does not know.
    unknown: Vec<(ObjectKey, String)>,
}

impl Operator {
    /// Reconciles after every change. The watches start anew when the installation moves to another namespace, or when the
    /// cluster begins or ceases to serve an optional API.
    async fn run(mut self) {
        let mut namespaces = BTreeSet::from([self.home.clone()]);
        loop {
            self.health.discovering();
            // Until there is a response, it is as if there were none; it is asked again.
            let served = watched::served(&self.api).await.unwrap_or_default();
            let watched = Watched::start(&self.api, &self.health, &self.changes, &namespaces, &served);
            watched.synced().await;
            // Once for all reconciles: changes that come faster than it asks must not keep it from asking.
            let mut served_differs = std::pin::pin!(watched::served_differs(self.api.clone(), served));
            loop {
                let seen = self.changes.get();
                let objects = watched.objects();
                let unread = watched.unread();
                let read = read(&objects, &unread);
                let wanted = self.namespaces(&namespaces, &read, &objects);
                if wanted != namespaces {
                    namespaces = wanted;
                    break;
                }
                let pause = self.reconcile(&watched, &read, objects, &unread).await;
                let rested = Instant::now() + REST;
                tokio::select! {
                    biased;
                    () = self.changes.wait_for(|count| count != seen) => {
                        tokio::time::sleep_until(rested.max(Instant::now() + COALESCE)).await;
                    }
                    () = &mut served_differs => break,
                    () = watched.unread_differs(&unread) => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }

    /// The namespaces to watch: of the operator, of the installation, and those with objects that are still to be removed.
    fn namespaces(
        &self,
        watched: &BTreeSet<String>,
        read: &Read,
        objects: &BTreeMap<ObjectKey, Value>,
    ) -> BTreeSet<String> {
        let Some(config) = &read.config else { return watched.clone() };
        let current = BTreeSet::from([self.home.clone(), Settings::new(config).namespace]);
        let has_own = |namespace: &&String| {
            let mut inside = objects.iter().filter(|(key, _)| key.namespace == **namespace);
            inside.any(|(_, object)| plan::is_owned(object))
        };
        current.iter().chain(watched.iter().filter(has_own)).cloned().collect()
    }

    /// Brings the cluster closer to the desired state; returns when to continue without a change.
    async fn reconcile(
        &mut self,
        watched: &Watched,
        read: &Read,
        objects: BTreeMap<ObjectKey, Value>,
        unread: &Unread,
    ) -> Duration {
        self.writes.begin();
        let mut facts = self.facts(watched, read, objects, unread).await;
        // The last good state stays while the Config cannot be read.
        let config_is_unreadable = read.unreadable.keys().any(|key| key.kind == "Config")
            || unread.covers(&ObjectKey::new("Config", "", CONFIG));
        let mut desired = match &read.config {
            None if config_is_unreadable => Desired::default(),
            config => desired_checked(config.as_ref(), &read.shards, &facts, |separate| {
                self.validation.withhold(separate, &self.images);
            }),
        };
        if let Some(shard) = read.unreadable.keys().find(|key| key.kind == "SchedulingShard") {
            desired.withhold_combined(&format!(
                "shard `{}` cannot be read; what is deployed stays as it is",
                shard.name
            ));
        }
        self.validation.withhold(&mut desired, &self.images);
        self.withhold(&mut desired, read, unread);
        let mut changes = plan(&desired, CONFIG, &facts);
        changes.retain(|change| !unread.covers(&change.key()));
        self.writes.settle(&changes);
        for change in changes {
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
        self.announce(&desired, read, &facts.objects);
        self.write_conditions(watched, &desired, read, &facts).await;
        self.writes.next_attempt().min(INTERVAL)
    }

    /// Leaves alone what cannot be read; readiness says so too.
    fn withhold(&self, desired: &mut Desired, read: &Read, unread: &Unread) {
        let Some(config) = &read.config else { return };
        let installed = Settings::new(config).namespace;
        let is_incomplete = withhold(desired, unread, &self.home, &installed);
        let problem = "the installation is reconciled in part: the conditions of Config and shards say why";
        self.health.set_problem("rights", is_incomplete.then(|| problem.to_owned()));
    }

    async fn facts(
        &mut self,
        watched: &Watched,
        read: &Read,
        mut objects: BTreeMap<ObjectKey, Value>,
        unread: &Unread,
    ) -> Facts {
        let requests = read.config.as_ref().map(crate::certificates).unwrap_or_default();
        let certificates =
            certificates::ensure(&self.api, self.clock, &requests, &mut objects, unread, &mut self.writes)
                .await;
        let (mut known, mut errors) = (BTreeMap::new(), BTreeMap::new());
        for (secret, certificate) in certificates {
            match certificate {
                Ok(certificate) => drop(known.insert(secret, certificate)),
                Err(error) => drop(errors.insert(secret, error)),
            }
        }
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
            certificates: known,
            certificate_errors: errors,
            leaders: leaders.collect(),
            external_prometheus: self.probe.result(),
            objects,
        }
    }

    /// Reports settings that have no effect.
    fn announce(&self, desired: &Desired, read: &Read, objects: &BTreeMap<ObjectKey, Value>) {
        let config = ObjectKey::new("Config", "", CONFIG);
        let of_config = desired.config.iter().map(|operand| (config.clone(), operand));
        let of_shards = desired.shards.iter().map(|(name, operand)| (shard_key(name), operand));
        for (owner, operand) in of_config.chain(of_shards) {
            for notice in &operand.notices {
                let message = format!("{}: {notice}", operand.name);
                self.event(objects, &owner, EventType::Warning, "SettingHasNoEffect", message);
            }
        }
        for (owner, notice) in &read.unknown {
            self.event(objects, owner, EventType::Warning, "SettingHasNoEffect", notice.clone());
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

fn read(objects: &BTreeMap<ObjectKey, Value>, unread: &Unread) -> Read {
    let mut read =
        Read { config: None, shards: Vec::new(), unreadable: BTreeMap::new(), unknown: Vec::new() };
    let config_problem = unread.problem("Config", "");
    for (key, object) in objects {
        let result = match key.kind.as_str() {
            "Config" if key.name == CONFIG => read::config(object).map(|config| {
                read.unknown
                    .extend(read::unknown_fields(object, &config).map(|notice| (key.clone(), notice)));
                read.config = Some(config);
            }),
            "SchedulingShard" => match &config_problem {
                Some(problem) => Err(problem.clone()),
                None => read::shard(object).map(|shard| {
                    let unknown = read::unknown_fields(object, &shard);
                    read.unknown.extend(unknown.map(|notice| (key.clone(), notice)));
                    read.shards.push(shard);
                }),
            },
            _ => Ok(()),
        };
        if let Err(error) = result {
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
