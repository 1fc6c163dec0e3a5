//! Handles watch events: updates the store and the state that is kept beside it.

use super::{LIST_BUDGETS, SchedulerLoop};
use crate::cycle_trigger::Impact;
use crate::timers::GroupTimes;
use kai_api::PodGroup;
use kai_cache::object::{Change, Pod, key_of};
use kai_cache::translate::{group as groups, pod as pods, queue as queues, time_limit};
use kai_cache::{Kind, Object, Report};
use kai_engine::input::{BackoffScope, Key};
use kai_runtime::watch::WatchEvent;
use kai_units::Span;
use std::collections::BTreeSet;

impl SchedulerLoop {
    pub(super) fn handle_watch_event(&mut self, kind: Kind, event: WatchEvent<Object>) -> Impact {
        let impact = self.store_watch_event(kind, event);
        self.follow_implicit_groups();
        impact
    }

    fn store_watch_event(&mut self, kind: Kind, event: WatchEvent<Object>) -> Impact {
        match event {
            WatchEvent::Listed(objects, version) => {
                if kind == Kind::PodDisruptionBudget {
                    self.degradations.end(LIST_BUDGETS);
                }
                self.handle_list(kind, objects, version)
            }
            WatchEvent::Denied => {
                self.degradations.begin(
                    LIST_BUDGETS,
                    "victims are chosen without knowledge of disruption budgets; only the eviction API still enforces them",
                );
                self.handle_list(kind, Vec::new(), 0)
            }
            WatchEvent::Applied(object) => self.handle_applied(object),
            WatchEvent::Deleted(object) => self.handle_deleted(kind, &object),
            WatchEvent::Invalid(object) => {
                let (key, error) = (Key::new(object.key.namespace, object.key.name), object.reason);
                tracing::warn!(kind = kind.name(), %key, error, "cannot decode an object; it is ignored");
                self.undecodable.insert((kind, key.clone()));
                self.metrics.scheduler_loop.unreadable.set(self.undecodable.len() as i64);
                self.forget(kind, &key);
                self.cache.store_mut().delete(kind, &key).map_or(Impact::None, |_| Impact::FreesCapacity)
            }
        }
    }

    fn handle_list(&mut self, kind: Kind, mut objects: Vec<Object>, version: u64) -> Impact {
        if kind == Kind::BindRequest {
            for key in self.assumed.observe_list(&mut objects, version) {
                self.look_up_assumed(key);
            }
        }
        let listed: BTreeSet<Key> = objects.iter().map(Object::key).collect();
        let stored = self.cache.store().objects().keys(kind).into_iter();
        let has_no_object = |key: &Key| kind == Kind::PodGroup && self.is_implicit(key);
        let is_gone = |key: &Key| !listed.contains(key) && !has_no_object(key);
        for key in stored.filter(is_gone).collect::<Vec<Key>>() {
            self.forget(kind, &key);
        }
        for object in &mut objects {
            self.prepare(object);
        }
        self.cache.reset(kind, objects);
        self.undecodable.retain(|(of, _)| *of != kind);
        self.metrics.scheduler_loop.unreadable.set(self.undecodable.len() as i64);
        if self.unsynced.remove(&kind) && self.unsynced.is_empty() {
            self.recover_starts();
        }
        if kind == Kind::Queue {
            self.queues_changed();
        }
        if kind == Kind::Pod {
            self.check_bindings_after_list();
        }
        self.delete_obsolete_bind_requests_after_list(kind);
        Impact::FreesCapacity
    }

    fn handle_applied(&mut self, mut object: Object) -> Impact {
        let (kind, key) = (object.kind(), object.key());
        if let Object::BindRequest(request) = &object
            && !self.assumed.observe_applied(&key, request)
        {
            return Impact::None;
        }
        self.prepare(&mut object);
        if self.undecodable.remove(&(kind, key.clone())) {
            self.metrics.scheduler_loop.unreadable.set(self.undecodable.len() as i64);
        }
        let change = self.cache.store_mut().apply(object);
        if matches!(change, Change::None) {
            return Impact::None;
        }
        if kind == Kind::Queue {
            self.queues_changed();
        }
        let impact = self.handle_change(kind, &key, &change);
        if kind == Kind::Pod {
            self.release_if_bound(&key);
        }
        if kind == Kind::PodGroup {
            self.write_start_if_read(&key);
        }
        impact
    }

