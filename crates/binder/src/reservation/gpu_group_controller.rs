//! Reconciles GPU groups: deletes reservation pods without users, and renews lost reservations of users.

use super::Reservations;
use crate::bind_target::StoredRequest;
use crate::error::Error;
use crate::informers::BY_GROUP;
use crate::objects::gpu_groups;
use k8s_openapi::api::core::v1::Pod;
use kai_api::BindRequest;
use kai_runtime::api;
use kai_runtime::controller::{Action, Context, Controller, Watch};
use kai_runtime::{Key, ResourceKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The controller of GPU groups; its keys are the names of the groups.
#[derive(Debug)]
pub(crate) struct GpuGroupController {
    pub(crate) reservations: Arc<Reservations>,
    /// Resync interval of groups with pods.
    pub(crate) resync: Duration,
    pub(crate) workers: usize,
}

impl Controller for GpuGroupController {
    const NAME: &'static str = "gpu-groups";

    fn workers(&self) -> usize {
        self.workers
    }

    fn watches(&self) -> Vec<Watch<Self>> {
        vec![
            Watch::typed::<Pod>(|_, _, pod| keys(gpu_groups(pod))),
            Watch::of::<StoredRequest>(ResourceKind::of::<BindRequest>(), |_, _, request| {
                keys(request.gpu_groups().iter().map(String::as_str))
            }),
        ]
    }

    async fn reconcile(&self, context: &Context, key: &Key) -> api::Result<Action> {
        let synced = tokio::time::timeout(self.resync, self.reservations.sync_group(&key.name, None)).await;
        let late = Error::Timeout { step: "synchronising the GPU group", limit: self.resync };
        match synced.unwrap_or(Err(late)) {
            Ok(()) => {}
            Err(Error::Api { cause, .. }) => return Err(cause),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(group = %key.name, error, "cannot synchronise a GPU group");
            }
        }
        let has_pods = !context.informers.store::<Pod>().by_index(BY_GROUP, &key.name).is_empty();
        Ok(if has_pods { Action::RequeueAfter(self.resync) } else { Action::AwaitChange })
    }
}

fn keys<'a>(groups: impl IntoIterator<Item = &'a str>) -> Vec<Arc<Key>> {
    let groups: BTreeSet<&str> = groups.into_iter().collect();
    groups.into_iter().map(|group| Arc::new(Key::new("", group))).collect()
}
