//! Injects faults between a client and the API server, by seed: every client has its own random stream.
//!
//! [`Faults::wrap`] puts a layer around the in-process service for one named client. [`FaultRates`] lists the random
//! faults; partitions, outages, missing rights and crashes are set explicitly. A child client, as `kubelet/node-1` of `kubelet`, has the
//! faults of its parent, then its own. Calls of webhooks go through the same layer: see [`webhook_client`]. Kubernetes
//! guarantees that an open watch misses no event, so a dropped event ends its stream; only [`FaultRates::event_lost`]
//! violates that guarantee.

mod rights;
mod service;
mod watch_stream;
mod webhook;

#[cfg(test)]
mod tests;

pub use rights::{Right, Rights};
pub use service::FaultyService;
pub use webhook::webhook_client;

use crate::journal::Journal;
use kai_runtime::watch_value::WatchValue;
use parking_lot::{Mutex, MutexGuard};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

/// The rate of each fault, per million requests or, for faults of watches, per million events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// A write is rejected with 409 without a real conflict.
    pub conflict: u32,
    /// A request times out before the API server receives it.
    pub timeout_before: u32,
    /// The API server processes a request, and its response is lost.
    pub timeout_after: u32,
    /// A request is delayed by up to [`FaultRates::delay_max`].
    pub slow: u32,
    /// A response is delayed by up to [`FaultRates::delay_max`], so that events of later writes precede it.
    pub response_late: u32,
    /// A watch request is rejected with 410.
    pub expired: u32,
    /// A watch ends with 410 instead of an event.
    pub event_expired: u32,
    /// A watch ends before an event.
    pub event_dropped: u32,
    /// An event and those after it are delayed by up to [`FaultRates::delay_max`].
    pub event_late: u32,
    /// An event is delivered twice.
    pub event_repeated: u32,
    /// An event is lost and the watch continues, which Kubernetes excludes.
    pub event_lost: u32,
    /// The client crashes before it sends a request.
    pub crash: u32,
    /// A webhook responds with 500.
    pub webhook_error: u32,
    /// A webhook responds with something else than a review.
    pub webhook_garbage: u32,
    /// A webhook denies the request.
    pub webhook_denied: u32,
    /// A request for a further page of a list is rejected with 410.
    pub page_expired: u32,
    /// A watch is served from a cache that lags by up to [`FaultRates::delay_max`], and may be behind that of the server
    /// before it; per watch.
    pub watch_lagging: u32,
    /// A watch delivers nothing from this event on, as when the other end vanished, and breaks after
    /// [`FaultRates::silence`], when keepalives have failed.
    pub event_silenced: u32,
    /// A watch ends inside an event.
    pub event_torn: u32,
    /// A watch ends before an event without an error, as when the other end closes its half of the connection.
    pub event_closed: u32,
    /// The connection breaks inside a response; the server has processed the request.
    pub response_torn: u32,
    /// A load balancer answers with a page of its own instead of the API server, with status 502 or 200.
    pub response_foreign: u32,
    /// Objects in a page of a list, where the client requests more; 0 for as many as it requests.
    pub page_objects: u32,
    pub silence: Duration,
    pub delay_max: Duration,
    /// Time until a lost request fails.
    pub timeout: Duration,
}

impl FaultRates {
    /// Every fault that Kubernetes allows, at a moderate rate.
    pub fn mixed() -> Self {
        Self {
            conflict: 20_000,
            timeout_before: 5_000,
            timeout_after: 5_000,
            slow: 20_000,
            response_late: 20_000,
            expired: 50_000,
            event_expired: 1_000,
            event_dropped: 5_000,
            event_late: 20_000,
            event_repeated: 20_000,
            event_lost: 0,
            crash: 500,
            webhook_error: 20_000,
            delay_max: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            ..Self::default()
        }
    }

