//! Elects a leader by a Lease: of several copies of a process one works, and the others wait.
//!
//! The rule is the one of Kubernetes' own components. A lease is free when it has no holder, or when *we* saw no change
//! of it for its duration: the holder's clock is never compared with ours. Every write compares versions, so two
//! candidates cannot both take it. The leader renews it all the time; when it could not for [`Timing::renew`], it is
//! leader no longer, and everything it writes through a fenced client is refused from then on, before anybody else
//! can have taken the lease.

use crate::api::{Api, Error, Part, Result};
use crate::kind::{Key, LEASE};
use kai_clock::Clock;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long everything takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a leader that says nothing.
    pub lease: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew: Duration,
    /// Time between two tries.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Where the lease is.
    pub lease: Key,
    /// What the candidate calls itself; no other may.
    pub identity: String,
    /// How long everything takes.
    pub timing: Timing,
}

/// That we lead; clones are the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Arc<Mutex<Instant>>,
}

impl Leadership {
    /// Whether we still lead for sure.
    pub fn is_held(&self) -> bool {
        Instant::now() < *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Whoever holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What it calls itself.
    pub identity: String,
    /// When it last renewed the lease, by its own clock.
    pub renewed: String,
}

/// What a candidate has seen of the lease.
#[derive(Debug, Default)]
struct Seen {
    lease: Option<Value>,
    /// When it last changed, by our clock.
    changed: Option<Instant>,
}

impl Candidate {
    /// Who holds the lease, as it says, and when that was last renewed; nobody where it was given back or never taken.
    pub async fn holder(&self, api: &Api) -> Result<Option<Holder>> {
        let lease = match api.get(&LEASE, &self.lease).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = |field: &str| lease["spec"][field].as_str().unwrap_or_default().to_owned();
        let holder = Holder { identity: text("holderIdentity"), renewed: text("renewTime") };
        Ok(Some(holder).filter(|holder| !holder.identity.is_empty()))
    }

    /// Waits until the lease is ours.
    pub async fn acquire(&self, api: &Api, clock: Clock) -> Leadership {
        let mut seen = Seen::default();
        let mut told = String::new();
        loop {
            let began = Instant::now();
            // An answer that comes too late is none: the lease would be over by then.
            let taken = timeout(self.timing.renew, self.try_to_take(api, clock, &mut seen)).await;
            let late = |_| Err(Error::NoAnswer { path: LEASE.path_of(&self.lease) });
            match taken.unwrap_or_else(late) {
                Ok(true) => {
                    tracing::info!(lease = %self.lease, identity = self.identity, "leading");
                    return Leadership { until: Arc::new(Mutex::new(began + self.timing.renew)) };
                }
                Ok(false) => {
                    let holder = seen.holder();
                    if told != holder {
                        tracing::info!(lease = %self.lease, holder, "somebody else leads");
                        holder.clone_into(&mut told);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = %self.lease, error = &error as &dyn std::error::Error, "cannot take the lease");
                }
            }
            tokio::time::sleep(self.timing.retry).await;
        }
    }

    /// Keeps the lease, for as long as that works; returns when it is lost.
    pub async fn hold(&self, api: &Api, clock: Clock, leadership: &Leadership) {
        let mut seen = Seen::default();
        loop {
            tokio::time::sleep(self.timing.retry).await;
            if !leadership.is_held() {
                break;
            }
            let began = Instant::now();
            // An answer that comes too late is none.
            let renewed = timeout(self.timing.renew, self.try_to_take(api, clock, &mut seen)).await;
            match renewed {
                Ok(Ok(true)) => leadership.extend(began + self.timing.renew),
                Ok(Ok(false)) => break,
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.lease, error = &error as &dyn std::error::Error, "cannot renew the lease");
                }
                Err(_) => tracing::warn!(lease = %self.lease, "renewing the lease takes too long"),
            }
        }
        tracing::error!(lease = %self.lease, identity = self.identity, "the lease is lost");
    }

    /// Gives the lease back, so that the next leader need not wait.
    pub async fn release(&self, api: &Api, clock: Clock) -> Result<()> {
        let lease = api.get(&LEASE, &self.lease).await?;
        if lease["spec"]["holderIdentity"] != self.identity.as_str() {
            return Ok(());
        }
        let mut free = lease.clone();
        free["spec"]["holderIdentity"] = Value::from("");
        free["spec"]["leaseDurationSeconds"] = Value::from(1);
        free["spec"]["renewTime"] = Value::from(clock.micro_time());
        api.update(&LEASE, Part::Main, &lease, &free).await.map(|_| ())
    }

    /// Takes or renews the lease, if it is free or ours; says whether it is ours.
    async fn try_to_take(&self, api: &Api, clock: Clock, seen: &mut Seen) -> Result<bool> {
        let now = clock.micro_time();
        let old = match api.get(&LEASE, &self.lease).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return self.make(api, &now, seen).await,
            Err(error) => return Err(error),
        };
        seen.note(&old);
        let holder = old["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let ours = holder == self.identity;
        if !ours && !holder.is_empty() && !seen.is_over(&old) {
            return Ok(false);
        }
        let mut new = old.clone();
        let spec = &mut new["spec"];
        if !ours {
            let transitions = spec["leaseTransitions"].as_i64().unwrap_or(0);
            spec["leaseTransitions"] = Value::from(transitions + 1);
            spec["acquireTime"] = Value::from(now.as_str());
            spec["holderIdentity"] = Value::from(self.identity.as_str());
        }
        spec["leaseDurationSeconds"] = Value::from(self.timing.lease.as_secs());
        spec["renewTime"] = Value::from(now);
        match api.update(&LEASE, Part::Main, &old, &new).await {
            Ok(written) => {
                if let Some(written) = written {
                    seen.note(&written);
                }
                Ok(true)
            }
            // Somebody was faster; who it was shows next time.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn make(&self, api: &Api, now: &str, seen: &mut Seen) -> Result<bool> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.lease.name, "namespace": self.lease.namespace},
            "spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": self.timing.lease.as_secs(),
                "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
            },
        });
        match api.create(&LEASE, &self.lease.namespace, &lease).await {
            Ok(made) => {
                seen.note(&made);
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Seen {
    fn note(&mut self, lease: &Value) {
        if self.lease.as_ref().is_none_or(|known| known["spec"] != lease["spec"]) {
            self.lease = Some(lease.clone());
            self.changed = Some(Instant::now());
        }
    }

    /// Whoever holds the lease.
    fn holder(&self) -> &str {
        let lease = self.lease.as_ref();
        lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default()
    }

    /// Whether the holder has said nothing for as long as its lease lasts.
    fn is_over(&self, lease: &Value) -> bool {
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0);
        self.changed.is_some_and(|changed| changed.elapsed() >= Duration::from_secs(seconds))
    }
}

/// Runs `work` as the leader: waits for the lease, and stops the work when it is lost. Returns when the lease is lost or
/// the work is over. Nothing is left of the work by then.
pub async fn lead<F: Future>(
    candidate: &Candidate,
    api: &Api,
    clock: Clock,
    work: impl FnOnce(Leadership) -> F,
) -> Option<F::Output> {
    let leadership = candidate.acquire(api, clock).await;
    let work = work(leadership.clone());
    tokio::select! {
        biased;
        () = candidate.hold(api, clock, &leadership) => None,
        output = work => Some(output),
    }
}

/// Whether a write failed because somebody else leads.
pub fn is_lost(error: &Error) -> bool {
    matches!(error, Error::NotLeader { .. })
}
