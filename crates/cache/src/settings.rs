//! Process settings that select objects and control their translation.

use kai_api::well_known::{label, label_value, name};

/// Which pods that need no `PodGroup` have a group without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImplicitGroups {
    /// Only those that were placed so: the mode is off, and they count in their queues until the pod grouper has created their
    /// groups.
    #[default]
    OfPlacedPods,
    /// All of them.
    OfAllPods,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Settings {
    /// `spec.schedulerName` of the pods that this scheduler places.
    pub scheduler_name: String,
    /// Label that assigns objects to a node pool; empty selects all objects.
    pub node_pool_key: String,
    /// The node pool of this scheduler; empty selects objects without the label.
    pub node_pool_value: String,
    /// Label that names the queue on shared device claims.
    pub queue_label_key: String,
    /// Value of the label `app` on reservation pods.
    pub reservation_app: String,
    pub cpu_worker_label: String,
    pub gpu_worker_label: String,
    /// Node label that enables MIG.
    pub mig_label: String,
    /// Only nodes with a worker label are used.
    pub restrict_nodes: bool,
    /// Queues form a tree; otherwise all of them are children of one synthetic parent.
    pub full_hierarchy_fairness: bool,
    /// The cluster serves device claims.
    pub device_claims: bool,
    /// The cluster serves NUMA zones.
    pub numa_zones: bool,
    /// Which pods have a group without an object.
    pub implicit_groups: ImplicitGroups,
    /// Queues may have a half-life of past usage of their own; Prometheus knows only one for all.
    pub usage_half_lives: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            node_pool_key: label::NODE_POOL.to_owned(),
            node_pool_value: String::new(),
            queue_label_key: label::QUEUE.to_owned(),
            reservation_app: label_value::RESOURCE_RESERVATION.to_owned(),
            cpu_worker_label: label::CPU_WORKER.to_owned(),
            gpu_worker_label: label::GPU_WORKER.to_owned(),
            mig_label: label::MIG_ENABLED.to_owned(),
            restrict_nodes: false,
            full_hierarchy_fairness: true,
            device_claims: true,
            numa_zones: true,
            implicit_groups: ImplicitGroups::default(),
            usage_half_lives: true,
        }
    }
}

impl Settings {
    /// Whether an object with this value of the node-pool label is selected.
    pub fn serves_pool(&self, label: Option<&str>) -> bool {
        if self.node_pool_key.is_empty() {
            true
        } else if self.node_pool_value.is_empty() {
            label.is_none()
        } else {
            label == Some(self.node_pool_value.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_pool_selector_has_three_forms() {
        let mut settings = Settings::default();
        assert!(
            settings.serves_pool(None) && !settings.serves_pool(Some("a")) && !settings.serves_pool(Some(""))
        );
        settings.node_pool_value = "a".to_owned();
        assert!(
            !settings.serves_pool(None)
                && settings.serves_pool(Some("a"))
                && !settings.serves_pool(Some("b"))
        );
        settings.node_pool_key.clear();
        assert!(settings.serves_pool(None) && settings.serves_pool(Some("b")));
    }
}
