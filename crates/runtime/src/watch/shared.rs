//! Watches that the components of one process share: each resource is listed and watched once.
//!
//! A driver reads the texts that the server sends and puts them into the queue of every subscriber, which decodes what it
//! needs of them into its own store. A text exists once and is freed when the last subscriber has read it; what stays in
//! memory are the trimmed stores. The watch covers the union of what the subscribers ask for: where their selectors
//! differ, it has none, and each applies its own. A subscriber that asks for more has the resource listed again, with
//! the larger union.
//!
//! A subscriber that comes late lists the resource for itself and then joins the stream: lists are consistent reads, so
//! one that begins after it subscribed has every earlier event, and events up to the version of the list are skipped. The
//! same applies to one that does not keep up: its queue is dropped, and the others do not wait for it.

mod queue;

#[cfg(test)]
mod tests;

use super::selector::{Selection, Selector};
use super::{BACKOFF, Change, Decode, Need, Only, Page, Shape, Sink, Source, deliver, list_to, number};
use crate::api::Api;
use crate::backoff::Backoff;
use crate::health::{WatchHealth, WatchState};
use crate::invalid::PartialMeta;
use crate::kind::ResourceKind;
use parking_lot::Mutex;
use queue::{EventText, Message, Queue, State};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long the first list waits for further subscribers: the components of a process start together.
const GATHER: Duration = Duration::from_millis(50);

/// The watches of a process; clones share them.
#[derive(Clone)]
pub struct SharedWatches(Arc<Registry>);

struct Registry {
    api: Api,
    watches: Mutex<BTreeMap<Id, Arc<Shared>>>,
}

/// A resource in one namespace or, with an empty namespace, in all.
type Id = (ResourceKind, String);

impl std::fmt::Debug for SharedWatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let watches = self.0.watches.lock();
        f.debug_set().entries(watches.keys().map(|(kind, _)| &kind.plural)).finish()
    }
}

/// One watch with its subscribers.
struct Shared {
    state: Mutex<SharedState>,
    /// The union has grown.
    grown: Notify,
}

struct SharedState {
    /// The union of what the subscribers ask for.
    union: Source,
    /// Whether the driver lists or watches with this union.
    is_running: bool,
    is_closed: bool,
    /// The last state of the watch, for late subscribers.
    last: Option<State>,
    subscribers: Vec<Arc<Queue>>,
    /// Ends with the last subscription.
    driver: JoinSet<()>,
}

impl SharedWatches {
    /// Lists and watches with this client.
    pub fn new(api: Api) -> Self {
        Self(Arc::new(Registry { api, watches: Mutex::default() }))
    }

    fn subscribe(&self, source: &Source) -> Subscription {
        let id = (source.kind.clone(), source.namespace.clone());
        let mut watches = self.0.watches.lock();
        let known = watches.get(&id).filter(|known| !known.state.lock().is_closed).map(Arc::clone);
        let shared = known.unwrap_or_else(|| Arc::new(Shared::new(source)));
        watches.insert(id.clone(), Arc::clone(&shared));
        let queue = Arc::new(Queue::default());
        let mut state = shared.state.lock();
        let union = union(&state.union, source);
        if union != state.union {
            state.union = union;
            // The list that follows is for this subscriber too.
            state.is_running = false;
            shared.grown.notify_one();
        }
        if state.is_running {
            queue.push(Message::Lagged);
        }
        if let Some(last) = &state.last {
            queue.push(Message::State(last.clone()));
        }
        state.subscribers.push(Arc::clone(&queue));
        if state.driver.is_empty() {
            state.driver.spawn(drive(self.0.api.clone(), Arc::clone(&shared)));
        }
        drop(state);
        Subscription { registry: Arc::clone(&self.0), id, shared, queue }
    }
}