    /// Follows up on a changed object; returns what the change can affect.
    fn handle_change(&mut self, kind: Kind, key: &Key, change: &Change) -> Impact {
        match kind {
            Kind::Pod => {
                self.delete_obsolete_bind_requests_of(key);
                if let Change::Replaced(Object::Pod(before)) = change
                    && !self.has_callbacks()
                    && self.cache.decides_alike(key, before)
                    && !self.cache.store().has_changed_implicit()
                {
                    return Impact::None;
                }
                let pod = self.cache.store().objects().pods.get(key);
                let is_ending =
                    pod.is_some_and(|pod| is_terminal(pod) || pod.metadata.deletion_timestamp.is_some());
                if is_ending { Impact::FreesCapacity } else { self.impact_of_pod(key, change) }
            }
            Kind::BindRequest => self.handle_bind_request(key).max(self.impact_of_drained_gpus(key, change)),
            Kind::PodGroup | Kind::ConfigMap if self.is_read_by_no_rule(kind, key, change) => Impact::None,
            // The pods of a new group were there before it, as a rule.
            Kind::PodGroup if matches!(change, Change::Added) && self.needs_one_pod(key) => Impact::AddsPod,
            Kind::PodGroup | Kind::ConfigMap => Impact::Replan,
            Kind::Node => {
                if matches!(change, Change::Replaced(_)) {
                    self.delete_obsolete_bind_requests_to(&key.name);
                }
                Impact::FreesCapacity
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
            | Kind::Queue => Impact::FreesCapacity,
        }
    }

    /// Whether no built-in rule reads what has changed: of a config map only its existence is read, and of a pending group not the
    /// conditions that this scheduler writes. Those of other groups are cleared after a cycle.
    fn is_read_by_no_rule(&self, kind: Kind, key: &Key, change: &Change) -> bool {
        let Change::Replaced(before) = change else { return false };
        if self.has_callbacks() {
            return false;
        }
        if let Object::PodGroup(before) = before {
            return self.reporter.pending.contains_key(key) && self.cache.group_decides_alike(key, before);
        }
        kind == Kind::ConfigMap
    }

    /// Whether a plugin that is not built in may read everything.
    fn has_callbacks(&self) -> bool {
        self.policies.all_actions.registry.has_callbacks()
    }

    /// What a pod that has not ended can affect.
    fn impact_of_pod(&self, key: &Key, change: &Change) -> Impact {
        let objects = self.cache.store().objects();
        let pod = objects.pods.get(key).filter(|pod| self.is_unplaced(pod));
        let Some(pod) = pod.filter(|_| matches!(change, Change::Added)) else { return Impact::Replan };
        match pods::group_of(pod) {
            Some(group) if self.needs_one_pod(&group) => Impact::AddsPod,
            Some(group) if objects.pod_groups.contains_key(&group) => Impact::Replan,
            Some(_) | None => Impact::AwaitsGroup,
        }
    }

    /// Whether a pod of this scheduler has neither a node nor a bind request.
    fn is_unplaced(&self, pod: &Pod) -> bool {
        pod.spec.node_name.is_empty()
            && pod.spec.scheduler_name == self.options.settings.scheduler_name.as_str()
            && self.cache.store().binds_of(&key_of(&pod.metadata)).is_empty()
    }

    /// Whether each pod of a group of this node pool can be placed alone.
    fn needs_one_pod(&self, group: &Key) -> bool {
        let group = self.cache.store().objects().pod_groups.get(group);
        group.is_some_and(|group| {
            group.spec.min_member.unwrap_or(1) <= 1
                && group.spec.sub_groups.is_empty()
                && groups::is_selected(group, &self.options.settings)
        })
    }

    /// A GPU that is no longer drained is free capacity.
    fn impact_of_drained_gpus(&self, key: &Key, change: &Change) -> Impact {
        let Change::Replaced(Object::BindRequest(before)) = change else { return Impact::None };
        let now = self.cache.store().objects().bind_requests.get(key);
        let now = now.map(|request| pods::drained_gpus(request)).unwrap_or_default();
        if now == pods::drained_gpus(before) { Impact::None } else { Impact::FreesCapacity }
    }

    /// Deletes a bind request that failed for good and starts the backoff of its group.
    pub(super) fn handle_bind_request(&mut self, key: &Key) -> Impact {
        if !self.is_obsolete_bind(key) {
            return Impact::None;
        }
        let request = self.cache.store().objects().bind_requests.get(key).map(|request| (**request).clone());
        if let Some(request) = request
            && pods::bind_failed(&request)
        {
            let reason = request.status.as_ref().map(|status| status.reason.clone()).unwrap_or_default();
            let node = &request.spec.selected_node;
            self.back_off_group_of(
                &pods::pod_of(&request),
                format!("binding pod {key} to node `{node}` failed: {reason}"),
            );
        }
        self.delete_bind_request(key);
        Impact::FreesCapacity
    }

    fn back_off_group_of(&mut self, pod: &Key, cause: String) {
        let group = self.cache.store().objects().pods.get(pod).and_then(|pod| pods::group_of(pod));
        let Some(group) = group else { return };
        tracing::warn!(%group, cause, "group backs off");
        let now = self.now();
        self.backoff.record_failure(&group, BackoffScope::Placement, cause, now);
    }

    fn handle_deleted(&mut self, kind: Kind, last: &Object) -> Impact {
        let key = last.key();
        if let Object::BindRequest(request) = last
            && !self.assumed.observe_deleted(&key, request)
        {
            return Impact::None;
        }
        self.forget(kind, &key);
        let stored = self.cache.store_mut().delete(kind, &key);
        if kind == Kind::Node {
            self.delete_obsolete_bind_requests_to(&key.name);
        }
        if kind == Kind::Queue {
            self.queues_changed();
        }
        match (kind, stored) {
            (_, None) => Impact::None,
            // The events of its pod and node report the capacity that the request no longer holds.
            (Kind::BindRequest, Some(_)) => Impact::Replan,
            (_, Some(_)) => Impact::FreesCapacity,
        }
    }

    /// Overlays pending annotations and updates timers and diagnostics before an object is stored.
    fn prepare(&mut self, object: &mut Object) {
        let key = object.key();
        if let Object::PodGroup(group) = object {
            self.annotations.overlay(&key, group);
            self.set_group_timers(&key, group);
            if self.unsynced.is_empty() {
                self.diagnostics.set_lacks_reference(&key, self.cache.store().lacks_reference(group));
            } else {
                self.diagnostics.references_changed();
            }
            let conditions = group.status.as_ref().is_some_and(|s| !s.scheduling_conditions.is_empty());
            let is_selected = groups::is_selected(group, &self.options.settings);
            let version = group.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
            match version.filter(|_| is_selected) {
                Some(version) => self.reporter.versions.groups.insert(key.clone(), version),
                None => self.reporter.versions.groups.remove(&key),
            };
            // The scheduler of another node pool manages the conditions of that pool's groups.
            if conditions && is_selected {
                self.reporter.with_conditions.insert(key);
            } else {
                self.reporter.with_conditions.remove(&key);
            }
        } else if let Object::Pod(pod) = object {
            let stuck = pod.metadata.deletion_timestamp.map(|at| at.0 + self.options.params.stuck_threshold);
            self.timers.set_pod(&key, stuck);
            let is_pending = pod.spec.node_name.is_empty()
                && pod.spec.scheduler_name == self.options.settings.scheduler_name.as_str();
            if is_pending {
                self.reporter.versions.pods.insert(key.clone(), pod.metadata.resource_version.0);
            } else {
                self.reporter.versions.pods.remove(&key);
            }
            let groups = &self.cache.store().objects().pod_groups;
            let lacks_group =
                is_pending && pods::named_group(pod).is_some_and(|group| !groups.contains_key(&group));
            self.diagnostics.set_group_missing(&key, lacks_group);
        }
    }

    /// Drops the state that is kept beside a deleted object.
    pub(super) fn forget(&mut self, kind: Kind, key: &Key) {
        self.diagnostics.forget(kind, key);
        if kind == Kind::PodGroup {
            self.timers.set_group(key, GroupTimes::default());
            self.annotations.forget(key);
            self.backoff.forget(key);
            if let Some(known) = &mut self.beyond_limits {
                known.remove(key);
            }
            self.reporter.with_conditions.remove(key);
            self.reporter.pending.remove(key);
            self.reporter.versions.groups.remove(key);
            self.verdicts.remove(key);
            self.hints.forget(key);
        } else if kind == Kind::Pod {
            self.withdraw_binding(key);
            self.timers.set_pod(key, None);
            self.reporter.pipelined.remove(key);
            self.reporter.versions.pods.remove(key);
        }
    }

    pub(super) fn set_group_timers(&mut self, key: &Key, group: &PodGroup) {
        let times = if groups::is_selected(group, &self.options.settings) {
            // The store reports unreadable timings when it translates the group.
            let timings = groups::timings(group, &mut Report::on(Kind::PodGroup, key));
            group_times(&timings, self.options.staleness_grace())
        } else {
            GroupTimes::default()
        };
        self.timers.set_group(key, times);
    }

    pub(super) fn queues_changed(&mut self) {
        self.diagnostics.queues_changed();
        let mut run_times: BTreeSet<Span> = BTreeSet::new();
        if let Some(defaults) = &self.policy().registry.builtin.min_runtime {
            run_times.extend(defaults.preempt.iter().chain(defaults.reclaim.iter()));
        }
        for (key, queue) in &self.cache.store().objects().queues {
            let mut report = Report::on(Kind::Queue, key);
            let min = queues::min_runtimes(queue, &mut report);
            let max = time_limit::translate(queue.metadata.annotations.as_ref(), &mut report);
            run_times.extend(min.preempt.iter().chain(min.reclaim.iter()));
            run_times.extend(max.into_iter().flat_map(|limit| limit.deadlines()));
        }
        run_times.retain(|span| span.0 > 0);
        self.timers.set_run_times(run_times);
        self.write_starts_that_are_read();
    }
}

/// The timings of a group that have a deadline. A negative grace period never ends.
fn group_times(timings: &groups::Timings, default_grace: Span) -> GroupTimes {
    let grace = timings.staleness_grace.unwrap_or(default_grace);
    let delay_from = timings.last_eviction.map_or(timings.created, |at| at.max(timings.created));
    GroupTimes {
        stale: timings.stale_since.filter(|_| grace.0 >= 0).map(|since| (since, grace)),
        delay: timings.preemption_delay.map(|delay| (delay_from, delay)),
        last_start: timings.last_start,
        limit: timings.time_limit,
    }
}

fn is_terminal(pod: &Pod) -> bool {
    kai_object::is_terminal_phase(&pod.status.phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_units::Timestamp;

    fn times(json: &str) -> GroupTimes {
        let group: PodGroup = serde_json::from_str(json).unwrap();
        let key = Key::new("", "g");
        let mut report = Report::on(Kind::PodGroup, &key);
        group_times(&groups::timings(&group, &mut report), Span::from_secs(60))
    }

    #[test]
    fn timers_and_engine_input_agree_on_a_non_positive_preemption_delay() {
        let with_delay = |delay: &str| {
            times(&format!(
                r#"{{"metadata":{{"name":"g","creationTimestamp":"2025-01-01T00:00:00Z"}},
                     "spec":{{"preemptionDelay":"{delay}"}}}}"#
            ))
        };
        let created = Timestamp(1_735_689_600_000_000);
        assert_eq!(with_delay("5s").delay, Some((created, Span::from_secs(5))));
        // The engine has no delay for these values, so there is no deadline either.
        assert_eq!(with_delay("-5s").delay, None);
        assert_eq!(with_delay("0s").delay, None);
    }

    #[test]
    fn preemption_delay_starts_at_the_last_eviction_and_negative_grace_has_no_deadline() {
        let group = |grace: &str| {
            times(&format!(
                r#"{{"metadata":{{"name":"g","creationTimestamp":"2025-01-01T00:00:00Z","annotations":{{
                       "kai.scheduler/last-eviction-timestamp":"2025-01-01T00:01:00Z",
                       "kai.scheduler/stale-podgroup-timestamp":"2025-01-01T00:02:00Z"}}}},
                     "spec":{{"preemptionDelay":"1m","stalenessGracePeriod":"{grace}"}}}}"#
            ))
        };
        let at = |seconds| Timestamp(1_735_689_600_000_000) + Span::from_secs(seconds);
        let times = group("30s");
        assert_eq!(times.delay, Some((at(60), Span::from_secs(60))));
        assert_eq!(times.stale, Some((at(120), Span::from_secs(30))));
        assert_eq!(group("").stale, Some((at(120), Span::from_secs(60))), "the default applies");
        assert_eq!(group("-1s").stale, None);
    }
}
