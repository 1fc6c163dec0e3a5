//! Lists a resource and follows it from there on: what a client keeps of the server is fed by this.
//!
//! Objects are read straight into the type that the client keeps, one page of the list or one event at a time, so that
//! memory follows what is kept and not what the server sends. An object that cannot be read is told apart and harms
//! no other. A watch that ends is taken up where it ended; when that version is gone, the list is read again.

use crate::api::{Api, Error, Result};
use crate::health::Freshness;
use crate::kind::{Key, Kind};
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the server keeps a watch open.
const WATCH_SECONDS: u32 = 3_000;
/// How long a watch that says nothing, not even a bookmark, is believed to be alive.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);
/// Objects in one page of a list.
const PAGE: u32 = 500;
/// How long to wait after a first failure, and at most.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Something new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<T> {
    /// These are all there are, as of this version.
    All(Vec<T>, u64),
    /// This one is there, or has changed.
    Applied(T),
    /// This one is gone; this was its last state.
    Gone(T),
    /// One that cannot be read, and why. What is known of it is no longer true.
    Unreadable(Key, String),
}

/// Which part of a resource is followed.
#[derive(Clone, Debug)]
pub struct Source {
    /// The resource.
    pub kind: Kind,
    /// A selector as it stands in a query (`labelSelector=…` or `fieldSelector=…`), encoded.
    pub query: Option<String>,
    /// Whether the server says from time to time how far it is, so that a watch on which little happens can be taken
    /// up again without a list.
    pub bookmarks: bool,
}

impl Source {
    /// All objects of a resource.
    pub fn all(kind: Kind) -> Self {
        Self { kind, query: None, bookmarks: true }
    }

    /// Those that a selector picks.
    #[must_use]
    pub fn query(mut self, query: impl Into<String>) -> Self {
        self.query = Some(query.into());
        self
    }
}

/// Why a watch is over.
enum End {
    /// It can go on from this version.
    Resume(String),
    /// Its version is gone: only a list helps.
    Expired,
}

