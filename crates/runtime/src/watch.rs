//! List and watch of one resource: the source of every informer.
//!
//! Objects are deserialised straight into the type that the client stores, one page of the list or one event at a time,
//! so that memory follows what is stored and not what the server sends. An object that does not deserialise is reported
//! on its own and affects no other. A watch that ends is resumed at its last resource version; when the server no longer
//! has that version (410), or has not reached it since etcd was restored from a backup, the resource is listed again. A
//! component works without an optional resource that its role does not let it list, and asks again at intervals.
//! Components of one process share their watches ([`shared`]).

mod selector;
pub mod shared;

use crate::api::{Api, Error, JSON, RawList, Result};
use crate::backoff::{Backoff, BackoffPolicy};
use crate::health::{Health, WatchHealth, WatchState};
use crate::invalid::{InvalidObject, PartialMeta};
use crate::kind::ResourceKind;
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use selector::Selector;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the server keeps a watch open.
const WATCH_SECONDS: u32 = 3_000;
/// A watch without any event, not even a bookmark, counts as broken after this time.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);
/// Objects in one page of a list; client-go's pager uses the same number.
const PAGE_SIZE: u32 = 500;
/// Delay before a failed list or watch is repeated.
const BACKOFF: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(10));

/// A change of the watched objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<T> {
    /// All objects, as of this resource version.
    Listed(Vec<T>, u64),
    /// The object was added or modified.
    Applied(T),
    /// The object was deleted; this was its last state.
    Deleted(T),
    /// The object does not deserialise. Its last known state no longer holds.
    Invalid(InvalidObject),
    /// The role of the component does not grant `list` on an optional resource: no object of it is known.
    Denied,
}

impl<T> WatchEvent<T> {
    pub fn map<U>(self, convert: impl Fn(T) -> U) -> WatchEvent<U> {
        match self {
            Self::Listed(objects, version) => {
                WatchEvent::Listed(objects.into_iter().map(convert).collect(), version)
            }
            Self::Applied(object) => WatchEvent::Applied(convert(object)),
            Self::Deleted(object) => WatchEvent::Deleted(convert(object)),
            Self::Invalid(object) => WatchEvent::Invalid(object),
            Self::Denied => WatchEvent::Denied,
        }
    }
}

/// Whether a component works without a resource that its role does not let it list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It waits until the right is granted.
    Required,
    /// It continues with [`WatchEvent::Denied`].
    Optional,
}

/// What the server sends of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Whole,
    /// Only its metadata, as `PartialObjectMetadata`: the server neither encodes nor sends the rest. One that cannot do so
    /// sends the whole object.
    Metadata,
}

impl Shape {
    /// The media types of a list.
    fn of_list(self) -> &'static str {
        match self {
            Self::Whole => JSON,
            Self::Metadata => {
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
            }
        }
    }

    /// The media types of a watch.
    fn of_watch(self) -> &'static str {
        match self {
            Self::Whole => JSON,
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
        }
    }
}

/// The part of a resource that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub kind: ResourceKind,
    /// The namespace that is watched; empty for all.
    pub namespace: String,
    /// A selector as it stands in a query (`labelSelector=…` or `fieldSelector=…`), percent-encoded.
    pub query: Option<String>,
    /// Whether the server sends bookmarks, so that a watch with few events can be resumed without a list.
    pub bookmarks: bool,
    pub need: Need,
    pub shape: Shape,
}

impl Source {
    pub fn all(kind: ResourceKind) -> Self {
        Self::in_namespace(kind, "")
    }

    /// The objects of one namespace or, with an empty namespace, of all.
    pub fn in_namespace(kind: ResourceKind, namespace: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            query: None,
            bookmarks: true,
            need: Need::Required,
            shape: Shape::Whole,
        }
    }

    fn may_be_denied(&self, error: &Error) -> bool {
        self.need == Need::Optional && error.is_permission_denied()
    }

    #[must_use]
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.query = Some(query.into());
        self
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Applied,
    Deleted,
}