impl Shared {
    fn new(source: &Source) -> Self {
        let state = SharedState {
            union: source.clone(),
            is_running: false,
            is_closed: false,
            last: None,
            subscribers: Vec::new(),
            driver: JoinSet::new(),
        };
        Self { state: Mutex::new(state), grown: Notify::new() }
    }
}

/// A source that has the objects of both.
fn union(one: &Source, other: &Source) -> Source {
    let mut union = one.clone();
    if one.query != other.query {
        union.query = None;
    }
    if one.shape != other.shape {
        union.shape = Shape::Whole;
    }
    if one.need != other.need {
        union.need = Need::Optional;
    }
    union.bookmarks |= other.bookmarks;
    union
}

/// A place in a shared watch, which ends when it is dropped.
struct Subscription {
    registry: Arc<Registry>,
    id: Id,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut watches = self.registry.watches.lock();
        let mut state = self.shared.state.lock();
        state.subscribers.retain(|other| !Arc::ptr_eq(other, &self.queue));
        if !state.subscribers.is_empty() {
            return;
        }
        state.driver.abort_all();
        drop(state);
        if watches.get(&self.id).is_some_and(|known| Arc::ptr_eq(known, &self.shared)) {
            watches.remove(&self.id);
        }
    }
}

/// Keeps the subscribers current. Never returns.
async fn drive(api: Api, shared: Arc<Shared>) {
    let _closing = Closing(Arc::clone(&shared));
    tokio::time::sleep(GATHER).await;
    loop {
        let source = {
            let mut state = shared.state.lock();
            state.is_running = true;
            state.union.clone()
        };
        let mut sink = FanOut { shared: &shared };
        tokio::select! {
            biased;
            () = shared.grown.notified() => {}
            () = deliver(&api, &source, &mut sink) => {}
        }
    }
}

/// Whatever ends the driver, its subscribers notice it.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        for queue in &state.subscribers {
            queue.close();
        }
    }
}

/// Puts everything into the queues of the subscribers.
struct FanOut<'a> {
    shared: &'a Shared,
}

impl FanOut<'_> {
    fn push(&self, message: &Message) {
        for queue in &self.shared.state.lock().subscribers {
            queue.push(message.clone());
        }
    }
}

impl Sink for FanOut<'_> {
    fn list_begins(&mut self) {
        self.push(&Message::ListBegins);
    }

    /// Waits for the subscribers, so that few pages are in memory at once; not for one that does not read.
    fn page(&mut self, page: Page) -> impl Future<Output = ()> + Send {
        self.push(&Message::Page(Arc::new(page)));
        let queues = self.shared.state.lock().subscribers.clone();
        async move {
            for queue in queues {
                queue.read_on().await;
            }
        }
    }

    fn listed(&mut self, version: u64) {
        self.push(&Message::Listed(version));
    }

    fn try_event(&mut self, change: Change, object: &str) -> bool {
        let is_object = serde_json::from_str::<&RawValue>(object).is_ok();
        if is_object {
            self.event(change, object);
        }
        is_object
    }

    fn event(&mut self, change: Change, object: &str) {
        let version = number(&PartialMeta::of(object).resource_version);
        self.push(&Message::Event(Arc::new(EventText { change, object: object.into(), version })));
    }

    fn denied(&mut self) {
        self.push(&Message::Denied);
    }

    fn state(&mut self, state: WatchState<'_>) {
        {
            let last = &mut self.shared.state.lock().last;
            if last.as_ref().is_some_and(|last| last.borrow() == state) {
                return;
            }
            *last = Some(State::of(state));
        }
        self.push(&Message::State(State::of(state)));
    }
}

