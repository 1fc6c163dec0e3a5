//! Clients that watch all pods and read everything, as fast as it comes.
//!
//! A server may cut off a watcher that is slow; like any client it then goes on after the last event that it read.

use crate::load::{admin, drain};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use kai_clock::Stopwatch;
use kai_kubetest::client::Server;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often it is looked whether all events have come.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a watcher may lag behind the last write.
const LAG_MAX: Duration = Duration::from_mins(2);
/// How much of a stream is kept to find its last event; events are far shorter.
const TAIL_BYTES: usize = 32 * 1024;

/// The watchers of one server; they end when this is dropped.
pub(crate) struct Watchers {
    all: Vec<Watcher>,
}

struct Watcher {
    counts: Arc<Counts>,
    task: JoinHandle<Result<()>>,
}

/// What a watcher has seen.
#[derive(Default)]
struct Counts {
    events: AtomicU64,
    cuts: AtomicU64,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchers {
    /// Begins to watch; no pod is there yet.
    pub(crate) async fn start(server: &Server, count: usize) -> Result<Self> {
        let mut all = Vec::new();
        for _ in 0..count {
            let stream = Stream::open(server, "0").await?;
            let counts = Arc::new(Counts::default());
            let task = tokio::spawn(watch(server.clone(), stream, Arc::clone(&counts)));
            all.push(Watcher { counts, task });
        }
        Ok(Self { all })
    }

    /// Waits until every watcher has read this many events since it began.
    pub(crate) async fn have_read(&mut self, events: u64) -> Result<()> {
        let lag = Stopwatch::start();
        for (number, watcher) in self.all.iter_mut().enumerate() {
            while watcher.counts.events.load(Ordering::Relaxed) < events {
                if watcher.task.is_finished() {
                    (&mut watcher.task).await.context("a watcher is gone")??;
                }
                if lag.elapsed() > LAG_MAX {
                    let read = watcher.counts.events.load(Ordering::Relaxed);
                    bail!("watcher {number} has read {read} of {events} events");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// How often a watcher was cut off and went on.
    pub(crate) fn cuts(&self) -> u64 {
        self.all.iter().map(|watcher| watcher.counts.cuts.load(Ordering::Relaxed)).sum()
    }
}

async fn watch(server: Server, mut stream: Stream, counts: Arc<Counts>) -> Result<()> {
    loop {
        let last = stream.read(&counts.events).await?;
        counts.cuts.fetch_add(1, Ordering::Relaxed);
        stream = Stream::open(&server, &last).await?;
    }
}

/// One watch, up to its end.
struct Stream {
    body: Incoming,
    /// The version after which it began.
    after: String,
    /// The last bytes that came.
    tail: Vec<u8>,
    _connection: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

impl Stream {
    async fn open(server: &Server, after: &str) -> Result<Self> {
        let path = format!("/api/v1/pods?watch=true&resourceVersion={after}");
        let request = admin(Request::get(path)).body(Full::default())?;
        let mut connection = server.connect().await?;
        let response = connection.send_request(request).await.context("a watch did not begin")?;
        if !response.status().is_success() {
            let status = response.status();
            drain(response.into_body()).await?;
            bail!("a watch was answered with {status}");
        }
        let body = response.into_body();
        Ok(Self { body, after: after.to_owned(), tail: Vec::new(), _connection: connection })
    }

    /// Reads all that comes; the version of the last whole event.
    async fn read(&mut self, events: &AtomicU64) -> Result<String> {
        // A connection that breaks is no different from a stream that ends.
        while let Some(Ok(frame)) = self.body.frame().await {
            if let Ok(data) = frame.into_data() {
                self.keep(&data);
                #[expect(clippy::naive_bytecount, reason = "the compiler makes it fast enough")]
                let lines = data.iter().filter(|byte| **byte == b'\n').count();
                events.fetch_add(lines as u64, Ordering::Relaxed);
            }
        }
        match last_event(&self.tail) {
            Some(event) if event["type"] == "ERROR" => bail!("a watch failed: {}", event["object"]),
            Some(event) => {
                let version = event["object"]["metadata"]["resourceVersion"].as_str();
                Ok(version.context("an event has no version")?.to_owned())
            }
            None => Ok(self.after.clone()),
        }
    }

    fn keep(&mut self, data: &[u8]) {
        self.tail.extend_from_slice(data);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }
}

/// The last line that is whole.
fn last_event(tail: &[u8]) -> Option<Value> {
    let end = tail.iter().rposition(|byte| *byte == b'\n')?;
    let start = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    serde_json::from_slice(&tail[start..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counts() {
        assert_eq!(last_event(b"rest}\n{\"a\":1}\n{\"a\":2}\n{\"a\""), Some(serde_json::json!({"a": 2})));
        assert_eq!(last_event(b"{\"a\":1}\n{"), Some(serde_json::json!({"a": 1})));
        assert_eq!(last_event(b"{"), None);
    }
}
