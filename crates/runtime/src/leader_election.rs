//! Leader election by a Lease: of several replicas of a component one is active.
//!
//! The protocol is that of client-go's `leaderelection`. A lease can be acquired when it has no holder, or when this
//! candidate observed no change of it for its duration; clocks of different machines are never compared. Every write has a
//! resource version as its precondition, so two candidates cannot both acquire it. A leader that could not renew the lease
//! for [`Timing::renew`] stops; writes through a fenced client are refused from then on, before another candidate can
//! have acquired the lease.

use crate::api::{Api, Error, Part, Result};
use crate::kind::{Key, LEASE};
use kai_clock::Clock;
use kai_object as object;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Lease duration, renew deadline and retry period; the defaults are those of client-go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub lease: Duration,
    pub renew: Duration,
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

#[derive(Clone, Debug)]
pub struct Candidate {
    pub lease: Key,
    /// Unique among the candidates.
    pub identity: String,
    pub timing: Timing,
}

/// The acquired leadership; clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Arc<Mutex<Instant>>,
}

impl Leadership {
    /// Whether no other candidate can have acquired the lease.
    pub fn is_held(&self) -> bool {
        Instant::now() < *self.until.lock()
    }

    fn extend(&self, until: Instant) {
        *self.until.lock() = until;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub identity: String,
    /// By the clock of the holder.
    pub renewed: String,
}

/// Where a lease names its holder.
const HOLDER: &str = "/spec/holderIdentity";

/// Time before a failed renewal is repeated.
const FAILED_RENEWAL_RETRY: Duration = Duration::from_secs(1);

/// The last observed record of the lease.
#[derive(Debug, Default)]
struct Observed {
    lease: Option<Value>,
    /// When it last changed, by the local clock.
    changed: Option<Instant>,
}

impl Candidate {
    /// The holder that the lease names; none where it was released or never acquired.
    pub async fn holder(&self, api: &Api) -> Result<Option<Holder>> {
        let lease = match api.get_dynamic(&LEASE, &self.lease).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = |field: &str| object::str_at(&lease, field).to_owned();
        let holder = Holder { identity: text(HOLDER), renewed: text("/spec/renewTime") };
        Ok(Some(holder).filter(|holder| !holder.identity.is_empty()))
    }

    /// Waits until the lease is acquired.
    pub async fn acquire(&self, api: &Api, clock: Clock) -> Leadership {
        let mut observed = Observed::default();
        let mut logged = String::new();
        loop {
            let began = Instant::now();
            // A response after the renew deadline does not count: the lease may have expired by then.
            let acquired = timeout(self.timing.renew, self.try_acquire(api, clock, &mut observed)).await;
            let late = |_| Err(Error::Timeout { path: LEASE.path_of(&self.lease) });
            match acquired.unwrap_or_else(late) {
                Ok(true) => {
                    tracing::info!(lease = %self.lease, identity = self.identity, "acquired the lease");
                    return Leadership { until: Arc::new(Mutex::new(began + self.timing.renew)) };
                }
                Ok(false) => {
                    let holder = observed.holder();
                    if logged != holder {
                        tracing::info!(lease = %self.lease, holder, "another replica leads");
                        holder.clone_into(&mut logged);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = %self.lease, error = &error as &dyn std::error::Error, "cannot acquire the lease");
                }
            }
            tokio::time::sleep(self.timing.retry).await;
        }
    }

