//! Limits how many requests are worked on at once; who only waits takes no place.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place among those that work.
#[derive(Debug)]
pub(crate) struct Slot {
    places: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
}

impl Slot {
    /// Waits for a place.
    pub(crate) async fn take(places: &Arc<Semaphore>) -> Self {
        let place = Arc::clone(places).acquire_owned().await.ok();
        Self { places: Arc::clone(places), place }
    }

    /// All places, for work that is to be done side by side.
    pub(crate) fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.places)
    }

    /// Leaves the place to others while `wait` goes on. Whoever waits for a lock must do it here: otherwise those who
    /// wait could take all places from the one they wait for.
    pub(crate) async fn idle<F: Future>(&mut self, wait: F) -> F::Output {
        self.place = None;
        let output = wait.await;
        self.place = Arc::clone(&self.places).acquire_owned().await.ok();
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn waiting_takes_no_place() {
        let places = Arc::new(Semaphore::new(1));
        let mut slot = Slot::take(&places).await;
        assert_eq!(places.available_permits(), 0);
        slot.idle(async {
            assert_eq!(places.available_permits(), 1);
            tokio::time::sleep(Duration::from_secs(1)).await;
        })
        .await;
        assert_eq!(places.available_permits(), 0);
    }
}