    /// Faults of connections and of API servers that run side by side: silent and torn watches, caches that lag, lists in
    /// small pages that arrive late or expire in the middle.
    pub fn network() -> Self {
        Self {
            timeout_before: 5_000,
            timeout_after: 2_000,
            response_late: 20_000,
            slow: 200_000,
            expired: 20_000,
            page_expired: 30_000,
            watch_lagging: 300_000,
            event_dropped: 2_000,
            event_silenced: 3_000,
            event_torn: 3_000,
            event_closed: 3_000,
            response_torn: 10_000,
            response_foreign: 10_000,
            page_objects: 2,
            silence: Duration::from_secs(45),
            delay_max: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            ..Self::default()
        }
    }
}

/// An error response to all matching requests of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub code: u16,
    pub message: String,
    /// Seconds in `Retry-After`; 0 for no header.
    pub retry_after: u32,
    /// Only requests whose path contains this.
    pub path: String,
    pub reads: Reads,
}

/// Whether an outage includes `GET` requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Served,
    Rejected,
}

impl Outage {
    /// Rejects every request with this status.
    pub fn all_requests(code: u16) -> Self {
        let message = "a simulated outage".to_owned();
        Self { code, message, retry_after: 0, path: String::new(), reads: Reads::Rejected }
    }

    /// Rejects writes whose path contains `path`, as the API server does when etcd has no space left.
    pub fn storage_full(path: &str) -> Self {
        let message = "etcdserver: mvcc: database space exceeded".to_owned();
        Self { code: 500, message, retry_after: 0, path: path.to_owned(), reads: Reads::Served }
    }

    /// Forbids the requests whose path contains `path`, as when a role binding is deleted.
    pub fn forbidden(path: &str) -> Self {
        let message = "forbidden: the right was taken away".to_owned();
        Self { code: 403, message, retry_after: 0, path: path.to_owned(), reads: Reads::Rejected }
    }

    /// Answers 404 for the paths that contain `path`, as while a definition is not installed.
    pub fn not_served(path: &str) -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self { code: 404, message, retry_after: 0, path: path.to_owned(), reads: Reads::Rejected }
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = seconds;
        self
    }

    fn applies_to(&self, method: &http::Method, path: &str) -> bool {
        let served_read = *method == http::Method::GET && self.reads == Reads::Served;
        !served_read && path.contains(&self.path)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: u64,
    /// Requests that were rejected, delayed or lost.
    pub faulty_requests: u64,
    /// Events that were delayed, repeated or lost.
    pub faulty_events: u64,
    pub crashes: u64,
}

/// Fault state of one client.
#[derive(Debug)]
struct Client {
    rates: FaultRates,
    rng: ChaCha8Rng,
    counts: Counts,
    partition: WatchValue<bool>,
    /// Partitions since the start: each breaks the connections of before.
    partitions: u64,
    outage: Option<Outage>,
    /// What the client may do; everything where there are none.
    rights: Option<Rights>,
    denied: BTreeSet<Right>,
    /// Incremented by each crash.
    incarnation: WatchValue<u64>,
    crash_at: Option<u64>,
}

/// Fault injection for all clients; clones share the state.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    journal: Journal,
}

#[derive(Debug)]
struct State {
    seed: u64,
    rates: FaultRates,
    clients: BTreeMap<String, Client>,
}

