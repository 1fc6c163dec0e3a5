//! What the server says is new, and what it answers.

use super::Heart;
use crate::effect::evict::Evicted;
use crate::effect::{bind, condition};
use crate::inbox::Change;
use crate::rhythm::Weight;
use crate::timers::GroupTimes;
use kai_api::well_known::annotation;
use kai_api::{BindRequest, PodGroup};
use kai_cache::object::{Change as Stored, Pod};
use kai_cache::translate::{group as groups, pod as pods};
use kai_cache::{Kind, Object};
use kai_engine::input::Key;
use kai_runtime::api;
use kai_runtime::event::{Event, EventType, Regarding};
use kai_runtime::kind::POD;
use kai_runtime::watch::WatchEvent;
use kai_units::{Span, Timestamp, duration};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Heart {
    /// Takes in what the server says is new; says how much that matters.
    pub(super) fn take_news(&mut self, kind: Kind, news: WatchEvent<Object>) -> Weight {
        match news {
            WatchEvent::Listed(objects, version) => self.take_all(kind, objects, version),
            WatchEvent::Applied(object) => self.take_applied(object),
            WatchEvent::Deleted(object) => self.take_gone(kind, &object),
            WatchEvent::Invalid(object) => {
                let (key, why) = (Key::new(object.key.namespace, object.key.name), object.reason);
                tracing::warn!(kind = kind.name(), %key, why, "an object cannot be read and is left out");
                self.unreadable.insert((kind, key.clone()));
                self.metrics.unreadable.set(self.unreadable.len() as i64);
                self.forget(kind, &key);
                self.cache.store_mut().delete(kind, &key).map_or(Weight::Nothing, |_| Weight::MakesRoom)
            }
        }
    }

    fn take_all(&mut self, kind: Kind, mut objects: Vec<Object>, version: u64) -> Weight {
        if kind == Kind::BindRequest {
            self.flight.listed(&mut objects, version);
        }
        let present: BTreeSet<Key> = objects.iter().map(Object::key).collect();
        let gone = self.cache.store().objects().keys(kind).into_iter().filter(|key| !present.contains(key));
        for key in gone.collect::<Vec<Key>>() {
            self.forget(kind, &key);
        }
        for object in &mut objects {
            self.prepare(object);
        }
        self.cache.reset(kind, objects);
        self.unreadable.retain(|(of, _)| *of != kind);
        self.metrics.unreadable.set(self.unreadable.len() as i64);
        self.unread.remove(&kind);
        if kind == Kind::Queue {
            self.queues_changed();
        }
        if kind == Kind::BindRequest {
            for key in self.cache.obsolete_bind_requests() {
                self.delete_bind(&key);
            }
        }
        Weight::MakesRoom
    }

    fn take_applied(&mut self, mut object: Object) -> Weight {
        let (kind, key) = (object.kind(), object.key());
        if let Object::BindRequest(request) = &object
            && !self.flight.shown(&key, request)
        {
            return Weight::Nothing;
        }
        self.prepare(&mut object);
        if self.unreadable.remove(&(kind, key.clone())) {
            self.metrics.unreadable.set(self.unreadable.len() as i64);
        }
        let change = self.cache.store_mut().apply(object);
        if matches!(change, Stored::None) {
            return Weight::Nothing;
        }
        if kind == Kind::Queue {
            self.queues_changed();
        }
        self.after(kind, &key, &change)
    }

    /// What follows from an object that is there now; says how much it matters.
    fn after(&mut self, kind: Kind, key: &Key, change: &Stored) -> Weight {
        match kind {
            Kind::Pod => {
                for bind in self.cache.store().binds_of(key) {
                    if self.cache.store().is_obsolete_bind(&bind) {
                        self.delete_bind(&bind);
                    }
                }
                let pod = self.cache.store().objects().pods.get(key);
                let leaves = pod.is_some_and(|pod| is_over(pod) || pod.metadata.deletion_timestamp.is_some());
                if leaves { Weight::MakesRoom } else { Weight::Matters }
            }
            Kind::BindRequest => self.after_bind(key),
            Kind::PodGroup | Kind::ConfigMap => Weight::Matters,
            Kind::Node => {
                if matches!(change, Stored::Replaced(_)) {
                    self.drop_binds_to(&key.name);
                }
                Weight::MakesRoom
            }
            Kind::Namespace
            | Kind::PersistentVolume
            | Kind::PersistentVolumeClaim
            | Kind::StorageClass
            | Kind::PriorityClass
            | Kind::PodDisruptionBudget
            | Kind::ResourceClaim
            | Kind::ResourceSlice
            | Kind::DeviceClass
            | Kind::NodeResourceTopology
            | Kind::CsiDriver
            | Kind::CsiNode
            | Kind::CsiStorageCapacity
            | Kind::Topology
            | Kind::Queue => Weight::MakesRoom,
        }
    }

    /// A bind request that failed for good is deleted, and its group is left out for a while.
    fn after_bind(&mut self, key: &Key) -> Weight {
        if !self.cache.store().is_obsolete_bind(key) {
            return Weight::Nothing;
        }
        let request = self.cache.store().objects().bind_requests.get(key).map(|request| (**request).clone());
        if let Some(request) = request
            && pods::bind_failed(&request)
        {
            let reason = request.status.as_ref().map(|status| status.reason.clone()).unwrap_or_default();
            let node = &request.spec.selected_node;
            self.put_aside(
                &pods::pod_of(&request),
                format!("binding pod {key} to node `{node}` failed: {reason}"),
            );
        }
        self.delete_bind(key);
        Weight::MakesRoom
    }

    fn drop_binds_to(&self, node: &str) {
        let store = self.cache.store();
        for bind in store.binds_to(node).iter().filter(|bind| store.is_obsolete_bind(bind)) {
            self.delete_bind(bind);
        }
    }

    fn take_gone(&mut self, kind: Kind, last: &Object) -> Weight {
        let key = last.key();
        if let Object::BindRequest(request) = last
            && !self.flight.gone(&key, request)
        {
            return Weight::Nothing;
        }
        self.forget(kind, &key);
        let known = self.cache.store_mut().delete(kind, &key);
        if kind == Kind::Node {
            self.drop_binds_to(&key.name);
        }
        if kind == Kind::Queue {
            self.queues_changed();
        }
        match (kind, known) {
            (_, None) => Weight::Nothing,
            // Whoever finished the request or lost its pod says so itself.
            (Kind::BindRequest, Some(_)) => Weight::Matters,
            (_, Some(_)) => Weight::MakesRoom,
        }
    }

    /// Notes what an object means besides being stored.
    fn prepare(&mut self, object: &mut Object) {
        let key = object.key();
        if let Object::PodGroup(group) = object {
            self.marks.lay_over(&key, group);
            self.set_group_timers(&key, group);
            let conditions = group.status.as_ref().is_some_and(|s| !s.scheduling_conditions.is_empty());
            // What groups of other pools are told is their schedulers' business.
            if conditions && groups::is_seen(group, &self.options.settings) {
                self.told.conditioned.insert(key);
            } else {
                self.told.conditioned.remove(&key);
            }
        } else if let Object::Pod(pod) = object {
            let stuck = pod.metadata.deletion_timestamp.map(|at| at.0 + self.options.params.stuck_threshold);
            self.timers.set_pod(&key, stuck);
            let waits = pod.spec.node_name.is_empty()
                && pod.spec.scheduler_name == self.options.settings.scheduler_name.as_str();
            let groups = &self.cache.store().objects().pod_groups;
            let groupless = waits && pods::group_of(pod).is_some_and(|group| !groups.contains_key(&group));
            self.odd.groupless(&key, groupless);
        }
    }

    /// Forgets what was noted of an object that is gone.
    fn forget(&mut self, kind: Kind, key: &Key) {
        self.odd.forget(kind, key);
        if kind == Kind::PodGroup {
            self.timers.set_group(key, GroupTimes::default());
            self.marks.forget(key);
            self.aside.forget(key);
            self.told.conditioned.remove(key);
            self.told.waiting.remove(key);
            self.verdicts.remove(key);
        } else if kind == Kind::Pod {
            self.timers.set_pod(key, None);
            self.told.pipelined.remove(key);
        }
    }

    /// Sets when time changes something for a group.
    pub(super) fn set_group_timers(&mut self, key: &Key, group: &PodGroup) {
        if !groups::is_seen(group, &self.options.settings) {
            self.timers.set_group(key, GroupTimes::default());
            return;
        }
        let annotations = group.metadata.annotations.as_ref();
        let time = |name: &str| {
            annotations.and_then(|a| a.get(name)).and_then(|text| text.parse::<Timestamp>().ok())
        };
        let span =
            |text: &Option<String>| text.as_deref().and_then(|text| duration::parse_extended(text).ok());
        let created = group.metadata.creation_timestamp.as_ref();
        let created = created.map_or(Timestamp(0), |at| Timestamp(at.0.as_microsecond()));
        let grace =
            span(&group.spec.staleness_grace_period).unwrap_or_else(|| self.options.staleness_grace());
        let from = time(annotation::LAST_EVICTION).map_or(created, |at: Timestamp| at.max(created));
        self.timers.set_group(
            key,
            GroupTimes {
                stale: time(annotation::STALE_SINCE).filter(|_| grace.0 >= 0).map(|since| (since, grace)),
                delay: span(&group.spec.preemption_delay).map(|delay| (from, delay)),
                start: time(annotation::LAST_START),
            },
        );
    }

    fn queues_changed(&mut self) {
        self.odd.queues_changed();
        self.set_protections();
    }

    /// Collects how long something that started may be protected.
    fn set_protections(&mut self) {
        let mut spans: BTreeSet<Span> = BTreeSet::new();
        if let Some(defaults) = &self.everything.registry.builtin.min_runtime {
            spans.extend(defaults.preempt.iter().chain(defaults.reclaim.iter()));
        }
        for queue in self.cache.store().objects().queues.values() {
            let texts = [&queue.spec.preempt_min_runtime, &queue.spec.reclaim_min_runtime];
            let texts = texts.into_iter().filter_map(Option::as_deref);
            spans.extend(texts.filter_map(|text| duration::parse_extended(text).ok()));
        }
        spans.retain(|span| span.0 > 0);
        self.timers.set_protections(spans);
    }

    /// Leaves the group of a pod out for a while.
    fn put_aside(&mut self, pod: &Key, why: String) {
        let group = self.cache.store().objects().pods.get(pod).and_then(|pod| pods::group_of(pod));
        let Some(group) = group else { return };
        tracing::warn!(%group, why, "a group is left out for a while");
        let now = self.now();
        self.aside.put(&group, why, now);
    }

    /// The server made a bind request, or refused to.
    pub(super) fn take_bind_answer(&mut self, key: &Key, answer: api::Result<Value>) -> Weight {
        match answer {
            Ok(made) => {
                let now = self.now();
                if let Some(flying) = self.flight.made(key, &made, self.cache.store_mut()) {
                    let flying = flying.clone();
                    self.bind_was_made(key, &flying.request, flying.pod_created, flying.decided, now);
                } else if let Ok(request) = serde_json::from_value::<BindRequest>(made) {
                    self.bind_was_made(key, &request, None, now, now);
                }
                Weight::Nothing
            }
            Err(refusal) => {
                // An earlier answer may have been lost, and the request be there: what was decided counts until the
                // server has said what it has.
                if self.flight.contains(key) {
                    let (api, inbox, key) = (self.api.clone(), Arc::clone(&self.inbox), key.clone());
                    self.tasks.spawn(async move {
                        let found = bind::look_up(&api, &key).await;
                        inbox.put(Change::BindLookedUp(key, refusal, found));
                    });
                }
                Weight::Nothing
            }
        }
    }

    /// The server refused to make a bind request, and has this under its name.
    pub(super) fn take_looked_up(&mut self, key: &Key, refusal: &api::Error, found: Option<Value>) -> Weight {
        if let Some(found) = found
            && let Ok(request) = BindRequest::deserialize(&found)
        {
            if self.flight.is_flying(key, &request) {
                return self.take_bind_answer(key, Ok(found));
            }
            // Somebody's who is about to be done with it.
            self.flight.shown(key, &request);
        }
        let Some(flying) = self.flight.refused(key, self.cache.store_mut()) else { return Weight::Nothing };
        tracing::warn!(pod = %key, error = refusal as &dyn std::error::Error, "cannot make a bind request");
        if !refusal.is_conflict() {
            self.bind_was_refused(key, &flying.request, &refusal.message());
        }
        if let Some(group) = &flying.group {
            let why = format!("the server refused the bind request of pod {key}: {}", refusal.message());
            self.aside.put(group, why, self.now());
        }
        Weight::MakesRoom
    }

    fn bind_was_made(
        &self,
        pod: &Key,
        request: &BindRequest,
        created: Option<Timestamp>,
        decided: Timestamp,
        now: Timestamp,
    ) {
        let ms = |span: Span| span.0.max(0) as f64 / 1e3;
        self.metrics.bind_ms.observe(ms(now - decided));
        if let Some(created) = created {
            self.metrics.placing_ms.observe(ms(decided - created));
        }
        let pool = &self.options.params.node_pool;
        let message = format!(
            "Successfully assigned pod {pod} to node {} at node-pool {pool}",
            request.spec.selected_node
        );
        self.record_on_pod(pod, request, EventType::Normal, "Scheduled", message);
    }

    fn bind_was_refused(&self, pod: &Key, request: &BindRequest, why: &str) {
        let message = format!("Failed to create a bind request for pod {pod}: {why}");
        self.record_on_pod(pod, request, EventType::Warning, "FailedBinding", message.clone());
        let time = self.clock.time();
        self.writer.submit(condition::write_pod(pod, pod_uid(request), "BindingError", &message, &time));
    }

    fn record_on_pod(
        &self,
        pod: &Key,
        request: &BindRequest,
        type_: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.recorder.record(&Event {
            regarding: Regarding {
                kind: POD,
                key: crate::resources::api_key(pod),
                uid: pod_uid(request).to_owned(),
            },
            type_,
            reason,
            message,
            annotations: BTreeMap::new(),
        });
    }

    /// Pods leave, or the server refused to let them.
    pub(super) fn take_evicted(&mut self, evicted: Evicted) -> Weight {
        let Evicted { batch, leaving, refusal } = evicted;
        let (leaving, staying) = batch.pods.split_at(leaving);
        for leaving in leaving {
            self.tell_eviction(leaving, batch.preemptor.as_ref());
        }
        let Some(why) = refusal else { return Weight::Nothing };
        tracing::warn!(preemptor = ?batch.preemptor, why, "an eviction was refused");
        for staying in staying {
            self.cache.store_mut().forget_eviction(&staying.pod);
        }
        // What was to be gained is not, so whoever was to gain waits before it is tried again.
        if let Some(preemptor) = &batch.preemptor {
            let now = self.now();
            let pods = staying.iter().map(|staying| &staying.pod);
            self.cache.cluster_mut().forget_evictions(preemptor, pods);
            self.aside.put(preemptor, why, now);
        }
        Weight::Matters
    }
}

fn pod_uid(request: &BindRequest) -> &str {
    let owners = request.metadata.owner_references.as_deref().unwrap_or_default();
    owners.first().map_or("", |owner| owner.uid.as_str())
}

fn is_over(pod: &Pod) -> bool {
    matches!(&*pod.status.phase, "Succeeded" | "Failed")
}
