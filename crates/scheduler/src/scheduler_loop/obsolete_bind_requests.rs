//! Deletes obsolete bind requests: those that failed for good, or whose pod, node or group is gone.
//!
//! A new bind request of the same pod has the same name, so the pod waits until the obsolete one is gone. A deletion that
//! the API server or a webhook refuses is therefore repeated with backoff, as long as the request is obsolete.

use super::SchedulerLoop;
use crate::cycle_trigger::Impact;
use crate::event_queue::SchedulerEvent;
use crate::resources::BIND_REQUEST;
use kai_cache::Kind;
use kai_engine::input::Key;
use kai_runtime::api;
use kai_runtime::backoff::BackoffPolicy;
use kai_runtime::writer::{Retry, Write, WritePriority};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The kinds that the judgement whether a bind request is obsolete reads.
const READ_BY_BIND_REQUESTS: [Kind; 4] = [Kind::BindRequest, Kind::Node, Kind::Pod, Kind::PodGroup];
/// Delay before a refused deletion is repeated.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_mins(1));

/// The deletion of an obsolete bind request, until it is gone.
#[derive(Debug)]
pub(super) struct Deletion {
    uid: String,
    /// Attempts that were refused.
    refused: u32,
}

impl SchedulerLoop {
    /// A list of this kind has arrived.
    pub(super) fn delete_obsolete_bind_requests_after_list(&mut self, kind: Kind) {
        if READ_BY_BIND_REQUESTS.contains(&kind) && self.may_judge_bind_requests() {
            for key in self.cache.obsolete_bind_requests() {
                self.delete_bind_request(&key);
            }
        }
    }

    pub(super) fn delete_obsolete_bind_requests_to(&mut self, node: &str) {
        self.delete_obsolete(&self.cache.store().binds_to(node));
    }

    pub(super) fn delete_obsolete_bind_requests_of(&mut self, pod: &Key) {
        self.delete_obsolete(&self.cache.store().binds_of(pod));
    }

    fn delete_obsolete(&mut self, requests: &[Key]) {
        for request in requests {
            if self.is_obsolete_bind(request) {
                self.delete_bind_request(request);
            }
        }
    }

    pub(super) fn is_obsolete_bind(&self, request: &Key) -> bool {
        self.may_judge_bind_requests() && self.cache.store().is_obsolete_bind(request)
    }

    /// Whether everything that the judgement of a bind request reads has been listed. A node that has not been listed yet
    /// is not a missing node.
    fn may_judge_bind_requests(&self) -> bool {
        READ_BY_BIND_REQUESTS.iter().all(|kind| !self.unsynced.contains(kind))
    }

    pub(super) fn delete_bind_request(&mut self, key: &Key) {
        // The server has no request of a pod that this process binds itself.
        if self.withdraw_binding(key) {
            return;
        }
        let Some(request) = self.cache.store().objects().bind_requests.get(key) else { return };
        let uid = request.metadata.uid.clone().unwrap_or_default();
        let refused = match self.deleting.get(key) {
            Some(deletion) if deletion.uid == uid => return,
            Some(_) | None => 0,
        };
        self.submit_deletion(key, Deletion { uid, refused });
    }

    fn submit_deletion(&mut self, key: &Key, deletion: Deletion) {
        let (events, deleted, uid) = (Arc::clone(&self.events), key.clone(), deletion.uid.clone());
        self.writer.submit(Write {
            priority: WritePriority::Action,
            path: BIND_REQUEST.path_of(key),
            object: (BIND_REQUEST.clone(), key.clone()),
            slot: None,
            method: "DELETE",
            content_type: "application/json",
            body: json!({
                "apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {"uid": deletion.uid},
            }),
            retry: Retry::UntilAnswered,
            done: Some(Box::new(move |response| {
                events.push(SchedulerEvent::DeletionResponse(deleted, uid, response));
            })),
        });
        self.deleting.insert(key.clone(), deletion);
    }

    pub(super) fn handle_deletion(&mut self, key: Key, uid: &str, response: api::Result<Value>) -> Impact {
        let Some(deletion) = self.deleting.get_mut(&key).filter(|deletion| deletion.uid == uid) else {
            return Impact::None;
        };
        match response {
            Err(error) if !error.is_not_found() => {
                deletion.refused = deletion.refused.saturating_add(1);
                let delay = BACKOFF.delay(deletion.refused);
                let error = &error as &dyn std::error::Error;
                tracing::warn!(request = %key, error, "cannot delete an obsolete bind request");
                let events = Arc::clone(&self.events);
                self.tasks.spawn(async move {
                    tokio::time::sleep(delay).await;
                    events.push(SchedulerEvent::DeletionRetry(key));
                });
            }
            Ok(_) | Err(_) => {
                self.deleting.remove(&key);
            }
        }
        Impact::None
    }

    /// Repeats a refused deletion, unless the request is gone or no longer obsolete.
    pub(super) fn retry_deletion(&mut self, key: &Key) -> Impact {
        let Some(deletion) = self.deleting.remove(key) else { return Impact::None };
        let stored = self.cache.store().objects().bind_requests.get(key);
        let is_same = stored.is_some_and(|stored| stored.metadata.uid.as_ref() == Some(&deletion.uid));
        if is_same && self.is_obsolete_bind(key) {
            self.submit_deletion(key, deletion);
        }
        Impact::None
    }
}
