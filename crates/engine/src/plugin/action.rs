//! Custom actions: what a plugin runs as a step of a cycle, and the operations it has.

use super::guard::Running;
use crate::cluster::Cluster;
use crate::ids::{GroupIdx, PodIdx};
use crate::outcome::Cycle;
use std::ops::Deref;
use std::sync::Arc;

/// An action that the configuration can name in `actions`.
pub trait CustomAction: Send + Sync {
    /// The name in the configuration, in metrics and in decisions. The name of a built-in action is refused.
    fn name(&self) -> &'static str;
    /// Runs once in every cycle that runs all actions; the session shows the result of earlier actions.
    fn run(&self, session: &mut Session<'_>);
}

/// A cycle in progress, as a custom action sees it. It dereferences to the [`Cluster`].
///
/// Every operation takes effect as a whole or not at all; a gang is never placed in part.
pub struct Session<'s> {
    pub(crate) operations: &'s mut dyn Operations,
    pub(crate) action: &'static str,
    pub(crate) running: Arc<Running>,
}

/// What a session can do.
pub(crate) trait Operations {
    fn cluster(&self) -> &Cluster;
    fn cycle(&self) -> Cycle;
    fn pending_in_order(&self) -> Vec<GroupIdx>;
    fn place(&mut self, group: GroupIdx, action: &'static str) -> bool;
    fn evict(&mut self, pods: &[PodIdx], action: &'static str, why: &str) -> Result<(), String>;
}

impl Session<'_> {
    /// Time and seed of the cycle.
    pub fn cycle(&self) -> Cycle {
        self.operations.cycle()
    }

    /// Groups with pending pods that may be scheduled, in the order in which *allocate* attempts them.
    pub fn pending_groups(&mut self) -> Vec<GroupIdx> {
        self.in_engine(|operations, _| operations.pending_in_order())
    }

    /// Places the next pods of a group under the rules of *allocate*: its gang, or one pod more of a running group.
    /// True when they were placed; otherwise the verdict of the group has the reason.
    pub fn place(&mut self, group: GroupIdx) -> bool {
        self.in_engine(|operations, action| operations.place(group, action))
    }

    /// Evicts pods. `why` is the text of the event on their groups. The error says which pod cannot be evicted: it
    /// does not run, was placed in this cycle, or a disruption budget forbids it; then none is evicted.
    pub fn evict(&mut self, pods: &[PodIdx], why: &str) -> Result<(), String> {
        self.in_engine(|operations, action| operations.evict(pods, action, why))
    }

    /// Runs an operation; its time does not count as the plugin's.
    fn in_engine<R>(&mut self, operation: impl FnOnce(&mut dyn Operations, &'static str) -> R) -> R {
        let plugin = self.running.enter(Running::ENGINE);
        let result = operation(self.operations, self.action);
        self.running.leave(plugin);
        result
    }
}

impl Deref for Session<'_> {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        self.operations.cluster()
    }
}