/// The objects of one page of a list, as the server sent them.
pub(crate) struct Page {
    text: String,
    items: Vec<Range<usize>>,
}

impl Page {
    pub(crate) fn items(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|item| self.text.get(item.clone()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// Receives what list and watch deliver, as text.
pub(crate) trait Sink {
    /// A list begins. What an earlier, incomplete one delivered does not count.
    fn list_begins(&mut self);
    fn page(&mut self, page: Page) -> impl Future<Output = ()> + Send;
    /// All pages were delivered; the list is of this version.
    fn listed(&mut self, version: u64);
    /// As [`event`](Self::event), of a text that may be none of an object: returns whether it was one.
    fn try_event(&mut self, change: Change, object: &str) -> bool;
    fn event(&mut self, change: Change, object: &str);
    /// An optional resource may not be listed.
    fn denied(&mut self);
    fn state(&mut self, state: WatchState<'_>);
}

/// Decodes the objects of a watch for one subscriber.
pub(crate) trait Decode {
    /// A list begins. What an earlier, incomplete one delivered does not count.
    fn list_begins(&mut self);
    /// An object of the list that began last.
    fn item(&mut self, object: &str);
    fn listed(&mut self, version: u64);
    fn try_event(&mut self, change: Change, object: &str) -> bool;
    fn event(&mut self, change: Change, object: &str);
    fn denied(&mut self);
}

/// Deserialises `T`, keeps what `convert` makes of it, and passes that to `handle`.
struct Decoder<'a, T, U, C, H> {
    api: &'a Api,
    kind: &'a ResourceKind,
    convert: C,
    handle: H,
    items: Vec<U>,
    invalid: Vec<InvalidObject>,
    read: PhantomData<fn() -> T>,
}

impl<'a, T: DeserializeOwned, U, C: Fn(T) -> U, H: FnMut(WatchEvent<U>)> Decoder<'a, T, U, C, H> {
    fn new(api: &'a Api, kind: &'a ResourceKind, convert: C, handle: H) -> Self {
        Self { api, kind, convert, handle, items: Vec::new(), invalid: Vec::new(), read: PhantomData }
    }

    fn pass_on(&mut self, change: Change, object: T) {
        let object = (self.convert)(object);
        (self.handle)(match change {
            Change::Applied => WatchEvent::Applied(object),
            Change::Deleted => WatchEvent::Deleted(object),
        });
    }

    fn pass_on_invalid(&mut self, object: InvalidObject) {
        self.api.report_invalid(self.kind, &object);
        (self.handle)(WatchEvent::Invalid(object));
    }
}

impl<T: DeserializeOwned, U, C: Fn(T) -> U, H: FnMut(WatchEvent<U>)> Decode for Decoder<'_, T, U, C, H> {
    fn list_begins(&mut self) {
        self.items = Vec::new();
        self.invalid = Vec::new();
    }

    fn item(&mut self, object: &str) {
        match serde_json::from_str(object) {
            Ok(read) => self.items.push((self.convert)(read)),
            Err(error) => self.invalid.push(InvalidObject::new(object, &error)),
        }
    }

    fn listed(&mut self, version: u64) {
        (self.handle)(WatchEvent::Listed(std::mem::take(&mut self.items), version));
        for object in std::mem::take(&mut self.invalid) {
            self.pass_on_invalid(object);
        }
    }

    fn try_event(&mut self, change: Change, object: &str) -> bool {
        let Ok(read) = serde_json::from_str(object) else { return false };
        self.pass_on(change, read);
        true
    }

    fn event(&mut self, change: Change, object: &str) {
        match serde_json::from_str(object) {
            Ok(read) => self.pass_on(change, read),
            Err(error) => {
                let deleted = change == Change::Deleted;
                self.pass_on_invalid(InvalidObject { deleted, ..InvalidObject::new(object, &error) });
            }
        }
    }

    fn denied(&mut self) {
        (self.handle)(WatchEvent::Denied);
    }
}

/// The only subscriber of a watch.
struct Only<'a, D> {
    decoder: &'a mut D,
    health: &'a WatchHealth,
}

impl<D: Decode> Sink for Only<'_, D> {
    fn list_begins(&mut self) {
        self.decoder.list_begins();
    }

