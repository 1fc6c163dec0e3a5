//! Compares the cluster that is kept current with one that is built from the stored objects: they must decide the same.

use super::Heart;
use kai_cache::{Cache, Store};
use kai_engine::{Cluster, Cycle, plan};
use tokio::time::Instant;

impl Heart {
    /// Builds the cluster anew, compares, and goes on with the new one if the old one is wrong.
    pub(super) fn audit(&mut self) {
        self.audited = Instant::now();
        let cycle = Cycle { now: self.now(), seed: self.options.seed };
        let kept = plan(self.cache.cluster_mut(), &self.everything, cycle);
        let mut fresh = self.fresh();
        let rebuilt = plan(fresh.cluster_mut(), &self.everything, cycle);
        if kept.hash == rebuilt.hash {
            tracing::debug!(hash = kept.hash, "the cluster is what its objects say");
            self.go_on_with(fresh);
            return;
        }
        self.metrics.audit_differences.inc();
        tracing::error!(
            kept = kept.decisions.len(),
            rebuilt = rebuilt.decisions.len(),
            "the cluster was not what its objects say, and has been built anew"
        );
        self.go_on_with(fresh);
    }

    /// Goes on with a cluster that is built from the stored objects.
    pub(super) fn rebuild(&mut self) {
        let fresh = self.fresh();
        self.go_on_with(fresh);
    }

    /// What came and went leaves traces in a cluster that only grow: names, shapes, labels. A fresh one has none.
    fn go_on_with(&mut self, mut fresh: Cache) {
        self.names = fresh.cluster_mut().names.len();
        self.cache = fresh;
    }

    fn fresh(&self) -> Cache {
        let known = self.cache.store();
        let mut store = Store::of(known.settings().clone(), known.objects().clone());
        store.set_usage(known.usage().clone());
        for (pod, eviction) in known.evictions() {
            store.assume_eviction(pod.clone(), eviction.clone());
        }
        store.set_aside(self.aside.now(self.now()));
        let mut cache = Cache::of(store);
        let carried: &Cluster = self.cache.cluster();
        cache.cluster_mut().carry_over(carried.carried_over().clone());
        cache
    }
}
