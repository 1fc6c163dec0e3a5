//! Polls the current source of historical usage. The source can be replaced while the scheduler runs.

use super::ledger::Ledger;
use super::ledger::keeper::{Inherited, Keeper};
use super::{Source, Usage};
use crate::metrics::UsageSource;
use kai_clock::Clock;
use kai_runtime::api::Api;
use kai_runtime::kind::Key;
use kai_runtime::watch_value::WatchValue;
use parking_lot::Mutex;
use std::sync::Arc;

/// A source, and the ledger where the scheduler keeps one.
#[derive(Clone, Debug, Default)]
struct Current {
    source: Option<Source>,
    ledger: Option<Arc<Mutex<Ledger>>>,
}

/// The source that is polled; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    current: Arc<Mutex<Current>>,
    generation: WatchValue<u64>,
}

/// A new ledger, if usage comes from one.
pub(crate) fn ledger(source: Option<&Source>) -> Option<Arc<Mutex<Ledger>>> {
    source.and_then(Source::ledger).map(|config| Arc::new(Mutex::new(Ledger::new(config))))
}

impl Feed {
    pub(crate) fn new(source: Option<Source>, ledger: Option<Arc<Mutex<Ledger>>>) -> Self {
        Self { current: Arc::new(Mutex::new(Current { source, ledger })), generation: WatchValue::new(0) }
    }

    pub(crate) fn replace(&self, source: Option<Source>, ledger: Option<Arc<Mutex<Ledger>>>) {
        *self.current.lock() = Current { source, ledger };
        self.generation.modify(|generation| *generation += 1);
    }

    /// Passes every result to `publish`. `name` is that of the first ConfigMap of the ledger. Never returns.
    pub(crate) async fn run(
        self,
        api: Api,
        name: Key,
        clock: Clock,
        metrics: &UsageSource,
        publish: impl Fn(Usage),
    ) {
        let mut inherited = Inherited::default();
        loop {
            let generation = self.generation.get();
            let Current { source, ledger } = self.current.lock().clone();
            let mut keeper = ledger
                .map(|ledger| Keeper::new(api.clone(), name.clone(), ledger, std::mem::take(&mut inherited)));
            let poll = async {
                match source {
                    Some(source) => source.poll(keeper.as_mut(), clock, metrics, &publish).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.generation.wait_for(|current| current != generation) => {}
                () = poll => {}
            }
            metrics.stale.set(0);
            // The ledger of the next source begins with what this one knows, and is saved when that is due.
            if let Some(keeper) = keeper {
                inherited = keeper.finish();
            }
        }
    }
}