    fn page(&mut self, page: Page) -> impl Future<Output = ()> + Send {
        for object in page.items() {
            self.decoder.item(object);
        }
        std::future::ready(())
    }

    fn listed(&mut self, version: u64) {
        self.decoder.listed(version);
    }

    fn try_event(&mut self, change: Change, object: &str) -> bool {
        self.decoder.try_event(change, object)
    }

    fn event(&mut self, change: Change, object: &str) {
        self.decoder.event(change, object);
    }

    fn denied(&mut self) {
        self.decoder.denied();
    }

    fn state(&mut self, state: WatchState<'_>) {
        self.health.set(state);
    }
}

/// How a watch ended.
enum End {
    /// It can be resumed at this resource version.
    Resume(String),
    /// Its resource version is too old, or the server has not reached it: the resource must be listed again.
    Expired,
    /// The optional resource may not be watched.
    Denied,
}

/// Lists and watches a resource and passes every change to `handle`. Never returns.
pub async fn list_and_watch<T: DeserializeOwned>(
    api: &Api,
    source: &Source,
    health: &WatchHealth,
    handle: impl FnMut(WatchEvent<T>),
) {
    list_and_watch_as(api, source, health, |object: T| object, handle).await;
}

/// Like [`list_and_watch`], with each object converted as soon as it is deserialised: while a list is being read, only
/// what the conversion keeps of its objects is in memory.
///
/// With [`Api::sharing`], the components of a process share one watch of each resource.
pub async fn list_and_watch_as<T: DeserializeOwned, U>(
    api: &Api,
    source: &Source,
    health: &WatchHealth,
    convert: impl Fn(T) -> U,
    handle: impl FnMut(WatchEvent<U>),
) {
    let mut decoder = Decoder::new(api, &source.kind, convert, handle);
    if let Some(watches) = api.shared_watches()
        && let Some(selector) = Selector::of(source)
    {
        shared::follow(watches, api, source, &selector, health, &mut decoder).await;
    } else {
        deliver(api, source, &mut Only { decoder: &mut decoder, health }).await;
    }
}

