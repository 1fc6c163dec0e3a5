//! Lists a resource and watches it from there on, for as long as it is wanted.

use super::{Caches, Table};
use crate::api::{Api, Error};
use crate::kind::Kind;
use futures::StreamExt;
use kai_object as object;
use kube::core::WatchEvent;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long the server keeps a watch open. There are many watches and most see nothing: they ask for no bookmarks
/// either, since a list after a compaction costs little in the same process.
const WATCH_SECONDS: u32 = 3_000;
/// How long to wait after something failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a watch is over.
enum End {
    /// It can go on from this version.
    Resume(String),
    /// Its version is gone: only a list helps.
    Expired,
}

/// Keeps one resource of the caches current. Never returns.
pub(crate) async fn run(caches: Arc<Caches>, kind: Kind, api: Api) {
    let table = caches.table(&kind);
    loop {
        let listed = match api.list(&kind, "").await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::debug!(resource = %kind.plural, %error, "list failed");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let mut version = listed.resource_version;
        table.replace(listed.items, version.parse().unwrap_or(0));
        while let End::Resume(next) = follow(table, &api, version).await {
            version = next;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn follow(table: &Table, api: &Api, mut version: String) -> End {
    let events = match api.watch(&table.kind, &version, WATCH_SECONDS).await {
        Ok(events) => events,
        Err(error) => return failed(&error, version).await,
    };
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                advance(&mut version, &object);
                table.put(object);
            }
            Ok(WatchEvent::Deleted(object)) => {
                advance(&mut version, &object);
                table.deleted(&object);
            }
            Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
            Ok(WatchEvent::Error(status)) if status.code == 410 => return End::Expired,
            Ok(WatchEvent::Error(_)) => break,
            Err(error) => return failed(&error, version).await,
        }
    }
    End::Resume(version)
}

/// An event that comes a second time must not set the watch back.
fn advance(version: &mut String, object: &Value) {
    let seen = object::meta_str(object, "resourceVersion");
    let newer = seen.parse::<u64>().unwrap_or(0) > version.parse::<u64>().unwrap_or(0);
    if newer {
        seen.clone_into(version);
    }
}

async fn failed(error: &Error, version: String) -> End {
    tracing::debug!(%error, "watch failed");
    if error.code() == 410 {
        return End::Expired;
    }
    tokio::time::sleep(PAUSE).await;
    End::Resume(version)
}
