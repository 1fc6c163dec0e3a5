//! Pod disruption budgets within a cycle: how many evictions each still allows.

use crate::cluster::Cluster;
use crate::ids::{PodIdx, Sym};
use crate::input::Key;
use crate::policy::DisruptionBudgets;
use crate::terms::selector::Query;

/// Remaining evictions of all budgets.
#[derive(Debug, Default)]
pub struct Disruptions {
    budgets: Vec<Budget>,
}

#[derive(Debug)]
struct Budget {
    key: Key,
    namespace: Sym,
    query: Query,
    left: i64,
}

impl Disruptions {
    /// The budgets when a cycle begins; none if the policy ignores them.
    pub fn new(cluster: &mut Cluster, respect: DisruptionBudgets) -> Self {
        if respect == DisruptionBudgets::Ignore {
            return Self::default();
        }
        let names = &mut cluster.names;
        let budget = |b: &crate::input::BudgetInput| Budget {
            key: b.key.clone(),
            namespace: names.intern(&b.key.namespace),
            query: Query::of_labels(&b.selector, names),
            left: i64::from(b.disruptions_allowed),
        };
        Self { budgets: cluster.budgets.values().map(budget).collect() }
    }

    /// The budget that evicting these pods would violate, if any.
    pub fn broken_by(&self, cluster: &Cluster, evicted: &[PodIdx]) -> Option<&Key> {
        let breaks = |budget: &&Budget| budget.covered(cluster, evicted) > budget.left.max(0);
        self.budgets.iter().find(breaks).map(|budget| &budget.key)
    }

    /// Returns evictions that were undone.
    pub fn give_back(&mut self, cluster: &Cluster, kept: &[PodIdx]) {
        for budget in &mut self.budgets {
            budget.left += budget.covered(cluster, kept);
        }
    }

    /// Charges evictions that were decided.
    pub fn draw(&mut self, cluster: &Cluster, evicted: &[PodIdx]) {
        for budget in &mut self.budgets {
            budget.left -= budget.covered(cluster, evicted);
        }
    }
}

impl Budget {
    fn covered(&self, cluster: &Cluster, pods: &[PodIdx]) -> i64 {
        let covers = |pod: &&PodIdx| {
            let p = &cluster.pods[**pod];
            p.namespace == self.namespace && self.query.matches_labels(cluster.terms.labels(p.label_set))
        };
        pods.iter().filter(covers).count() as i64
    }
}