/// Follows a resource and hands on what is new. Never returns.
pub async fn follow<T: DeserializeOwned>(
    api: &Api,
    source: &Source,
    freshness: &Freshness,
    mut tell: impl FnMut(News<T>),
) {
    let mut pause = PAUSE;
    loop {
        match all(api, source, &mut tell).await {
            Ok(version) => {
                let began = Instant::now();
                freshness.fresh();
                stay_current(api, source, freshness, version, &mut tell).await;
                // A server that refuses to go on from its own lists must not be asked for one after the other.
                if began.elapsed() > PAUSE_MAX {
                    pause = PAUSE;
                } else {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            Err(error) => {
                tracing::warn!(resource = %source.kind.plural, error = &error as &dyn std::error::Error, "cannot list");
                freshness.stale(&error.to_string());
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

/// Reads the whole list, page by page, hands it on, and says its version.
pub async fn all<T: DeserializeOwned>(
    api: &Api,
    source: &Source,
    tell: &mut impl FnMut(News<T>),
) -> Result<String> {
    let mut items = Vec::new();
    let mut broken = Vec::new();
    let mut next = String::new();
    loop {
        let mut path = format!("{}?limit={PAGE}", source.kind.path(""));
        if let Some(query) = &source.query {
            path = format!("{path}&{query}");
        }
        if !next.is_empty() {
            path = format!("{path}&continue={next}");
        }
        let text = api.text(&path).await?;
        let page: Page<'_> =
            serde_json::from_str(&text).map_err(|_| Error::Malformed { path, field: "items" })?;
        for item in page.items {
            match serde_json::from_str(item.get()) {
                Ok(object) => items.push(object),
                Err(error) => broken.push((Head::of(item).key(), error.to_string())),
            }
        }
        if page.metadata.next.is_empty() {
            let version = page.metadata.resource_version;
            tell(News::All(items, version.parse().unwrap_or(0)));
            for (key, why) in broken {
                tell(News::Unreadable(key, why));
            }
            return Ok(version);
        }
        next = page.metadata.next;
    }
}

/// Watches, again and again, until the version is gone.
async fn stay_current<T: DeserializeOwned>(
    api: &Api,
    source: &Source,
    freshness: &Freshness,
    mut version: String,
    tell: &mut impl FnMut(News<T>),
) {
    let mut pause = PAUSE;
    loop {
        let began = Instant::now();
        match watch(api, source, freshness, version, tell).await {
            (End::Expired, _) => return,
            (End::Resume(next), failure) => {
                version = next;
                if let Some(error) = failure {
                    tracing::debug!(resource = %source.kind.plural, %error, "the watch broke off");
                    freshness.stale(&error);
                }
                if began.elapsed() > PAUSE_MAX {
                    pause = PAUSE;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// One watch from its beginning to its end.
async fn watch<T: DeserializeOwned>(
    api: &Api,
    source: &Source,
    freshness: &Freshness,
    mut version: String,
    tell: &mut impl FnMut(News<T>),
) -> (End, Option<String>) {
    let mut path = format!(
        "{}?watch=true&allowWatchBookmarks={}&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}",
        source.kind.path(""),
        source.bookmarks,
    );
    if let Some(query) = &source.query {
        path = format!("{path}&{query}");
    }
    let stream = match api.stream(&path).await {
        Ok(stream) => stream,
        Err(error) if error.code() == 410 => return (End::Expired, None),
        Err(error) => return (End::Resume(version), Some(error.to_string())),
    };
    freshness.fresh();
    let mut stream = pin!(stream);
    let mut line = Vec::new();
    loop {
        match next_line(&mut stream, &mut line).await {
            Ok(true) => {}
            Ok(false) => return (End::Resume(version), None),
            Err(why) => return (End::Resume(version), Some(why)),
        }
        freshness.fresh();
        match take(&line, &mut version, tell) {
            Ok(()) => {}
            Err(Stop::Expired) => return (End::Expired, None),
            Err(Stop::Failed(why)) => return (End::Resume(version), Some(why)),
        }
    }
}

async fn next_line(stream: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Result<bool, String> {
    line.clear();
    match timeout(SILENCE_MAX, stream.read_until(b'\n', line)).await {
        Ok(Ok(0)) => Ok(false),
        Ok(Ok(_)) if line.last() != Some(&b'\n') => Err("the stream ended inside an event".to_owned()),
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("nothing came for too long".to_owned()),
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    what: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What every object has, and what a status says.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: HeadMeta,
    code: u16,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HeadMeta {
    namespace: String,
    name: String,
    resource_version: String,
}

impl Head {
    fn of(object: &RawValue) -> Self {
        serde_json::from_str(object.get()).unwrap_or_default()
    }

    fn key(&self) -> Key {
        self.metadata.key()
    }
}

impl HeadMeta {
    /// The metadata of an object, of which nothing else is read.
    fn of(object: &str) -> Self {
        let mut found = Self::default();
        // Breaking off counts as a failure to the reader.
        let _ = serde_json::Deserializer::from_str(object).deserialize_map(UntilMetadata(&mut found));
        found
    }

    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// Reads an object up to its metadata, which comes before almost everything else.
struct UntilMetadata<'a>(&'a mut HeadMeta);

impl<'de> Visitor<'de> for UntilMetadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<Cow<'de, str>>()? {
            if field == "metadata" {
                *self.0 = fields.next_value()?;
                return Ok(());
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

enum Stop {
    Expired,
    Failed(String),
}

/// Hands on one event and moves the version forward.
fn take<T: DeserializeOwned>(
    line: &[u8],
    version: &mut String,
    tell: &mut impl FnMut(News<T>),
) -> Result<(), Stop> {
    let text = std::str::from_utf8(line).map_err(|error| Stop::Failed(error.to_string()))?;
    let usual = usual(text).and_then(|(what, object)| {
        let read = if what == "BOOKMARK" { None } else { Some(serde_json::from_str::<T>(object).ok()?) };
        Some((what, read, object))
    });
    let (what, read, object) = if let Some((what, read, object)) = usual {
        (what, read.map(Ok), object)
    } else {
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| Stop::Failed(error.to_string()))?;
        match line.what {
            "ERROR" => return Err(stop(&Head::of(line.object))),
            "BOOKMARK" => (line.what, None, line.object.get()),
            what => (what, Some(serde_json::from_str(line.object.get())), line.object.get()),
        }
    };
    let head = HeadMeta::of(object);
    match read {
        Some(Ok(object)) if what == "DELETED" => tell(News::Gone(object)),
        Some(Ok(object)) => tell(News::Applied(object)),
        Some(Err(error)) => tell(News::Unreadable(head.key(), error.to_string())),
        None => {}
    }
    // An event that comes a second time must not set the watch back.
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    if number(&head.resource_version) > number(version) {
        *version = head.resource_version;
    }
    Ok(())
}

fn stop(status: &Head) -> Stop {
    if status.code == 410 { Stop::Expired } else { Stop::Failed(status.message.clone()) }
}

/// The type and the object of an event that is written as servers do. Whether it is one shows when the object is read.
fn usual(line: &str) -> Option<(&str, &str)> {
    let (what, rest) = line.strip_prefix("{\"type\":\"")?.split_once('"')?;
    let object = rest.strip_prefix(",\"object\":")?.trim_ascii_end().strip_suffix('}')?;
    (what != "ERROR").then_some((what, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Small {
        spec: Spec,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Spec {
        size: u32,
    }

    fn feed(line: &str, version: &mut String) -> (Vec<News<Small>>, bool) {
        let mut news = Vec::new();
        let taken = take(line.as_bytes(), version, &mut |one| news.push(one));
        (news, taken.is_ok())
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_the_watch_goes_on() {
        let mut version = "4".to_owned();
        let line = r#"{"type":"ADDED","object":{"metadata":{"namespace":"a","name":"b","resourceVersion":"7"},"spec":{"size":"big"}}}"#;
        let (news, goes_on) = feed(line, &mut version);
        assert!(matches!(&news[..], [News::Unreadable(key, _)] if *key == Key::new("a", "b")), "{news:?}");
        assert!(goes_on);
        assert_eq!(version, "7");
    }

    #[test]
    fn an_event_is_read_however_it_is_written() {
        let object = r#"{"metadata":{"name":"b","resourceVersion":"7"},"spec":{"size":3}}"#;
        for line in [
            format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"),
            format!("{{\"object\":{object},\"type\":\"ADDED\"}}"),
            format!("{{ \"type\": \"ADDED\", \"object\": {object} }}"),
            format!("{{\"type\":\"ADDED\",\"object\":{object},\"more\":{{}}}}"),
        ] {
            let mut version = "4".to_owned();
            let (news, _) = feed(&line, &mut version);
            assert_eq!(news, [News::Applied(Small { spec: Spec { size: 3 } })], "{line}");
            assert_eq!(version, "7", "{line}");
        }
        let mut version = "4".to_owned();
        let (news, goes_on) =
            feed(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#, &mut version);
        assert!(news.is_empty() && goes_on);
        assert_eq!(version, "9");
    }

    #[test]
    fn a_repeated_event_does_not_set_the_version_back() {
        let mut version = "9".to_owned();
        let line = r#"{"type":"MODIFIED","object":{"metadata":{"name":"b","resourceVersion":"7"},"spec":{"size":3}}}"#;
        let (news, _) = feed(line, &mut version);
        assert_eq!(news, [News::Applied(Small { spec: Spec { size: 3 } })]);
        assert_eq!(version, "9");
    }

    #[test]
    fn a_version_that_is_gone_ends_the_watch() {
        let mut version = "9".to_owned();
        let (news, goes_on) = feed(
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#,
            &mut version,
        );
        assert!(news.is_empty());
        assert!(!goes_on);
    }
}
