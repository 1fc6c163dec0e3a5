//! Compares the incrementally updated cluster model with one rebuilt from the stored objects: both must decide the same.
//!
//! The loop plans once on its own model, as in a cycle. A thread of its own rebuilds the model and plans on that.

use super::SchedulerLoop;
use crate::cycle_trigger::Impact;
use crate::event_queue::{AuditResult, PlannedDecisions, SchedulerEvent};
use kai_cache::{Cache, Store};
use kai_engine::{CarryOver, Cycle, Outcome, plan};
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

impl SchedulerLoop {
    /// Starts an audit; its result comes back as an event.
    pub(super) fn audit(&mut self) {
        self.last_audit = Instant::now();
        self.is_auditing = true;
        let cycle = Cycle { now: self.now(), seed: self.options.seed };
        let (store, carried) = self.copy();
        let (policy, events) = (self.policies.built_in.clone(), Arc::clone(&self.events));
        let kept = decisions(&plan(self.cache.cluster_mut(), &policy, cycle));
        let rebuild_and_plan = move || decisions(&plan(build(store, carried).cluster_mut(), &policy, cycle));
        let report = move |rebuilt| events.push(SchedulerEvent::Audited(AuditResult { kept, rebuilt }));
        // A simulation has one thread, and the same seed must give the same requests.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            report(Some(rebuild_and_plan()));
        } else {
            self.tasks.spawn(async move { report(tokio::task::spawn_blocking(rebuild_and_plan).await.ok()) });
        }
    }

    pub(super) fn handle_audit(&mut self, result: AuditResult) -> Impact {
        self.is_auditing = false;
        let AuditResult { kept, rebuilt } = result;
        if Some(kept) == rebuilt {
            tracing::debug!(hash = kept.hash, "audit found no difference");
            return Impact::None;
        }
        self.metrics.scheduler_loop.audit_differences.inc();
        tracing::error!(
            kept = kept.count,
            rebuilt = rebuilt.map(|rebuilt| rebuilt.count),
            "audit found that the cluster model differed from its objects; it is rebuilt"
        );
        self.rebuild_cluster();
        Impact::Replan
    }

    /// Replaces the cluster model by one that is built from the stored objects. Interned names, shapes and labels of
    /// deleted objects stay in a cluster model until then.
    pub(super) fn rebuild_cluster(&mut self) {
        let (store, carried) = self.copy();
        self.cache = build(store, carried);
        self.initial_names = self.cache.cluster_mut().names.len();
    }

    /// A store of the same objects, and what the last cycle passed on.
    pub(super) fn copy(&self) -> (Store, CarryOver) {
        let known = self.cache.store();
        let mut store = known.copy_with(super::settings(&self.options));
        store.set_usage(known.usage().clone());
        for (pod, eviction) in known.evictions() {
            store.assume_eviction(pod.clone(), eviction.clone());
        }
        store.set_backoffs(self.backoff.active(self.now()));
        (store, self.cache.cluster().carried_over().clone())
    }
}

fn build(store: Store, carried: CarryOver) -> Cache {
    let mut cache = Cache::of(store);
    cache.cluster_mut().carry_over(carried);
    cache
}

fn decisions(outcome: &Outcome) -> PlannedDecisions {
    PlannedDecisions { hash: outcome.hash, count: outcome.decisions.len() }
}
