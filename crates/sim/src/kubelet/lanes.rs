//! Which kubelet has to look at what: every node has a queue of its own, so that no node waits for another.

use super::admission;
use crate::node::heartbeat::{Failure, is_simulated};
use jiff::Timestamp;
use kai_object as object;
use kai_runtime::cache::Caches;
use kai_runtime::kind::{self, Key, Kind};
use kai_runtime::queue::Queue;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// What one node has to do, and what it knows of itself.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) queue: Queue,
    power: Mutex<Power>,
}

/// Whether a node was down, and when it came back.
#[derive(Clone, Copy, Debug, Default)]
enum Power {
    #[default]
    Steady,
    Down,
    BackSince(Timestamp),
}

impl Lane {
    /// Notes that the node is down, or at `now` that it is back; says when it came back last.
    pub(super) fn note(&self, node: &Value, now: Option<Timestamp>) -> Option<Timestamp> {
        let mut power = self.power.lock().unwrap_or_else(PoisonError::into_inner);
        *power = match (Failure::of(node), *power, now) {
            (Some(Failure::Down), _, _) => Power::Down,
            (Some(Failure::Unreachable | Failure::NotReady) | None, Power::Down, Some(now)) => {
                Power::BackSince(now)
            }
            (Some(Failure::Unreachable | Failure::NotReady) | None, known, _) => known,
        };
        match *power {
            Power::BackSince(time) => Some(time),
            Power::Steady | Power::Down => None,
        }
    }
}

/// The lanes of all simulated nodes.
#[derive(Debug)]
pub(super) struct Lanes {
    by_node: Mutex<BTreeMap<String, Arc<Lane>>>,
    arrivals: UnboundedSender<(String, Arc<Lane>)>,
}

impl Lanes {
    /// No lanes yet; each node that appears is told to whoever runs kubelets.
    pub(super) fn new(arrivals: UnboundedSender<(String, Arc<Lane>)>) -> Self {
        Self { by_node: Mutex::default(), arrivals }
    }

    /// Tells those nodes that a changed object concerns.
    pub(super) fn route(&self, caches: &Caches, kind: &Kind, changed: &Value) {
        if *kind == kind::POD {
            self.wake(changed);
        } else if *kind == kind::NODE {
            self.note(changed);
            for pod in caches.on_node(&kind::POD, object::name(changed)) {
                self.wake(&pod);
            }
        } else if *kind != kind::LEASE {
            for pod in caches.in_namespace(&kind::POD, object::namespace(changed)) {
                let waits = object::str_at(&pod, "/status/phase") == "Pending";
                if waits && admission::names(&pod, kind, changed) {
                    self.wake(&pod);
                }
            }
        }
    }

    fn wake(&self, pod: &Value) {
        let by_node = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = by_node.get(object::str_at(pod, "/spec/nodeName")) {
            lane.queue.add(Key::of(pod));
        }
    }

    fn note(&self, node: &Value) {
        let mut by_node = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        let name = object::name(node);
        if let Some(lane) = by_node.get(name) {
            lane.note(node, None);
        } else if is_simulated(node) {
            let lane = Arc::new(Lane::default());
            lane.note(node, None);
            by_node.insert(name.to_owned(), Arc::clone(&lane));
            // Nobody receives only when everything is about to stop.
            let _ = self.arrivals.send((name.to_owned(), lane));
        }
    }
}
