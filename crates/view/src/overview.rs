//! What one screen or page shows of a cluster: its queues, nodes and pod groups at one time, and whether they are current.

use crate::groups::{self, GroupsView};
use crate::names::Names;
use crate::nodes::{self, NodesView};
use crate::queues::{self, QueuesView};
use crate::reader::{ClusterView, Stale};
use kai_units::Timestamp;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    pub at: String,
    /// The objects are older than `at`.
    pub stale: Option<Stale>,
    pub queues: QueuesView,
    pub nodes: NodesView,
    pub groups: GroupsView,
    #[serde(skip)]
    pub now: Timestamp,
}

impl Overview {
    /// Reasons name pod groups by their workloads.
    pub fn of(view: &ClusterView, stale: Option<Stale>) -> Self {
        let mut groups = groups::all(view);
        let names = Names::of(view.store.objects());
        for reason in groups.groups.iter_mut().filter_map(|group| group.reason.as_mut()) {
            *reason = names.replaced(reason);
        }
        Self {
            at: view.now.to_string(),
            stale,
            queues: queues::all(view),
            nodes: nodes::all(view),
            groups,
            now: view.now,
        }
    }
}