    /// Renews the lease; returns when it is lost.
    async fn renew(&self, api: &Api, clock: Clock, leadership: &Leadership) {
        let mut observed = Observed::default();
        let mut delay = self.timing.retry;
        loop {
            tokio::time::sleep(delay).await;
            // A failed renewal is repeated soon: the deadline may be before the next regular one.
            delay = self.timing.retry.min(FAILED_RENEWAL_RETRY);
            if !leadership.is_held() {
                break;
            }
            let began = Instant::now();
            // A response after the renew deadline does not count.
            let renewed = timeout(self.timing.renew, self.try_acquire(api, clock, &mut observed)).await;
            match renewed {
                Ok(Ok(true)) => {
                    leadership.extend(began + self.timing.renew);
                    delay = self.timing.retry;
                }
                Ok(Ok(false)) => break,
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.lease, error = &error as &dyn std::error::Error, "cannot renew the lease");
                }
                Err(_) => {
                    tracing::warn!(lease = %self.lease, "the lease was not renewed within the deadline");
                }
            }
        }
        // Another replica may lead already: no write may follow, also while the process is still ending.
        leadership.extend(Instant::now());
        tracing::error!(lease = %self.lease, identity = self.identity, "lost the lease");
    }

    /// Releases the lease, so that the next leader need not wait for it to expire.
    pub async fn release(&self, api: &Api, clock: Clock) -> Result<()> {
        let lease = match api.get_dynamic(&LEASE, &self.lease).await {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        if object::str_at(&lease, HOLDER) != self.identity {
            return Ok(());
        }
        let mut released = lease.clone();
        let spec = object::map_mut(&mut released, "spec");
        spec.insert("holderIdentity".to_owned(), Value::from(""));
        spec.insert("leaseDurationSeconds".to_owned(), Value::from(1));
        spec.insert("renewTime".to_owned(), Value::from(clock.micro_time()));
        api.patch_difference_dynamic(&LEASE, Part::Main, &lease, &released).await.map(|_| ())
    }

    /// Acquires or renews the lease if possible; returns whether this candidate holds it.
    async fn try_acquire(&self, api: &Api, clock: Clock, observed: &mut Observed) -> Result<bool> {
        let now = clock.micro_time();
        let old = match api.get_dynamic(&LEASE, &self.lease).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return self.create(api, &now, observed).await,
            Err(error) => return Err(error),
        };
        let ours = self.is_holder(&old)?;
        observed.update(&old);
        let holder = object::str_at(&old, HOLDER);
        if !ours && !holder.is_empty() && !observed.is_expired(&old) {
            return Ok(false);
        }
        let mut new = old.clone();
        let spec = object::map_mut(&mut new, "spec");
        if !ours {
            let transitions = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
            spec.insert("leaseTransitions".to_owned(), Value::from(transitions.saturating_add(1)));
            spec.insert("acquireTime".to_owned(), Value::from(now.as_str()));
            spec.insert("holderIdentity".to_owned(), Value::from(self.identity.as_str()));
        }
        spec.insert("leaseDurationSeconds".to_owned(), Value::from(self.timing.lease.as_secs()));
        spec.insert("renewTime".to_owned(), Value::from(now));
        match api.patch_difference_dynamic(&LEASE, Part::Main, &old, &new).await {
            Ok(written) => {
                let written = written.unwrap_or(new);
                let is_holder = self.is_holder(&written)?;
                observed.update(&written);
                Ok(is_holder)
            }
            // Another candidate was faster; the next attempt reads which.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, api: &Api, now: &str, observed: &mut Observed) -> Result<bool> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.lease.name, "namespace": self.lease.namespace},
            "spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": self.timing.lease.as_secs(),
                "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
            },
        });
        match api.create_dynamic(&LEASE, &self.lease.namespace, &lease).await {
            Ok(created) => {
                let is_holder = self.is_holder(&created)?;
                observed.update(&created);
                Ok(is_holder)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a response says that this candidate holds the lease. A proxy may answer in place of the server, with a page of
    /// its own and status 200: that grants no lease.
    fn is_holder(&self, lease: &Value) -> Result<bool> {
        if object::name(lease) != self.lease.name {
            return Err(Error::Malformed { path: LEASE.path_of(&self.lease), field: "metadata.name" });
        }
        Ok(object::str_at(lease, HOLDER) == self.identity)
    }
}

impl Observed {
    fn update(&mut self, lease: &Value) {
        if self.lease.as_ref().is_none_or(|known| known.get("spec") != lease.get("spec")) {
            self.lease = Some(lease.clone());
            self.changed = Some(Instant::now());
        }
    }

    fn holder(&self) -> &str {
        self.lease.as_ref().map_or("", |lease| object::str_at(lease, HOLDER))
    }

    /// Whether the lease has not changed for its duration.
    fn is_expired(&self, lease: &Value) -> bool {
        let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).unwrap_or(0);
        self.changed.is_some_and(|changed| changed.elapsed() >= Duration::from_secs(seconds))
    }
}

/// Renews an acquired lease in a task of its own, so that work that keeps its thread busy does not delay a renewal. The
/// task ends when the lease is lost; dropping the set stops it.
pub fn spawn_renewal(candidate: &Candidate, api: &Api, clock: Clock, leadership: &Leadership) -> JoinSet<()> {
    let (candidate, api, leadership) = (candidate.clone(), api.clone(), leadership.clone());
    let mut task = JoinSet::new();
    task.spawn(async move { candidate.renew(&api, clock, &leadership).await });
    task
}

