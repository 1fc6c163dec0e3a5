//! A component with its options, ready to run: alone in a process, or beside others.

use crate::process::ComponentProcess;
use anyhow::Result;
use kai_runtime::Process;
use std::pin::Pin;
use std::sync::Arc;

/// A component that runs; ends only when one of its tasks has failed.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
type Serving<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
type Serve = Box<dyn for<'a> FnOnce(&'a mut ComponentProcess) -> Serving<'a>>;

/// A component with its options.
pub struct Part {
    /// `--qps` and `--burst` of its own.
    pub(crate) limits: (f64, u32),
    /// Starts what the leader does; again after a failure.
    pub(crate) start: Arc<dyn Fn(Process) -> Running + Send + Sync>,
    /// Starts the servers of every replica.
    pub(crate) serve: Serve,
    /// What tells two components of one kind apart: the node pool of a scheduler.
    pub(crate) pool: Option<String>,
    /// The lease of a scheduler, which follows from its name and node pool; none for that of the table.
    pub(crate) lease: Option<String>,
}

impl Part {
    /// A component without servers of its own.
    pub(crate) fn new(
        limits: (f64, u32),
        start: impl Fn(Process) -> Running + Send + Sync + 'static,
    ) -> Self {
        Self {
            limits,
            start: Arc::new(start),
            serve: Box::new(|_| Box::pin(async { Ok(()) })),
            pool: None,
            lease: None,
        }
    }

    pub(crate) fn serving(
        self,
        serve: impl for<'a> FnOnce(&'a mut ComponentProcess) -> Serving<'a> + 'static,
    ) -> Self {
        Self { serve: Box::new(serve), ..self }
    }
}
