//! NUMA placement exporter: reports in an annotation which NUMA zones the kubelet gave to each pod of its node.
//!
//! [`pod_resources`] lists what the kubelet assigned, over its socket; [`topology`] reads the zones of the CPUs from sysfs;
//! [`placement`] computes the annotation. This module compares it with the pods of the node, which it watches, and patches
//! the difference: a pod that is created again under its name, or whose annotation another client changes, is corrected at
//! once. An annotation is never removed.
//! Not here: who reads it (the scheduler, where the plugin `numa` is on).

// Pods and devices come from everyone who may create pods: none of them may end the process.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod placement;
pub mod pod_resources;
pub mod protobuf;
pub mod topology;

use bytes::Bytes;
use kai_api::well_known::annotation;
use kai_runtime::api::{Api, Part};
use kai_runtime::degradation::Degradations;
use kai_runtime::health::WatchHealth;
use kai_runtime::kind::{Key, POD};
use kai_runtime::process::Process;
use kai_runtime::watch::{self, Need, Source, WatchEvent};
use parking_lot::Mutex;
use pod_resources::Kubelet;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};
use topology::CpuZones;

/// KAI's role does not grant it.
const WATCH_PODS: &str = "watch pods";

/// The shortest interval between two requests to the kubelet.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Flags of the exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The node whose pods are reported.
    pub node: String,
    /// The socket of the kubelet's pod resources API.
    pub socket: PathBuf,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    pub poll_interval: Duration,
    /// How often everything is compared even without a change, and sysfs is read again; none for never.
    pub resync_interval: Option<Duration>,
}

/// Runs the exporter. Returns only when the zones of the CPUs cannot be read at the start, or when a task has failed.
pub async fn run(mut process: Process, options: Options) -> Result<(), topology::Error> {
    let cpus = topology::read(&options.sysfs)?;
    tracing::info!(node = options.node, zones = cpus.zones(), "reporting NUMA placements");
    let exporter = Exporter {
        api: process.api.clone(),
        pods: Mutex::default(),
        health: process.health.watch("pods"),
        degradations: process.degradations.clone(),
        options,
    };
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = exporter.watch_pods() => {}
        () = exporter.poll(cpus) => {}
    }
    Ok(())
}

struct Exporter {
    api: Api,
    pods: Mutex<Pods>,
    health: WatchHealth,
    degradations: Degradations,
    options: Options,
}

/// The pods of the node at the API server.
#[derive(Debug, Default)]
struct Pods {
    by_key: BTreeMap<Key, PodObject>,
    has_changed: bool,
}

/// A pod, reduced to what is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodObject {
    uid: String,
    observed: Option<String>,
}

/// The fields of a pod that are read.
#[derive(Debug, Deserialize)]
struct Partial {
    metadata: PartialMeta,
}

#[derive(Debug, Deserialize)]
struct PartialMeta {
    namespace: String,
    name: String,
    uid: String,
    annotations: Option<BTreeMap<String, String>>,
}

impl Partial {
    fn reduce(self) -> (Key, PodObject) {
        let PartialMeta { namespace, name, uid, annotations } = self.metadata;
        let observed = annotations.and_then(|mut all| all.remove(annotation::NUMA_OBSERVED));
        (Key::new(&namespace, &name), PodObject { uid, observed })
    }
}

impl Exporter {
    /// KAI's role grants `list` and not `watch`: without the latter, the pods are listed again and again.
    async fn watch_pods(&self) {
        let selector = format!("fieldSelector=spec.nodeName%3D{}", self.options.node);
        let source = Source { need: Need::Optional, ..Source::all(POD).query(selector) };
        watch::list_and_watch_as(&self.api, &source, &self.health, Partial::reduce, |event| {
            self.store(event);
        })
        .await;
    }

    /// Reports whether the pods are followed by lists alone.
    fn note_rights(&self) {
        if self.health.is_polled() {
            let consequence = "pods are listed every ten seconds, so that a placement is reported later";
            self.degradations.begin(WATCH_PODS, consequence);
        } else {
            self.degradations.end(WATCH_PODS);
        }
    }

    fn store(&self, event: WatchEvent<(Key, PodObject)>) {
        let mut pods = self.pods.lock();
        pods.has_changed = true;
        match event {
            WatchEvent::Listed(all, _) => pods.by_key = all.into_iter().collect(),
            WatchEvent::Applied((key, pod)) => {
                pods.by_key.insert(key, pod);
            }
            WatchEvent::Deleted((key, _)) => {
                pods.by_key.remove(&key);
            }
            WatchEvent::Invalid(object) => {
                pods.by_key.remove(&object.key);
            }
            WatchEvent::Denied => pods.by_key.clear(),
        }
    }

    /// Asks the kubelet at intervals, and publishes what differs.
    async fn poll(&self, mut cpus: CpuZones) {
        let mut ticks = interval(self.options.poll_interval.max(POLL_INTERVAL_MIN));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut kubelet = Kubelet::new(self.options.socket.clone());
        let (mut last, mut resynced) = (Bytes::new(), Instant::now());
        let mut failure = String::new();
        loop {
            ticks.tick().await;
            self.note_rights();
            let is_due = self.options.resync_interval.is_some_and(|interval| resynced.elapsed() >= interval);
            if is_due {
                resynced = Instant::now();
                match topology::read(&self.options.sysfs) {
                    Ok(read) => cpus = read,
                    Err(error) => {
                        tracing::warn!(%error, "keeping the zones of the CPUs that were read before");
                    }
                }
            }
            let listed = match kubelet.list().await {
                Ok(listed) => listed,
                Err(error) => {
                    let text = error.to_string();
                    if text != failure {
                        tracing::warn!(error = &error as &dyn std::error::Error, socket = %self.options.socket.display(), "cannot list pod resources; retrying");
                    }
                    failure = text;
                    continue;
                }
            };
            failure.clear();
            let has_changed = std::mem::take(&mut self.pods.lock().has_changed);
            if listed == last && !has_changed && !is_due {
                continue;
            }
            // A failed write is repeated at the next poll.
            last = if self.publish(&listed, &cpus).await { listed } else { Bytes::new() };
        }
    }

    /// Patches the pods whose annotation differs; returns whether every write succeeded.
    async fn publish(&self, listed: &Bytes, cpus: &CpuZones) -> bool {
        let (resources, malformed) = pod_resources::decode(listed);
        if malformed > 0 {
            tracing::warn!(malformed, "the kubelet listed pods that cannot be decoded");
        }
        let mut is_complete = true;
        for pod in &resources {
            let Some(value) = placement::annotation(pod, cpus) else { continue };
            let key = Key::new(&pod.namespace, &pod.name);
            let known = self.pods.lock().by_key.get(&key).cloned();
            // A pod that is not known yet is published when the watch delivers it.
            let Some(known) = known.filter(|known| known.observed.as_ref() != Some(&value)) else { continue };
            let patch = json!({
                "metadata": {"uid": known.uid, "annotations": {annotation::NUMA_OBSERVED: value}},
            });
            match self.api.patch_dynamic(&POD, &key, Part::Main, &patch).await {
                Ok(_) => {
                    tracing::debug!(pod = %key, value, "reported");
                    if let Some(pod) =
                        self.pods.lock().by_key.get_mut(&key).filter(|pod| pod.uid == known.uid)
                    {
                        pod.observed = Some(value);
                    }
                }
                // Deleted, or created again under its name: the watch delivers it.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    is_complete = false;
                    tracing::warn!(pod = %key, error = &error as &dyn std::error::Error, "cannot report a placement; retrying");
                }
            }
        }
        is_complete
    }
}
