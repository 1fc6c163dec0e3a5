//! Health of a process: the state of its watches and the progress of its work.
//!
//! Live means that the process serves `/healthz`. Ready means that every watched resource has been listed and its watch
//! works, that no task exceeds its time limit, and that no part reports a problem. A watch of an optional resource that
//! the role does not grant is no reason not to be ready.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a watch may be interrupted before the process is no longer ready. Together with the time after which a silent
/// connection counts as broken (`Keepalive` of [`connect`](crate::connect)) this is less than 45 s.
pub(crate) const INTERRUPTED_MAX: Duration = Duration::from_secs(10);

/// The health of a process; clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<State>>,
    interrupted_max: Duration,
}

impl Default for Health {
    fn default() -> Self {
        Self::tolerating(INTERRUPTED_MAX)
    }
}

#[derive(Debug, Default)]
struct State {
    /// The process finds out what to watch.
    is_discovering: bool,
    watches: BTreeMap<String, Watch>,
    tasks: BTreeMap<&'static str, Task>,
    /// Problems of named parts.
    parts: BTreeMap<String, String>,
    /// Components that run in the process, by name.
    components: BTreeMap<String, Health>,
}

#[derive(Debug)]
enum Watch {
    /// With the last error; empty before the first.
    NotListed(String),
    Healthy,
    /// The role does not grant an optional resource; the component works without it.
    Denied,
    /// The role lets an optional resource be listed and not watched: it is listed again and again.
    Polled,
    /// The store is not kept current: since when, and why.
    Interrupted(Instant, String),
}

#[derive(Debug)]
struct Task {
    /// When the current run began; none between two runs.
    since: Option<Instant>,
    limit: Duration,
}

impl Health {
    /// Ready while no watch is interrupted for longer than this.
    pub fn tolerating(interrupted_max: Duration) -> Self {
        Self { state: Arc::default(), interrupted_max }
    }

    /// Not ready until a watch is added: a process that asks the server first what there is to watch knows nothing yet.
    /// Earlier watches have ended, and readiness no longer depends on them.
    pub fn discovering(&self) {
        let mut state = self.lock();
        state.is_discovering = true;
        state.watches.clear();
    }

    /// Adds a watch that readiness depends on.
    pub fn watch(&self, name: &str) -> WatchHealth {
        let mut state = self.lock();
        state.is_discovering = false;
        state.watches.insert(name.to_owned(), Watch::NotListed(String::new()));
        drop(state);
        WatchHealth { health: self.clone(), name: name.to_owned() }
    }

    /// Begins a task that must end within the limit; it ends when the guard is dropped.
    #[must_use]
    pub fn begin(&self, name: &'static str, limit: Duration) -> TaskGuard {
        self.lock().tasks.insert(name, Task { since: Some(Instant::now()), limit });
        TaskGuard { health: self.clone(), name }
    }

    /// Sets why a part of the process does not work; none when it works again.
    pub fn set_problem(&self, part: &str, problem: Option<String>) {
        let parts = &mut self.lock().parts;
        match problem {
            Some(problem) => parts.insert(part.to_owned(), problem),
            None => parts.remove(part),
        };
    }

    /// Adds the health of a component that runs in the process, or replaces that of its last run.
    pub fn set_component(&self, name: &str, health: Self) {
        self.lock().components.insert(name.to_owned(), health);
    }

    /// Why the process is not ready; empty when it is.
    pub fn problems(&self) -> Vec<String> {
        let now = Instant::now();
        let state = self.lock();
        let watches = state.watches.iter().filter_map(|(name, watch)| match watch {
            Watch::NotListed(why) if why.is_empty() => Some(format!("{name} have not been listed yet")),
            Watch::NotListed(why) => Some(format!("{name} have not been listed yet: {why}")),
            Watch::Interrupted(since, why) if now.duration_since(*since) > self.interrupted_max => {
                let seconds = now.duration_since(*since).as_secs();
                Some(format!("{name} have not been watched for {seconds} s: {why}"))
            }
            Watch::Healthy | Watch::Denied | Watch::Polled | Watch::Interrupted(..) => None,
        });
        let tasks = state.tasks.iter().filter_map(|(name, task)| {
            let spent = now.duration_since(task.since?);
            (spent > task.limit).then(|| format!("{name} has been running for {} s", spent.as_secs()))
        });
        let discovery =
            state.is_discovering.then(|| "the kinds of the API server are not known yet".to_owned());
        let components = state.components.iter().flat_map(|(name, health)| {
            health.problems().into_iter().map(move |problem| format!("{name}: {problem}"))
        });
        let parts = state.parts.values().cloned();
        discovery.into_iter().chain(watches).chain(tasks).chain(parts).chain(components).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The state of a watch, as its source reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState<'a> {
    Listed,
    Healthy,
    Polled,
    /// An optional resource may not be listed, with the message of the server.
    Denied(&'a str),
    Interrupted(&'a str),
}

/// Reports the state of one watch.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    health: Health,
    name: String,
}

impl WatchHealth {
    pub(crate) fn set(&self, state: WatchState<'_>) {
        match state {
            WatchState::Listed => self.listed(),
            WatchState::Healthy => self.healthy(),
            WatchState::Polled => self.polled(),
            WatchState::Denied(_) => self.denied(),
            WatchState::Interrupted(why) => self.interrupted(why),
        }
    }

    pub fn healthy(&self) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name)
            && !matches!(watch, Watch::Healthy)
        {
            *watch = Watch::Healthy;
        }
    }

