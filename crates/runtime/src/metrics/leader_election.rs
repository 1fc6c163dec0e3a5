//! Metrics of leader election: `leader_election_*`.

use super::{counter, int_gauge, register};
use prometheus::{IntGauge, Registry};

/// Whether this replica leads, as a gauge.
#[derive(Clone, Debug)]
pub struct LeaderElectionMetrics {
    leads: IntGauge,
}

impl LeaderElectionMetrics {
    /// Registers the metrics of the lease with this name.
    pub fn register(lease: &str, metrics: &Registry) -> Self {
        let label = [("name", lease)];
        let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master";
        let leads = int_gauge("leader_election_master_status", help, &label);
        register(metrics, leads.clone());
        // Always 0: a lease is renewed in one way only.
        let help = "Total number of slow path exercised in renewing leader leases";
        register(metrics, counter("leader_election_slowpath_total", help, &label));
        Self { leads }
    }

    pub fn set(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }
}
