//! Restarts components that run inside another process, where no kubelet does.

use anyhow::Result;
use futures::FutureExt as _;
use kai_runtime::backoff::{Backoff, BackoffPolicy};
use parking_lot::Mutex;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay before a component is started again.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_mins(1));
/// A component that ran for this long had started well: its next end is the first again.
const STABLE_AFTER: Duration = Duration::from_mins(2);
/// Restarts that are kept until they are shown.
const NOTICES_MAX: usize = 100;

/// What there is to say about restarts; clones share it.
#[derive(Clone, Default)]
pub struct Restarts {
    notices: Arc<Mutex<Vec<String>>>,
    report: Option<Arc<Report>>,
}

/// Receives the name of a component, and why it is restarted.
type Report = dyn Fn(&str, &str) + Send + Sync;

impl std::fmt::Debug for Restarts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restarts").field("notices", &self.notices).finish_non_exhaustive()
    }
}

impl Restarts {
    /// Restarts that are passed on at once and not kept.
    pub fn reporting(report: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Self { report: Some(Arc::new(report)), ..Self::default() }
    }

    /// The restarts since the last call, one line each.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock())
    }

    /// Runs a component until it ends in order. One that fails or panics is started again with backoff.
    pub async fn supervise<F: Future<Output = Result<()>>>(&self, name: &str, mut start: impl FnMut() -> F) {
        let mut backoff = Backoff::new(BACKOFF);
        loop {
            let began = Instant::now();
            // All state of a component is in its future, which is dropped.
            let why = match AssertUnwindSafe(async { start().await }).catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => format!("failed: {error:#}"),
                Err(panic) => format!("panicked: {}", message(panic.as_ref())),
            };
            if began.elapsed() > STABLE_AFTER {
                backoff.reset();
            }
            let delay = backoff.next_delay();
            tracing::error!(component = name, seconds = delay.as_secs(), "{why}; the component is restarted");
            match &self.report {
                Some(report) => report(name, &why),
                None => self.add(format!("{name} {why}; it is restarted in {} s", delay.as_secs())),
            }
            tokio::time::sleep(delay).await;
        }
    }

    fn add(&self, notice: String) {
        let mut notices = self.notices.lock();
        if notices.len() < NOTICES_MAX {
            notices.push(notice);
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn component_that_panics_or_fails_is_restarted_with_backoff_and_reported() {
        let restarts = Restarts::default();
        let (began, mut runs) = (Instant::now(), 0);
        let run = || {
            runs += 1;
            let run = runs;
            async move {
                match run {
                    1 => panic!("no such pod"),
                    2 => bail!("one of its tasks ended"),
                    3 => {
                        tokio::time::sleep(STABLE_AFTER * 2).await;
                        bail!("the lease is lost")
                    }
                    _ => Ok(()),
                }
            }
        };
        restarts.supervise("binder", run).await;
        assert_eq!(runs, 4);
        assert_eq!(began.elapsed(), STABLE_AFTER * 2 + BACKOFF.base * (1 + 2 + 1));
        let expected = [
            "binder panicked: no such pod; it is restarted in 1 s",
            "binder failed: one of its tasks ended; it is restarted in 2 s",
            "binder failed: the lease is lost; it is restarted in 1 s",
        ];
        assert_eq!(restarts.take(), expected);
        assert!(restarts.take().is_empty());
    }
}
