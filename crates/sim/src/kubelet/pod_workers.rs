//! Routes changed objects to the work queue of their node, so that no node waits for another.

use super::admission;
use crate::node::heartbeat::{Failure, is_simulated};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::informer::Informers;
use kai_runtime::kind::{self, ResourceKind};
use kai_runtime::work_queue::WorkQueue;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// The work queue of one node, and its power state.
#[derive(Debug, Default)]
pub(super) struct NodeWorker {
    pub(super) queue: WorkQueue,
    power: Mutex<Power>,
}

/// Whether a node is down, or when it last booted.
#[derive(Clone, Copy, Debug, Default)]
enum Power {
    #[default]
    On,
    Down,
    BootedAt(Timestamp),
}

impl NodeWorker {
    /// Updates the power state; returns the time of the last boot.
    pub(super) fn observe(&self, node: &Value, now: Option<Timestamp>) -> Option<Timestamp> {
        let mut power = self.power.lock();
        *power = match (Failure::of(node), *power, now) {
            (Some(Failure::Down), _, _) => Power::Down,
            (Some(Failure::Unreachable | Failure::NotReady) | None, Power::Down, Some(now)) => {
                Power::BootedAt(now)
            }
            (Some(Failure::Unreachable | Failure::NotReady) | None, known, _) => known,
        };
        match *power {
            Power::BootedAt(time) => Some(time),
            Power::On | Power::Down => None,
        }
    }
}

/// The workers of all simulated nodes.
#[derive(Debug)]
pub(super) struct NodeWorkers {
    by_node: Mutex<BTreeMap<String, Arc<NodeWorker>>>,
    arrivals: UnboundedSender<(String, Arc<NodeWorker>)>,
}

impl NodeWorkers {
    /// New nodes are sent to `arrivals`.
    pub(super) fn new(arrivals: UnboundedSender<(String, Arc<NodeWorker>)>) -> Self {
        Self { by_node: Mutex::default(), arrivals }
    }

    /// Enqueues the pods that a changed object affects.
    pub(super) fn route(&self, informers: &Informers, kind: &ResourceKind, changed: &Value) {
        if *kind == kind::POD {
            self.enqueue(changed);
        } else if *kind == kind::NODE {
            self.observe_node(changed);
            for pod in informers.dynamic(&kind::POD).on_node(object::name(changed)) {
                self.enqueue(&pod);
            }
        } else if *kind != kind::LEASE {
            for pod in informers.dynamic(&kind::POD).in_namespace(object::namespace(changed)) {
                let pending = object::str_at(&pod, "/status/phase") == "Pending";
                if pending && admission::references(&pod, kind, changed) {
                    self.enqueue(&pod);
                }
            }
        }
    }

    fn enqueue(&self, pod: &Value) {
        let by_node = self.by_node.lock();
        if let Some(worker) = by_node.get(object::str_at(pod, "/spec/nodeName")) {
            worker.queue.add(kai_runtime::key_of(pod));
        }
    }

    fn observe_node(&self, node: &Value) {
        let mut by_node = self.by_node.lock();
        let name = object::name(node);
        if let Some(worker) = by_node.get(name) {
            worker.observe(node, None);
        } else if is_simulated(node) {
            let worker = Arc::new(NodeWorker::default());
            worker.observe(node, None);
            by_node.insert(name.to_owned(), Arc::clone(&worker));
            // The receiver is dropped only when the kubelets stop.
            let _ = self.arrivals.send((name.to_owned(), worker));
        }
    }
}
