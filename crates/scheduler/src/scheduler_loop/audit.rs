//! Compares the incrementally updated cluster model with one rebuilt from the stored objects: both must decide the same.

use super::SchedulerLoop;
use kai_cache::{Cache, Store};
use kai_engine::{Cluster, Cycle, plan};
use tokio::time::Instant;

impl SchedulerLoop {
    /// Rebuilds the cluster model, compares the plans of both and continues with the rebuilt one.
    pub(super) fn audit(&mut self) {
        self.last_audit = Instant::now();
        let cycle = Cycle { now: self.now(), seed: self.options.seed };
        let kept = plan(self.cache.cluster_mut(), &self.all_actions, cycle);
        let mut rebuilt_cache = self.rebuilt_cache();
        let rebuilt = plan(rebuilt_cache.cluster_mut(), &self.all_actions, cycle);
        if kept.hash == rebuilt.hash {
            tracing::debug!(hash = kept.hash, "audit found no difference");
            self.replace_cluster(rebuilt_cache);
            return;
        }
        self.metrics.scheduler_loop.audit_differences.inc();
        tracing::error!(
            kept = kept.decisions.len(),
            rebuilt = rebuilt.decisions.len(),
            "audit found that the cluster model differed from its objects; it has been rebuilt"
        );
        self.replace_cluster(rebuilt_cache);
    }

    /// Replaces the cluster model by one that is built from the stored objects.
    pub(super) fn rebuild_cluster(&mut self) {
        let rebuilt = self.rebuilt_cache();
        self.replace_cluster(rebuilt);
    }

    /// Interned names, shapes and labels of deleted objects stay in a cluster model until it is replaced.
    fn replace_cluster(&mut self, mut cache: Cache) {
        self.initial_names = cache.cluster_mut().names.len();
        self.cache = cache;
    }

    fn rebuilt_cache(&self) -> Cache {
        let known = self.cache.store();
        let mut store = Store::of(known.settings().clone(), known.objects().clone());
        store.set_usage(known.usage().clone());
        for (pod, eviction) in known.evictions() {
            store.assume_eviction(pod.clone(), eviction.clone());
        }
        store.set_backoffs(self.backoff.active(self.now()));
        let mut cache = Cache::of(store);
        let carried: &Cluster = self.cache.cluster();
        cache.cluster_mut().carry_over(carried.carried_over().clone());
        cache
    }
}
