//! Example plugins for operators of a cluster.
//!
//! [`Audit`] shows session hooks, allocation handlers and an HTTP handler, [`MaxRuntime`] shows an action.

mod audit;
mod max_runtime;

pub use audit::Audit;
pub use max_runtime::MaxRuntime;
