//! Extension points that observe cycles and add to their results: hooks, handlers, annotations, HTTP.

use crate::cluster::Cluster;
use crate::ids::{NodeIdx, PodIdx};
use crate::outcome::{Cycle, Outcome};
use std::collections::BTreeMap;

/// Observes the beginning and the end of a cycle (KAI: session open and close).
pub trait SessionHook: Send + Sync {
    /// The cycle begins: fair shares are computed, nothing is decided.
    fn opened(&self, _cluster: &Cluster, _cycle: Cycle) {}
    /// All actions ended. The cluster shows their result; the outcome has decisions and verdicts, but no hash.
    fn closed(&self, _cluster: &Cluster, _outcome: &Outcome) {}
}

/// Observes every change of a pod's allocation inside a cycle, at the moment it is made: simulations and their rollback
/// give balanced pairs. What is left when the cycle ends is decided.
pub trait AllocationHandler: Send + Sync {
    /// The pod holds the node: it was allocated, pipelined, or its eviction was undone.
    fn allocated(&self, cluster: &Cluster, change: Allocation);
    /// The pod no longer holds the node: it was evicted, or its allocation was undone.
    fn deallocated(&self, cluster: &Cluster, change: Allocation);
}

/// A pod and the node that it holds or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The pod.
    pub pod: PodIdx,
    /// Its node.
    pub node: NodeIdx,
}

/// Adds annotations to the BindRequest of a pod (KAI: `BindRequestMutateFn`); binder plugins read them.
pub trait BindAnnotations: Send + Sync {
    /// Called once for every committed binding. A later plugin's value replaces an earlier one's. The suggested form
    /// of a key is `<plugin>.kai.scheduler/<key>`.
    fn annotations(&self, cluster: &Cluster, pod: PodIdx, node: NodeIdx) -> BTreeMap<String, String>;
}

/// Answers requests to one path of the scheduler's plugin server.
///
/// It runs on a thread beside the cycles, so its state needs a lock that it shares with the plugin's other entries.
pub trait HttpHandler: Send + Sync {
    /// Answers one request.
    fn answer(&self, request: &HttpRequest) -> HttpResponse;
}

/// A request to the plugin server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The path, which is the registered one.
    pub path: String,
    /// What follows the question mark, as it was sent; empty if there is none.
    pub query: String,
    /// The body.
    pub body: Vec<u8>,
}

/// The answer to an [`HttpRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The value of `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A successful response with a text.
    pub fn text(body: impl Into<String>) -> Self {
        Self::of(200, "text/plain; charset=utf-8", body.into())
    }
    /// A successful response with JSON.
    pub fn json(body: impl Into<String>) -> Self {
        Self::of(200, "application/json", body.into())
    }
    /// An error with a message.
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::of(status, "text/plain; charset=utf-8", message.into())
    }
    fn of(status: u16, content_type: &str, body: String) -> Self {
        Self { status, content_type: content_type.to_owned(), body: body.into_bytes() }
    }
}
