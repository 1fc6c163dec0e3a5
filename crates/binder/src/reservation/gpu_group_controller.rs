//! Looks after all GPU groups: whatever happens to their pods and requests, nothing stays reserved for nobody.

use super::Reservations;
use crate::error::Error;
use crate::informers::{BIND_REQUEST, BY_GROUP, groups_of, selected_groups};
use kai_runtime::api;
use kai_runtime::controller::{Action, Context, DynamicController};
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, Key, ResourceKind};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The controller of GPU groups; its keys are their names.
#[derive(Debug)]
pub(crate) struct GpuGroupController {
    pub(crate) reservations: Arc<Reservations>,
    /// How often a group that has pods is looked at though nothing happens to it.
    pub(crate) resync: Duration,
    pub(crate) workers: usize,
}

impl DynamicController for GpuGroupController {
    const NAME: &'static str = "gpu-groups";

    fn kinds(&self) -> Vec<ResourceKind> {
        vec![kind::POD, BIND_REQUEST]
    }

    fn workers(&self) -> usize {
        self.workers
    }

    fn map_to_keys(&self, _: &Informers, kind: &ResourceKind, changed: &Value) -> Vec<Key> {
        let groups = if *kind == kind::POD { groups_of(changed) } else { selected_groups(changed) };
        groups.into_iter().collect::<BTreeSet<_>>().into_iter().map(|group| Key::new("", group)).collect()
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let settled = tokio::time::timeout(self.resync, self.reservations.settle(&key.name, None)).await;
        match settled.unwrap_or(Err(Error::Timeout { step: "settling the group", limit: self.resync })) {
            Ok(()) => {}
            Err(Error::Api { refusal, .. }) => return Err(refusal),
            Err(error) => {
                tracing::warn!(group = %key.name, error = &error as &dyn std::error::Error, "a GPU group is not settled");
            }
        }
        let used = !context.informers.dynamic(&kind::POD).by_index(BY_GROUP, &key.name).is_empty();
        Ok(if used { Action::RequeueAfter(self.resync) } else { Action::AwaitChange })
    }
}
