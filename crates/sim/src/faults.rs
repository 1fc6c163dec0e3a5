//! Makes the way between a client and the server bad, by seed: every client has a stream of misfortune of its own.
//!
//! [`Faults::wrap`] puts a layer around the in-process service for one named client. What can happen is in [`Rates`];
//! partitions and crashes can be ordered as well. A client named below another, as `kubelet/node-1` is below
//! `kubelet`, meets what that one meets, and after it what it meets alone. Calls of webhooks go through the same layer:
//! see [`webhook`]. Kubernetes promises that a watch that stays open misses nothing, so
//! a dropped event ends its stream here; only [`Rates::event_lost`] breaks that promise, for whoever wants to know.

mod hook;
mod service;
mod stream;

#[cfg(test)]
mod tests;

pub use hook::webhook;
pub use service::FaultyService;

use crate::journal::Journal;
use kai_runtime::signal::Signal;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often each fault happens: so many times in a million requests, or events for those of watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// A write is refused with 409, though nothing is in its way.
    pub conflict: u32,
    /// A request gets no answer, and the server never saw it.
    pub timeout_before: u32,
    /// A request gets no answer, though the server did what it asked.
    pub timeout_after: u32,
    /// A request takes up to [`Rates::delay_max`].
    pub slow: u32,
    /// A watch is refused with 410.
    pub expired: u32,
    /// A watch ends with 410 instead of an event.
    pub event_expired: u32,
    /// A watch ends at an event, which is not delivered.
    pub event_dropped: u32,
    /// An event comes up to [`Rates::delay_max`] late, and so do those after it.
    pub event_late: u32,
    /// An event comes twice.
    pub event_repeated: u32,
    /// An event is lost and the watch goes on, which Kubernetes never does.
    pub event_lost: u32,
    /// The client crashes instead of sending a request.
    pub crash: u32,
    /// A webhook answers that it is broken.
    pub broken: u32,
    /// The longest delay.
    pub delay_max: Duration,
    /// How long a client waits for an answer that does not come.
    pub timeout: Duration,
}

impl Rates {
    /// A bad day: everything that Kubernetes allows to happen, each now and then.
    pub fn bad_day() -> Self {
        Self {
            conflict: 20_000,
            timeout_before: 5_000,
            timeout_after: 5_000,
            slow: 20_000,
            expired: 50_000,
            event_expired: 1_000,
            event_dropped: 5_000,
            event_late: 20_000,
            event_repeated: 20_000,
            event_lost: 0,
            crash: 500,
            broken: 20_000,
            delay_max: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
        }
    }
}

/// What a server in trouble answers to a client, for as long as it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The status.
    pub code: u16,
    /// What it says.
    pub message: String,
    /// For how many seconds it asks to be left alone; 0 for nothing.
    pub retry_after: u32,
    /// Which requests it answers so: those whose path contains this.
    pub path: String,
    /// Whether it still answers what changes nothing.
    pub reads: Reads,
}

/// What becomes of requests that change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// They are answered.
    Answered,
    /// They are refused like the others.
    Refused,
}

impl Outage {
    /// Everything is refused with this status.
    pub fn of_everything(code: u16) -> Self {
        let message = "a simulated outage".to_owned();
        Self { code, message, retry_after: 0, path: String::new(), reads: Reads::Refused }
    }

    /// What the store under the server says when its disk is full: nothing can be written whose path contains this.
    pub fn full_disk(path: &str) -> Self {
        let message = "etcdserver: mvcc: database space exceeded".to_owned();
        Self { code: 500, message, retry_after: 0, path: path.to_owned(), reads: Reads::Answered }
    }

    /// Asks to be left alone for so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = seconds;
        self
    }

    fn hits(&self, method: &http::Method, path: &str) -> bool {
        let reads = *method == http::Method::GET && self.reads == Reads::Answered;
        !reads && path.contains(&self.path)
    }
}

/// How often each thing went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of all kinds.
    pub requests: u64,
    /// Requests that were refused, delayed or not answered.
    pub requests_hurt: u64,
    /// Events that did not come as they should.
    pub events_hurt: u64,
    /// Crashes.
    pub crashes: u64,
}

/// What one client suffers.
#[derive(Debug)]
struct Client {
    rates: Rates,
    rng: ChaCha8Rng,
    counts: Counts,
    partition: Signal<bool>,
    outage: Option<Outage>,
    /// How often it crashed: each life of a client has its number.
    life: Signal<u64>,
    crash_at: Option<u64>,
}

