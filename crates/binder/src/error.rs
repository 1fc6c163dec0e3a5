//! Why a pod cannot be bound.

use kai_runtime::api;
use std::time::Duration;

/// Why an attempt failed. The text is what users read in the pod's condition and events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server refused a request, or could not be reached.
    #[error("cannot {doing}: {}", refusal.message())]
    Api {
        /// What was being done.
        doing: String,
        /// Why it failed. It is part of the text, since users see nothing else.
        refusal: api::Error,
    },
    /// Something that is needed is not there.
    #[error("{kind} `{name}` not found")]
    Missing {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The request names no GPU for a part of one.
    #[error("the bind request of a pod with a part of a GPU names no GPU groups")]
    NoGroups,
    /// The request was withdrawn while it was being worked on.
    #[error("the bind request was withdrawn")]
    Withdrawn,
    /// New nodes are on their way.
    #[error("cannot reserve a GPU while the cluster scales up: pod `{pod}` waits for a node")]
    ScalingUp {
        /// The pod that makes it scale.
        pod: String,
    },
    /// The reservation pod did not say which GPU it has.
    #[error("reservation pod `{pod}` reported no GPU within {} s", waited.as_secs())]
    ReservationTimeout {
        /// The pod.
        pod: String,
        /// For how long it had the chance.
        waited: Duration,
    },
    /// The reservation pod cannot run.
    #[error("reservation pod `{pod}` failed: {reason}")]
    ReservationFailed {
        /// The pod.
        pod: String,
        /// What its node says.
        reason: String,
    },
    /// Pods use a shared GPU that nothing reserves any more.
    #[error("GPU group `{group}` has lost its reservation while pod `{pod}` uses it")]
    ReservationLost {
        /// The group.
        group: String,
        /// One of its pods.
        pod: String,
    },
    /// The pod lacks what the admission webhook writes.
    #[error("the pod has no annotation `{0}`: the admission webhook has not seen it")]
    Unprepared(&'static str),
    /// The container that is to get the GPU is not there.
    #[error("the pod has no container `{0}`")]
    NoContainer(String),
    /// Storage cannot be used on the node, or does not come.
    #[error("volume claim `{claim}`: {reason}")]
    Volume {
        /// The claim.
        claim: String,
        /// Why.
        reason: String,
    },
    /// Devices cannot be claimed.
    #[error("resource claim `{claim}`: {reason}")]
    Claim {
        /// The claim, as the pod calls it.
        claim: String,
        /// Why.
        reason: String,
    },
    /// The binder has a defect.
    #[error("Internal Error: {0}")]
    Panic(String),
    /// Others write an object so often that no attempt to write it went through.
    #[error("{kind} `{name}` is being written by somebody else")]
    Contended {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A step took too long.
    #[error("{step} took longer than {} s", limit.as_secs())]
    Timeout {
        /// The step.
        step: &'static str,
        /// How long it may take.
        limit: Duration,
    },
}

/// The outcome of a step.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the same attempt may go well a little later though nothing changes: the server was busy or away.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Api { refusal, .. } => {
                refusal.is_transient()
                    || refusal.is_conflict()
                    || matches!(refusal, api::Error::NotLeader { .. })
            }
            Self::Contended { .. } => true,
            Self::Missing { .. }
            | Self::NoGroups
            | Self::Panic(_)
            | Self::Withdrawn
            | Self::ScalingUp { .. }
            | Self::ReservationTimeout { .. }
            | Self::ReservationFailed { .. }
            | Self::ReservationLost { .. }
            | Self::Unprepared(_)
            | Self::NoContainer(_)
            | Self::Volume { .. }
            | Self::Claim { .. }
            | Self::Timeout { .. } => false,
        }
    }
}

/// Names what was being done when a request failed.
pub(crate) trait Doing<T> {
    /// Says what was being done.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for api::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|refusal| Error::Api { doing: what(), refusal })
    }
}
