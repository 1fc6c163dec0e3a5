//! Limits how many bind attempts run at once; an attempt that only waits does not count.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The right of a bind attempt to run. It can be released while the attempt waits.
#[derive(Debug)]
pub(crate) struct Permit {
    limit: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Permit {
    pub(crate) async fn acquire(limit: &Arc<Semaphore>) -> Self {
        let held = Arc::clone(limit).acquire_owned().await.ok();
        Self { limit: Arc::clone(limit), held }
    }

    /// The semaphore, for parts of the attempt that run concurrently and need permits of their own.
    pub(crate) fn limit(&self) -> Arc<Semaphore> {
        Arc::clone(&self.limit)
    }

    /// Releases the permit while `wait` runs. Every wait for a lock must happen here: otherwise the waiters could hold
    /// all permits that the lock's holder needs.
    pub(crate) async fn release_during<F: Future>(&mut self, wait: F) -> F::Output {
        self.held = None;
        let output = wait.await;
        self.held = Arc::clone(&self.limit).acquire_owned().await.ok();
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn waiting_attempt_holds_no_permit() {
        let limit = Arc::new(Semaphore::new(1));
        let mut permit = Permit::acquire(&limit).await;
        assert_eq!(limit.available_permits(), 0);
        permit
            .release_during(async {
                assert_eq!(limit.available_permits(), 1);
                tokio::time::sleep(Duration::from_secs(1)).await;
            })
            .await;
        assert_eq!(limit.available_permits(), 0);
    }
}