/// The misfortune of all clients; clones are the same.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    journal: Journal,
}

#[derive(Debug)]
struct State {
    seed: u64,
    rates: Rates,
    clients: BTreeMap<String, Client>,
}

impl Faults {
    /// No faults, until told otherwise; what clients do and see is written to the journal.
    pub fn new(seed: u64, journal: Journal) -> Self {
        let state = State { seed, rates: Rates::default(), clients: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)), journal }
    }

    /// Sets how often faults happen to every client; those below another meet the faults of that one.
    pub fn set_rates(&self, rates: Rates) {
        let mut state = self.lock();
        state.rates = rates;
        for (name, client) in &mut state.clients {
            client.rates = own_rates(name, rates);
        }
    }

    /// Sets how often faults happen to one client, and to those below it.
    pub fn set_rates_of(&self, client: &str, rates: Rates) {
        self.with(client, |client| client.rates = rates);
    }

    /// Cuts a client off: its watches end and its requests get no answer, until [`Faults::heal`].
    pub fn partition(&self, client: &str) {
        self.with(client, |client| client.partition.set(true));
    }

    /// Puts the server into trouble for a client, until [`Faults::heal`]. Watches that are open go on.
    pub fn refuse(&self, client: &str, outage: Outage) {
        self.with(client, |client| client.outage = Some(outage));
    }

    /// Lets a client through again.
    pub fn heal(&self, client: &str) {
        self.with(client, |client| {
            client.outage = None;
            client.partition.set(false);
        });
    }

    /// Ends all faults of all clients.
    pub fn heal_all(&self) {
        self.set_rates(Rates::default());
        for client in self.lock().clients.values_mut() {
            client.partition.set(false);
            client.outage = None;
            client.crash_at = None;
        }
    }

    /// Crashes a client now.
    pub fn crash(&self, client: &str) {
        self.with(client, Client::die);
    }

    /// Crashes a client when it is about to send its next request but `requests`.
    pub fn crash_after(&self, client: &str, requests: u64) {
        self.with(client, |client| client.crash_at = Some(client.counts.requests + requests));
    }

    /// What happened to a client so far.
    pub fn counts(&self, client: &str) -> Counts {
        self.with(client, |client| client.counts)
    }

    /// The life of a client: the number in it changes with each crash.
    pub fn life(&self, client: &str) -> Signal<u64> {
        self.with(client, |client| client.life.clone())
    }

    /// Where clients' histories are written.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The service as this client meets it, for as long as it lives.
    pub fn wrap<S>(&self, client: &str, service: S) -> FaultyService<S> {
        FaultyService::new(self.clone(), client, service)
    }

    fn with<T>(&self, client: &str, act: impl FnOnce(&mut Client) -> T) -> T {
        let mut state = self.lock();
        let (seed, rates) = (state.seed, own_rates(client, state.rates));
        let known =
            state.clients.entry(client.to_owned()).or_insert_with(|| Client::new(seed, client, rates));
        act(known)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's name, after those of the clients that it is below.
fn lineage(client: &str) -> impl Iterator<Item = &str> {
    let ends = client.match_indices('/').map(|(at, _)| at).chain([client.len()]);
    ends.map(|end| &client[..end])
}

/// What a client meets alone when every client is to meet these.
fn own_rates(client: &str, rates: Rates) -> Rates {
    if client.contains('/') { Rates::default() } else { rates }
}

impl Client {
    /// A client's misfortune depends on the seed and its name alone, not on who else there is.
    fn new(seed: u64, name: &str, rates: Rates) -> Self {
        let mut stream = FxHasher::default();
        stream.write(name.as_bytes());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream.finish());
        Self {
            rates,
            rng,
            counts: Counts::default(),
            partition: Signal::new(false),
            outage: None,
            life: Signal::new(0),
            crash_at: None,
        }
    }

    fn die(&mut self) {
        self.counts.crashes += 1;
        self.crash_at = None;
        self.life.change(|life| *life += 1);
    }

    /// Whether something of this rate happens.
    fn happens(&mut self, rate: u32) -> bool {
        // A rate of zero draws nothing, so that switching one fault off does not move the others.
        rate > 0 && self.rng.next_u32() % 1_000_000 < rate
    }

    fn delay(&mut self) -> Duration {
        let millis = u64::try_from(self.rates.delay_max.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.rng.next_u64() % millis)
    }
}
