//! Holds a whole process back while its server cannot answer: fewer and fewer requests, until one is answered.
//!
//! Whoever sends retries by itself, for each object with its own pauses. That is too much for a server in trouble when
//! there are many objects, so all requests of a client share one brake. While it is on, one request goes at a time, and
//! the time between two grows; the first that is answered lets all others go. A single object for which the server
//! always fails, say because of a broken webhook, holds its neighbours back for a moment and no longer.

use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time between two requests after a first failure; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(200);
/// The most by which it doubles: up to ten seconds.
const PAUSE_MAX: Duration = Duration::from_secs(10);
const LEVEL_MAX: u32 = 7;
/// The longest pause that a server may ask for.
const ASKED_MAX: Duration = Duration::from_mins(1);

/// Holds requests back; see the module.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When the next request may go; nothing while the server answers.
    next: Option<Instant>,
    /// Since when it is on as hard as it is.
    since: Option<Instant>,
    level: u32,
    /// What failed since the last answer; more than the highest level are not kept.
    failing: FxHashSet<u64>,
}

impl State {
    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(1 << self.level.saturating_sub(1)).min(PAUSE_MAX)
    }
}

impl Brake {
    /// Waits until a request may go, and says when that is.
    pub(crate) async fn turn(&self) -> Instant {
        loop {
            let released = self.released.notified();
            let now = Instant::now();
            let at = {
                let mut state = self.lock();
                match state.next {
                    None => return now,
                    Some(at) if at <= now => {
                        state.next = Some(now + state.pause());
                        return now;
                    }
                    Some(at) => at,
                }
            };
            tokio::select! {
                biased;
                () = released => {}
                () = tokio::time::sleep_until(at) => {}
            }
        }
    }

    /// The server answered, whatever it said.
    pub(crate) fn answered(&self) {
        let mut state = self.lock();
        if state.next.is_some() {
            *state = State::default();
            drop(state);
            self.released.notify_waiters();
        }
    }

    /// The server could not answer a request for this path that was sent then; it may have asked for a pause.
    pub(crate) fn failed(&self, path: &str, sent: Instant, asked: Option<Duration>) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.failing.len() < LEVEL_MAX as usize {
            let mut hasher = FxHasher::default();
            path.split('?').next().hash(&mut hasher);
            state.failing.insert(hasher.finish());
        }
        // Requests that were under way together fail together, and that is one failure.
        if state.since.is_none_or(|since| sent > since) {
            // Few things that fail, out of many, say little of the server.
            let most = (2 * state.failing.len() as u32).saturating_sub(1);
            state.level = (state.level + 1).min(most).min(LEVEL_MAX);
            state.since = Some(now);
            let next = now + state.pause();
            state.next = Some(state.next.map_or(next, |known| known.max(next)));
        }
        if let Some(asked) = asked {
            let next = now + asked.min(ASKED_MAX);
            state.next = Some(state.next.map_or(next, |known| known.max(next)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends for paths in turn, all of which fail at once; says how many requests that were by then.
    async fn fail_for(brake: &Brake, time: Duration, paths: &[&str]) -> usize {
        let end = Instant::now() + time;
        let mut sent = 0;
        loop {
            let at = brake.turn().await;
            if at >= end {
                return sent;
            }
            tokio::time::sleep(MS).await;
            brake.failed(paths[sent % paths.len()], at, None);
            sent += 1;
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_server_that_fails_for_everything_is_asked_ever_less() {
        let brake = Brake::default();
        let paths = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let sent = fail_for(&brake, Duration::from_mins(5), &paths).await;
        assert!((30..45).contains(&sent), "{sent}");
        brake.answered();
        let before = Instant::now();
        brake.turn().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn one_object_that_always_fails_holds_the_others_back_for_a_moment_only() {
        let brake = Brake::default();
        fail_for(&brake, Duration::from_mins(5), &["a?x=1", "a?x=2"]).await;
        let before = Instant::now();
        brake.turn().await;
        assert!(before.elapsed() <= PAUSE, "{:?}", before.elapsed());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn what_fails_together_is_one_failure_and_an_answer_lets_everybody_go() {
        let brake = Brake::default();
        let sent = brake.turn().await;
        tokio::time::sleep(MS).await;
        for path in ["a", "b", "c", "d", "e"] {
            brake.failed(path, sent, None);
        }
        let before = Instant::now();
        brake.turn().await;
        assert_eq!(before.elapsed(), PAUSE);
        let all = async {
            for _ in 0..100 {
                brake.turn().await;
            }
        };
        let before = Instant::now();
        tokio::join!(all, async {
            tokio::time::sleep(MS).await;
            brake.answered();
        });
        assert_eq!(before.elapsed(), MS);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_pause_that_the_server_asks_for_is_kept() {
        let brake = Brake::default();
        let sent = brake.turn().await;
        brake.failed("a", sent, Some(Duration::from_secs(30)));
        let before = Instant::now();
        brake.turn().await;
        assert_eq!(before.elapsed(), Duration::from_secs(30));
    }
}
