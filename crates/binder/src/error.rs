//! Errors of bind attempts.

use kai_runtime::api;
use std::time::Duration;

/// Why a bind attempt failed. The text is written to the condition and the events of the pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server rejected a request or did not respond. The cause is part of the text, since the condition contains
    /// nothing else.
    #[error("cannot {operation}: {}", cause.message())]
    Api { operation: String, cause: api::Error },
    #[error("{kind} `{name}` not found")]
    NotFound { kind: &'static str, name: String },
    /// An object of the server does not fit its type.
    #[error("{kind} `{name}` is invalid: {reason}")]
    Invalid { kind: &'static str, name: String, reason: String },
    #[error("the bind request of a pod with a GPU fraction selects no GPU groups")]
    NoGroups,
    #[error("the bind request was withdrawn")]
    Withdrawn,
    #[error("cannot reserve a GPU while the cluster scales up: pod `{pod}` waits for a node")]
    ScalingUp { pod: String },
    #[error("reservation pod `{pod}` reported no GPU within {} s", waited.as_secs())]
    ReservationTimeout { pod: String, waited: Duration },
    #[error("reservation pod `{pod}` failed: {reason}")]
    ReservationFailed { pod: String, reason: String },
    #[error(
        "GPU group `{group}` has lost its reservation while pod `{pod}` uses it; it takes no further pods until the reservation is renewed"
    )]
    ReservationLost { group: String, pod: String },
    /// Containers cannot be changed, so only a new pod helps.
    #[error(
        "the pod was created without the admission webhook: {missing}, and containers cannot be changed; hint: delete the pod \
         and create it again while the webhooks are served (`kai admission --gpu-sharing-enabled`)"
    )]
    NotPrepared { missing: String },
    #[error("the pod has no container `{0}`")]
    NoContainer(String),
    #[error(
        "config map `{map}` belongs to {owner} and is not changed; hint: name another one in the annotation `{}` of the pod",
        kai_api::well_known::annotation::SHARED_GPU_CONFIG_MAP
    )]
    ForeignConfigMap { map: String, owner: String },
    #[error("volume claim `{claim}`: {reason}")]
    Volume { claim: String, reason: String },
    /// `claim` is the name of the entry in the pod's `spec.resourceClaims`.
    #[error("resource claim `{claim}`: {reason}")]
    Claim { claim: String, reason: String },
    /// KAI's text for a panic of a bind attempt.
    #[error("Internal Error: {0}")]
    Panic(String),
    /// A plugin that is not built in failed.
    #[error("binder plugin `{plugin}` failed in {step}: {reason}")]
    Plugin { plugin: String, step: &'static str, reason: String },
    /// All attempts of an optimistic update ended in a conflict.
    #[error("{kind} `{name}` was changed concurrently")]
    Conflict { kind: &'static str, name: String },
    #[error("{step} took longer than {} s", limit.as_secs())]
    Timeout { step: &'static str, limit: Duration },
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the same attempt may succeed later without any other change: the server was overloaded or unreachable, or
    /// an optimistic update conflicted.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Api { cause, .. } => {
                cause.is_transient() || cause.is_conflict() || matches!(cause, api::Error::NotLeader { .. })
            }
            Self::Conflict { .. } => true,
            Self::NotFound { .. }
            | Self::Invalid { .. }
            | Self::NoGroups
            | Self::Panic(_)
            | Self::Plugin { .. }
            | Self::Withdrawn
            | Self::ScalingUp { .. }
            | Self::ReservationTimeout { .. }
            | Self::ReservationFailed { .. }
            | Self::ReservationLost { .. }
            | Self::NotPrepared { .. }
            | Self::NoContainer(_)
            | Self::ForeignConfigMap { .. }
            | Self::Volume { .. }
            | Self::Claim { .. }
            | Self::Timeout { .. } => false,
        }
    }
}

/// Adds the operation to an error of the API client.
pub(crate) trait ApiContext<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ApiContext<T> for api::Result<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Api { operation: operation(), cause })
    }
}