impl Faults {
    /// Starts without faults.
    pub fn new(seed: u64, journal: Journal) -> Self {
        let state = State { seed, rates: FaultRates::default(), clients: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)), journal }
    }

    /// Sets the rates of all root clients; children have the faults of their parents.
    pub fn set_rates(&self, rates: FaultRates) {
        let mut state = self.lock();
        state.rates = rates;
        for (name, client) in &mut state.clients {
            client.rates = default_rates(name, rates);
        }
    }

    /// Sets the rates of one client and its children.
    pub fn set_client_rates(&self, client: &str, rates: FaultRates) {
        self.with(client, |client| client.rates = rates);
    }

    /// Partitions a client from the API server: watches break and requests time out, also those under way, until
    /// [`Faults::heal`].
    pub fn partition(&self, client: &str) {
        self.with(client, |client| {
            client.partitions += 1;
            client.partition.set(true);
        });
    }

    /// Starts an outage for a client, until [`Faults::heal`]. Open watches continue.
    pub fn set_outage(&self, client: &str, outage: Outage) {
        self.with(client, |client| client.outage = Some(outage));
    }

    /// Grants a client exactly these rights from now on; everything with `None`. Open watches continue.
    pub fn set_rights(&self, client: &str, rights: Option<Rights>) {
        self.with(client, |client| client.rights = rights);
    }

    /// The rights for lack of which requests of a client were forbidden.
    pub fn denied(&self, client: &str) -> BTreeSet<Right> {
        self.with(client, |client| client.denied.clone())
    }

    /// Ends the partition and the outage of a client.
    pub fn heal(&self, client: &str) {
        self.with(client, |client| {
            client.outage = None;
            client.partition.set(false);
        });
    }

    /// Ends all faults of all clients.
    pub fn heal_all(&self) {
        self.set_rates(FaultRates::default());
        for client in self.lock().clients.values_mut() {
            client.partition.set(false);
            client.outage = None;
            client.crash_at = None;
        }
    }

    /// Crashes a client now.
    pub fn crash(&self, client: &str) {
        self.with(client, Client::crash);
    }

    /// Crashes a client before the request that follows its next `requests` ones.
    pub fn crash_after(&self, client: &str, requests: u64) {
        self.with(client, |client| client.crash_at = Some(client.counts.requests + requests));
    }

    pub fn counts(&self, client: &str) -> Counts {
        self.with(client, |client| client.counts)
    }

    /// The incarnation of a client: a number that each crash increments.
    pub fn incarnation(&self, client: &str) -> WatchValue<u64> {
        self.with(client, |client| client.incarnation.clone())
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Wraps the service for the current incarnation of a client.
    pub fn wrap<S>(&self, client: &str, service: S) -> FaultyService<S> {
        FaultyService::new(self.clone(), client, service)
    }

    fn with<T>(&self, client: &str, act: impl FnOnce(&mut Client) -> T) -> T {
        let mut state = self.lock();
        let (seed, rates) = (state.seed, default_rates(client, state.rates));
        let known =
            state.clients.entry(client.to_owned()).or_insert_with(|| Client::new(seed, client, rates));
        act(known)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The names of the ancestors of a client, root first, and its own.
fn lineage(client: &str) -> impl Iterator<Item = &str> {
    let ends = client.match_indices('/').map(|(at, _)| at).chain([client.len()]);
    ends.map(|end| &client[..end])
}

/// Children get no default rates of their own, since they have those of their parents.
fn default_rates(client: &str, rates: FaultRates) -> FaultRates {
    if client.contains('/') { FaultRates::default() } else { rates }
}

impl Client {
    /// The random stream depends only on the seed and the client's name, not on the other clients.
    fn new(seed: u64, name: &str, rates: FaultRates) -> Self {
        let mut stream = FxHasher::default();
        stream.write(name.as_bytes());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream.finish());
        Self {
            rates,
            rng,
            counts: Counts::default(),
            partition: WatchValue::new(false),
            partitions: 0,
            outage: None,
            rights: None,
            denied: BTreeSet::new(),
            incarnation: WatchValue::new(0),
            crash_at: None,
        }
    }

    fn crash(&mut self) {
        self.counts.crashes += 1;
        self.crash_at = None;
        self.incarnation.modify(|incarnation| *incarnation += 1);
    }

    /// Draws whether a fault with this rate occurs.
    fn occurs(&mut self, rate: u32) -> bool {
        // A rate of zero draws no number, so that disabling one fault does not shift the others.
        rate > 0 && self.rng.next_u32() % 1_000_000 < rate
    }

    fn delay(&mut self) -> Duration {
        let millis = u64::try_from(self.rates.delay_max.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.rng.next_u64() % millis)
    }
}