    /// The resource was listed; whether it may be watched is not known yet, or as before.
    pub fn listed(&self) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name)
            && !matches!(watch, Watch::Polled)
        {
            *watch = Watch::Healthy;
        }
    }

    /// The resource may be listed and not watched.
    pub fn polled(&self) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name) {
            *watch = Watch::Polled;
        }
    }

    /// Whether the resource is listed again and again because it may not be watched.
    pub fn is_polled(&self) -> bool {
        matches!(self.health.lock().watches.get(&self.name), Some(Watch::Polled))
    }

    /// The component works without the resource until its role grants it.
    pub fn denied(&self) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name) {
            *watch = Watch::Denied;
        }
    }

    /// The watch has ended or the list failed; changes are not seen until it is [`healthy`](Self::healthy) again.
    pub fn interrupted(&self, why: &str) {
        if let Some(watch) = self.health.lock().watches.get_mut(&self.name) {
            match watch {
                Watch::Healthy | Watch::Denied | Watch::Polled => {
                    *watch = Watch::Interrupted(Instant::now(), why.to_owned());
                }
                Watch::NotListed(last) | Watch::Interrupted(_, last) => why.clone_into(last),
            }
        }
    }

    /// Why the store is not kept current; none while it is, or has been until a moment ago.
    pub fn problem(&self) -> Option<String> {
        let state = self.health.lock();
        match state.watches.get(&self.name)? {
            Watch::NotListed(why) if why.is_empty() => Some("there is no response yet".to_owned()),
            Watch::NotListed(why) => Some(why.clone()),
            Watch::Interrupted(since, why) => {
                let is_long = Instant::now().duration_since(*since) > self.health.interrupted_max;
                is_long.then(|| why.clone())
            }
            Watch::Denied => Some("the role does not grant it".to_owned()),
            Watch::Healthy | Watch::Polled => None,
        }
    }
}

/// A task in progress.
#[derive(Debug)]
pub struct TaskGuard {
    health: Health,
    name: &'static str,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if let Some(task) = self.health.lock().tasks.get_mut(self.name) {
            task.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn ready_means_listed_watching_and_progressing() {
        let health = Health::default();
        assert!(health.problems().is_empty(), "a replica that does not lead watches nothing, and is ready");
        health.discovering();
        assert_eq!(health.problems(), ["the kinds of the API server are not known yet"]);
        let pods = health.watch("pods");
        assert_eq!(health.problems(), ["pods have not been listed yet"]);
        pods.interrupted("forbidden");
        assert_eq!(health.problems(), ["pods have not been listed yet: forbidden"]);
        pods.healthy();
        assert!(health.problems().is_empty());

        pods.interrupted("the server ended the watch");
        tokio::time::advance(Duration::from_secs(9)).await;
        pods.interrupted("connection refused");
        assert!(health.problems().is_empty(), "an interruption is tolerated for ten seconds");
        assert_eq!(pods.problem(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(health.problems(), ["pods have not been watched for 11 s: connection refused"]);
        assert_eq!(pods.problem().as_deref(), Some("connection refused"));
        pods.healthy();
        assert_eq!(pods.problem(), None);

        let budgets = health.watch("budgets");
        budgets.denied();
        assert!(health.problems().is_empty(), "the component works without an optional resource");
        budgets.interrupted("connection refused");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(health.problems(), ["budgets have not been watched for 11 s: connection refused"]);
        budgets.healthy();

        budgets.polled();
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(health.problems().is_empty(), "the component lists it again and again");
        budgets.listed();
        assert!(budgets.is_polled(), "a list does not say whether it may be watched");
        budgets.healthy();
        assert!(!budgets.is_polled());

        let cycle = health.begin("a cycle", Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(health.problems(), ["a cycle has been running for 11 s"]);
        drop(cycle);
        assert!(health.problems().is_empty());

        health.set_problem("plugin `a`", Some("plugin `a` is cut off".to_owned()));
        assert_eq!(health.problems(), ["plugin `a` is cut off"]);
        health.set_problem("plugin `a`", None);
        assert!(health.problems().is_empty());

        let binder = Health::default();
        health.set_component("binder", binder.clone());
        let requests = binder.watch("bindrequests");
        assert_eq!(health.problems(), ["binder: bindrequests have not been listed yet"]);
        requests.healthy();
        assert!(health.problems().is_empty());

        pods.interrupted("the resource is no longer served");
        tokio::time::advance(Duration::from_secs(11)).await;
        health.discovering();
        let nodes = health.watch("nodes");
        nodes.healthy();
        assert!(health.problems().is_empty(), "the watch of pods has ended: {:?}", health.problems());
    }
}