/// Follows a shared watch as one of its subscribers. Returns only when the watch has ended, which is a defect.
pub(crate) async fn follow(
    watches: &SharedWatches,
    api: &Api,
    source: &Source,
    selector: &Selector,
    health: &WatchHealth,
    decoder: &mut impl Decode,
) {
    let subscription = watches.subscribe(source);
    let mut follower = Follower { selector, health, decoder, need: source.need, phase: Phase::Unlisted };
    while let Some(message) = subscription.queue.next().await {
        if matches!(message, Message::Lagged) {
            let up_to = list_until_done(api, source, health, follower.decoder).await;
            follower.phase = Phase::Listed { up_to };
            continue;
        }
        follower.handle(&message);
        drop(message);
        // A long queue must not keep other tasks of this thread from running.
        tokio::task::coop::consume_budget().await;
    }
    tracing::error!(resource = %source.kind.plural, "the shared watch has ended");
}

/// Lists for one subscriber; returns the version up to which the list has the events of the shared watch.
async fn list_until_done(api: &Api, source: &Source, health: &WatchHealth, decoder: &mut impl Decode) -> u64 {
    let mut backoff = Backoff::new(BACKOFF);
    loop {
        match list_to(api, source, &mut Only { decoder: &mut *decoder, health }).await {
            Ok(version) => {
                health.set(WatchState::Listed);
                return number(&version);
            }
            Err(error) if source.may_be_denied(&error) => {
                decoder.denied();
                health.set(WatchState::Denied(&error.message()));
                return 0;
            }
            Err(error) => {
                tracing::warn!(resource = %source.kind.plural, error = &error as &dyn std::error::Error, "cannot list");
                health.set(WatchState::Interrupted(&error.message()));
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// What a subscriber has received.
#[derive(Clone, Copy)]
enum Phase {
    Unlisted,
    /// The pages of a list are being received.
    Listing,
    /// Events up to this version are part of a list that the subscriber made itself.
    Listed {
        up_to: u64,
    },
}

struct Follower<'a, D> {
    selector: &'a Selector,
    health: &'a WatchHealth,
    decoder: &'a mut D,
    need: Need,
    phase: Phase,
}

impl<D: Decode> Follower<'_, D> {
    fn handle(&mut self, message: &Message) {
        match (message, self.phase) {
            (Message::ListBegins, _) => {
                self.decoder.list_begins();
                self.phase = Phase::Listing;
            }
            (Message::Page(page), Phase::Listing) => {
                for object in page.items() {
                    if self.selector.select(object) == Selection::Selected {
                        self.decoder.item(object);
                    }
                }
            }
            (Message::Listed(version), Phase::Listing) => {
                self.decoder.listed(*version);
                self.health.set(WatchState::Listed);
                self.phase = Phase::Listed { up_to: 0 };
            }
            (Message::Event(event), Phase::Listed { up_to }) if event.version > up_to => self.event(event),
            (Message::Denied, _) if self.need == Need::Optional => {
                self.decoder.denied();
                self.phase = Phase::Listed { up_to: 0 };
            }
            (Message::State(state), _) => self.state(state.borrow()),
            // Parts of a list that began before this subscriber came, events that its own list has, and a resource that it
            // waits for.
            (
                Message::Page(_) | Message::Listed(_) | Message::Event(_) | Message::Denied | Message::Lagged,
                _,
            ) => {}
        }
    }

    fn event(&mut self, event: &EventText) {
        let change = match (event.change, self.selector.select(&event.object)) {
            (_, Selection::Never) => return,
            (Change::Applied, Selection::Deselected) => Change::Deleted,
            (change, Selection::Deselected | Selection::Selected) => change,
        };
        self.decoder.event(change, &event.object);
    }

    fn state(&self, state: WatchState<'_>) {
        let is_listed = matches!(self.phase, Phase::Listed { .. });
        match state {
            // A subscriber says itself when it has taken over a list.
            WatchState::Listed => {}
            WatchState::Healthy | WatchState::Polled if !is_listed => {}
            WatchState::Denied(why) if self.need == Need::Required => {
                self.health.set(WatchState::Interrupted(why));
            }
            WatchState::Healthy | WatchState::Polled | WatchState::Denied(_) | WatchState::Interrupted(_) => {
                self.health.set(state);
            }
        }
    }
}
