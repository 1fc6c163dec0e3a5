//! Says whether a process does its work: its watches are fresh and what it does makes progress.
//!
//! Live means that the process answers. Ready means more: everything that it watches has been read and is current, and
//! no piece of work has been going on for longer than it may.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a watch may be broken before the process is no longer ready.
const STALE_MAX: Duration = Duration::from_mins(1);

/// The health of a process; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    watches: BTreeMap<String, Watch>,
    work: BTreeMap<&'static str, Work>,
}

#[derive(Debug)]
enum Watch {
    /// It has not been read yet.
    Unread,
    Fresh,
    /// Broken since then, and why.
    Stale(Instant, String),
}

#[derive(Debug)]
struct Work {
    /// Since when it goes on, if it does.
    since: Option<Instant>,
    limit: Duration,
}

impl Health {
    /// One more watch that must be fresh.
    pub fn watch(&self, name: &str) -> Freshness {
        self.lock().watches.insert(name.to_owned(), Watch::Unread);
        Freshness { health: self.clone(), name: name.to_owned() }
    }

    /// Work that must not go on for longer than this; it begins now and ends when the value is dropped.
    #[must_use]
    pub fn work(&self, name: &'static str, limit: Duration) -> Working {
        self.lock().work.insert(name, Work { since: Some(Instant::now()), limit });
        Working { health: self.clone(), name }
    }

    /// What keeps the process from being ready, in words.
    pub fn complaints(&self) -> Vec<String> {
        let now = Instant::now();
        let state = self.lock();
        let watches = state.watches.iter().filter_map(|(name, watch)| match watch {
            Watch::Unread => Some(format!("{name} have not been read yet")),
            Watch::Stale(since, why) if now.duration_since(*since) > STALE_MAX => {
                Some(format!("{name} are out of date for {} s: {why}", now.duration_since(*since).as_secs()))
            }
            Watch::Fresh | Watch::Stale(..) => None,
        });
        let work = state.work.iter().filter_map(|(name, work)| {
            let spent = now.duration_since(work.since?);
            (spent > work.limit).then(|| format!("{name} has been going on for {} s", spent.as_secs()))
        });
        watches.chain(work).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells how current one watch is.
#[derive(Clone, Debug)]
pub struct Freshness {
    health: Health,
    name: String,
}

impl Freshness {
    /// The watch works.
    pub fn fresh(&self) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name)
            && !matches!(watch, Watch::Fresh)
        {
            *watch = Watch::Fresh;
        }
    }

    /// The watch is broken.
    pub fn stale(&self, why: &str) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name) {
            match watch {
                Watch::Fresh => *watch = Watch::Stale(Instant::now(), why.to_owned()),
                Watch::Unread => {}
                Watch::Stale(_, last) => why.clone_into(last),
            }
        }
    }
}

/// Work in progress.
#[derive(Debug)]
pub struct Working {
    health: Health,
    name: &'static str,
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(work) = self.health.lock().work.get_mut(self.name) {
            work.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn ready_means_read_fresh_and_progressing() {
        let health = Health::default();
        let pods = health.watch("pods");
        assert_eq!(health.complaints(), ["pods have not been read yet"]);
        pods.fresh();
        assert!(health.complaints().is_empty());

        pods.stale("connection refused");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(health.complaints().is_empty(), "a broken watch has a minute to heal");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(health.complaints(), ["pods are out of date for 61 s: connection refused"]);
        pods.fresh();

        let cycle = health.work("a cycle", Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(health.complaints(), ["a cycle has been going on for 11 s"]);
        drop(cycle);
        assert!(health.complaints().is_empty());
    }
}