/// Acquires the lease, then runs `work` until it ends or the lease is lost; `work` is dropped by then.
pub async fn run_as_leader<F: Future>(
    candidate: &Candidate,
    api: &Api,
    clock: Clock,
    work: impl FnOnce(Leadership) -> F,
) -> Option<F::Output> {
    let leadership = candidate.acquire(api, clock).await;
    let mut renewal = spawn_renewal(candidate, api, clock, &leadership);
    let work = work(leadership);
    tokio::select! {
        biased;
        _ = renewal.join_next() => None,
        output = work => Some(output),
    }
}

/// Whether a write was refused because the lease was lost.
pub fn is_lost(error: &Error) -> bool {
    matches!(error, Error::NotLeader { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_apiserver::{ApiServer, Options};

    /// In real time: a paused clock does not advance while a thread is busy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn lease_is_renewed_while_the_work_keeps_its_thread_busy() {
        let clock = Clock::system();
        let server = ApiServer::new(&Options::new(1, clock));
        let api = Api::new(kube::Client::new(server.service(), "default"), "test");
        let millis = Duration::from_millis;
        let candidate = Candidate {
            lease: Key::new("default", "test"),
            identity: "a".to_owned(),
            timing: Timing { lease: millis(4_500), renew: millis(3_000), retry: millis(300) },
        };
        let work = |leadership: Leadership| async move {
            // A long scheduling cycle, or a snapshot of a large cluster.
            std::thread::sleep(millis(6_000));
            leadership.is_held()
        };
        assert_eq!(run_as_leader(&candidate, &api.isolated(), clock, work).await, Some(true));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn response_that_is_no_lease_neither_ends_the_process_nor_grants_leadership() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let candidate = Candidate {
            lease: Key::new("default", "test"),
            identity: "a".to_owned(),
            timing: Timing::default(),
        };
        let bodies = ["[]", "[{}]", r#""text""#, "7", "null", "{}", r#"{"spec": "text"}"#];
        for body in bodies {
            let server = axum::Router::new().fallback(async move || body);
            let api = Api::new(kube::Client::new(server, "default"), "test");
            let acquired = candidate.try_acquire(&api, clock, &mut Observed::default()).await;
            assert!(acquired.is_err(), "{body}: {acquired:?}");
            assert!(candidate.holder(&api).await.unwrap_or_default().is_none(), "{body}");
            let _ = candidate.release(&api, clock).await;
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn lease_with_absurd_numbers_is_acquired() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let candidate = Candidate {
            lease: Key::new("default", "test"),
            identity: "a".to_owned(),
            timing: Timing::default(),
        };
        // The released lease, before and after the write.
        let respond = async |method: axum::http::Method| {
            let holder = if method == axum::http::Method::GET { "" } else { "a" };
            json!({"metadata": {"name": "test"}, "spec": {
                "holderIdentity": holder, "leaseTransitions": i64::MAX, "leaseDurationSeconds": u64::MAX,
            }})
            .to_string()
        };
        let server = axum::Router::new().fallback(respond);
        let api = Api::new(kube::Client::new(server, "default"), "test");
        assert!(candidate.try_acquire(&api, clock, &mut Observed::default()).await.unwrap());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn no_write_follows_when_another_replica_takes_the_lease() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(&Options::new(1, clock));
        let api = Api::new(kube::Client::new(server.service(), "default"), "test");
        let candidate = Candidate {
            lease: Key::new("default", "test"),
            identity: "a".to_owned(),
            timing: Timing::default(),
        };
        let leadership = candidate.acquire(&api, clock).await;
        let mut renewal = spawn_renewal(&candidate, &api, clock, &leadership);
        let lease = api.get_dynamic(&LEASE, &candidate.lease).await.unwrap();
        let mut taken = lease.clone();
        taken["spec"]["holderIdentity"] = Value::from("b");
        api.patch_difference_dynamic(&LEASE, Part::Main, &lease, &taken).await.unwrap();
        renewal.join_next().await;
        assert!(!leadership.is_held(), "the renew deadline has not passed, but the lease is lost");
    }
}
