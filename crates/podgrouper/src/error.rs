//! Why a pod cannot be grouped.

use crate::owner_chain;
use kai_runtime::api;
use kai_runtime::invalid::InvalidObject;

/// Why a pod cannot be grouped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Api(#[from] api::Error),
    #[error(transparent)]
    Owner(#[from] owner_chain::Error),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("pod group `{}` is invalid and is not changed: {}", .0.key.name, .0.reason)]
    InvalidGroup(Box<InvalidObject>),
}

/// A workload from which no group can be derived: which object, and what to change in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{name}`: {problem}")]
pub struct Invalid {
    pub kind: String,
    pub name: String,
    pub problem: String,
}

impl Invalid {
    pub fn new(kind: &str, name: &str, problem: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), name: name.to_owned(), problem: problem.into() }
    }
}