/// Lists and watches a resource for a sink. Never returns.
pub(crate) async fn deliver(api: &Api, source: &Source, sink: &mut impl Sink) {
    let mut backoff = Backoff::new(BACKOFF);
    let mut denied = false;
    loop {
        match list_to(api, source, sink).await {
            Ok(version) => {
                denied = false;
                let began = Instant::now();
                sink.state(WatchState::Listed);
                match watch_until_expired(api, source, sink, version).await {
                    Next::List => sink.state(WatchState::Interrupted("the list is read again")),
                    Next::Poll => sink.state(WatchState::Polled),
                }
                // A server that expires its own lists at once must not be listed in a busy loop.
                if began.elapsed() > BACKOFF.max {
                    backoff.reset();
                } else {
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
            Err(error) if source.may_be_denied(&error) => {
                if !denied {
                    denied = true;
                    tracing::warn!(resource = %source.kind.plural, "continuing without an optional resource");
                    sink.denied();
                }
                sink.state(WatchState::Denied(&error.message()));
                tokio::time::sleep(backoff.next_delay()).await;
            }
            Err(error) => {
                tracing::warn!(resource = %source.kind.plural, error = &error as &dyn std::error::Error, "cannot list");
                sink.state(WatchState::Interrupted(&error.message()));
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Reads the whole list, page by page, passes it to `handle`, and returns its resource version.
pub async fn list<T: DeserializeOwned>(
    api: &Api,
    source: &Source,
    handle: &mut impl FnMut(WatchEvent<T>),
) -> Result<String> {
    list_as(api, source, &|object: T| object, handle).await
}

async fn list_as<T: DeserializeOwned, U>(
    api: &Api,
    source: &Source,
    convert: &impl Fn(T) -> U,
    handle: &mut impl FnMut(WatchEvent<U>),
) -> Result<String> {
    let health = Health::default().watch(&source.kind.plural);
    let mut decoder = Decoder::new(api, &source.kind, convert, handle);
    list_to(api, source, &mut Only { decoder: &mut decoder, health: &health }).await
}

/// Reads the whole list, page by page, and returns its resource version.
pub(crate) async fn list_to(api: &Api, source: &Source, sink: &mut impl Sink) -> Result<String> {
    sink.list_begins();
    let mut continue_token = String::new();
    loop {
        let mut path = format!("{}?limit={PAGE_SIZE}", source.kind.path(&source.namespace));
        if let Some(query) = &source.query {
            path = format!("{path}&{query}");
        }
        if !continue_token.is_empty() {
            path = format!("{path}&continue={continue_token}");
        }
        let text = api.text_as(&path, source.shape.of_list()).await?;
        let (metadata, items) = {
            let page: RawList<'_> =
                serde_json::from_str(&text).map_err(|_| Error::Malformed { path, field: "items" })?;
            (page.metadata, ranges(&text, page.items.unwrap_or_default()))
        };
        sink.page(Page { text, items }).await;
        if metadata.continue_token.is_empty() {
            let version = metadata.resource_version;
            sink.listed(number(&version));
            return Ok(version);
        }
        continue_token = metadata.continue_token;
    }
}

/// Where the items are in the text that they borrow from.
fn ranges(text: &str, items: Vec<&RawValue>) -> Vec<Range<usize>> {
    let begin = text.as_ptr().addr();
    let range = |item: &RawValue| {
        let at = item.get().as_ptr().addr() - begin;
        at..at + item.get().len()
    };
    items.into_iter().map(range).collect()
}

/// What follows a watch that cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    List,
    /// The resource may not be watched: it is listed from time to time.
    Poll,
}

/// Watches and resumes until the resource version has expired, or the resource may not be watched any more.
async fn watch_until_expired(api: &Api, source: &Source, sink: &mut impl Sink, mut version: String) -> Next {
    let mut backoff = Backoff::new(BACKOFF);
    loop {
        let began = Instant::now();
        match watch(api, source, sink, version).await {
            (End::Expired, _) => return Next::List,
            (End::Denied, _) => return Next::Poll,
            (End::Resume(next), failure) => {
                version = next;
                if let Some(error) = &failure {
                    tracing::debug!(resource = %source.kind.plural, error, "the watch was interrupted");
                }
                let why = failure.as_deref().unwrap_or("the server ended the watch");
                sink.state(WatchState::Interrupted(why));
                if began.elapsed() > BACKOFF.max {
                    backoff.reset();
                }
                tokio::time::sleep(backoff.next_delay()).await;
                // Without a response the watch must not be resumed: it could wait for a version that never comes.
                loop {
                    match is_behind(api, source, &version).await {
                        Ok(false) => break,
                        Ok(true) => {
                            tracing::warn!(
                                resource = %source.kind.plural,
                                version,
                                "the server is behind the watched resource version, as after a restore of etcd; listing again"
                            );
                            return Next::List;
                        }
                        Err(error) if source.may_be_denied(&error) => return Next::List,
                        Err(error) => {
                            sink.state(WatchState::Interrupted(&error.message()));
                            tokio::time::sleep(backoff.next_delay()).await;
                        }
                    }
                }
            }
        }
    }
}

/// Whether the server is at an earlier resource version than the watch. It would then send nothing until its version has
/// passed that of the watch, and never what changed before.
async fn is_behind(api: &Api, source: &Source, version: &str) -> Result<bool> {
    let mut path = format!("{}?limit=1", source.kind.path(&source.namespace));
    if let Some(query) = &source.query {
        path = format!("{path}&{query}");
    }
    let text = api.text_as(&path, source.shape.of_list()).await?;
    let list: RawList<'_> =
        serde_json::from_str(&text).map_err(|_| Error::Malformed { path, field: "items" })?;
    let current = list.metadata.resource_version.parse::<u64>();
    // A server without numeric versions is never behind.
    Ok(current.is_ok_and(|current| current < number(version)))
}

/// One watch request from its beginning to its end.
async fn watch(
    api: &Api,
    source: &Source,
    sink: &mut impl Sink,
    mut version: String,
) -> (End, Option<String>) {
    let mut path = format!(
        "{}?watch=true&allowWatchBookmarks={}&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}",
        source.kind.path(&source.namespace),
        source.bookmarks,
    );
    if let Some(query) = &source.query {
        path = format!("{path}&{query}");
    }
    let stream = match api.stream(&path, source.shape.of_watch()).await {
        Ok(stream) => stream,
        Err(error) if error.code() == 410 => return (End::Expired, None),
        Err(error) if source.may_be_denied(&error) => return (End::Denied, None),
        Err(error) => return (End::Resume(version), Some(error.message())),
    };
    sink.state(WatchState::Healthy);
    let mut stream = pin!(stream);
    let mut line = Vec::new();
    loop {
        match next_line(&mut stream, &mut line).await {
            Ok(true) => {}
            Ok(false) => return (End::Resume(version), None),
            Err(why) => return (End::Resume(version), Some(why)),
        }
        sink.state(WatchState::Healthy);
        match decode_event(&line, &mut version, sink) {
            Ok(()) => {}
            Err(Stop::Expired) => return (End::Expired, None),
            Err(Stop::Failed(why)) => return (End::Resume(version), Some(why)),
        }
    }
}

fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

async fn next_line(stream: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Result<bool, String> {
    line.clear();
    match timeout(SILENCE_MAX, stream.read_until(b'\n', line)).await {
        Ok(Ok(0)) => Ok(false),
        Ok(Ok(_)) if line.last() != Some(&b'\n') => Err("the stream ended inside an event".to_owned()),
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no event within the time limit".to_owned()),
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The `Status` of an `ERROR` event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorStatus {
    code: u16,
    message: String,
}

enum Stop {
    Expired,
    Failed(String),
}

/// Passes one event on and advances the resource version.
fn decode_event(line: &[u8], version: &mut String, sink: &mut impl Sink) -> Result<(), Stop> {
    let text = std::str::from_utf8(line).map_err(|error| Stop::Failed(error.to_string()))?;
    let is_bookmark = |type_: &str| type_ == "BOOKMARK";
    let fast = split_event(text)
        .filter(|(type_, object)| is_bookmark(type_) || sink.try_event(change_of(type_), object));
    let object = if let Some((_, object)) = fast {
        object
    } else {
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| Stop::Failed(error.to_string()))?;
        if line.type_ == "ERROR" {
            return Err(stop(line.object));
        }
        if !is_bookmark(line.type_) {
            sink.event(change_of(line.type_), line.object.get());
        }
        line.object.get()
    };
    let meta = PartialMeta::of(object);
    // A repeated event must not set the watch back.
    if number(&meta.resource_version) > number(version) {
        *version = meta.resource_version;
    }
    Ok(())
}

fn change_of(type_: &str) -> Change {
    if type_ == "DELETED" { Change::Deleted } else { Change::Applied }
}

fn stop(status: &RawValue) -> Stop {
    let status: ErrorStatus = serde_json::from_str(status.get()).unwrap_or_default();
    if status.code == 410 { Stop::Expired } else { Stop::Failed(status.message) }
}

/// Type and object of an event in the form that API servers write, without parsing the envelope. Whether the text is
/// well-formed shows when the object is deserialised.
fn split_event(line: &str) -> Option<(&str, &str)> {
    let (type_, rest) = line.strip_prefix("{\"type\":\"")?.split_once('"')?;
    let object = rest.strip_prefix(",\"object\":")?.trim_ascii_end().strip_suffix('}')?;
    (type_ != "ERROR").then_some((type_, object))
}

#[cfg(test)]
mod tests;
