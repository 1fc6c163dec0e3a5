//! Clients that watch all pods and read every event.
//!
//! A server may close the watch of a slow client; the client then resumes at the resourceVersion of its last event.

use super::load::{admin, drain};
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

/// Interval between two checks of the event counters.
const POLL: Duration = Duration::from_millis(1);
/// How long a watcher may lag behind the last write.
const LAG_MAX: Duration = Duration::from_mins(2);
/// Bytes of a stream that are kept to find its last event; an event is far shorter.
const TAIL_BYTES: usize = 32 * 1024;

/// The watchers of one server; dropping this aborts them.
pub(super) struct Watchers {
    all: Vec<Watcher>,
}

struct Watcher {
    counters: Arc<Counters>,
    task: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct Counters {
    events: AtomicU64,
    closed: AtomicU64,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchers {
    /// Opens the watches; the cluster has no pods yet.
    pub(super) async fn start(server: &Server, count: usize) -> Result<Self> {
        let mut all = Vec::new();
        for _ in 0..count {
            let stream = Stream::open(server, "0").await?;
            let counters = Arc::new(Counters::default());
            let task = tokio::spawn(watch(server.clone(), stream, Arc::clone(&counters)));
            all.push(Watcher { counters, task });
        }
        Ok(Self { all })
    }

    /// Waits until every watcher has received this many events since its start.
    pub(super) async fn wait_for(&mut self, events: u64) -> Result<()> {
        let lag = Stopwatch::start();
        for (number, watcher) in self.all.iter_mut().enumerate() {
            while watcher.counters.events.load(Ordering::Relaxed) < events {
                if watcher.task.is_finished() {
                    (&mut watcher.task).await.context("a watcher task failed")??;
                }
                if lag.elapsed() > LAG_MAX {
                    let read = watcher.counters.events.load(Ordering::Relaxed);
                    bail!("watcher {number} has read {read} of {events} events");
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// How many watches the server closed.
    pub(super) fn closed(&self) -> u64 {
        self.all.iter().map(|watcher| watcher.counters.closed.load(Ordering::Relaxed)).sum()
    }
}

async fn watch(server: Server, mut stream: Stream, counters: Arc<Counters>) -> Result<()> {
    loop {
        let last = stream.read(&counters.events).await?;
        counters.closed.fetch_add(1, Ordering::Relaxed);
        stream = Stream::open(&server, &last).await?;
    }
}

struct Stream {
    body: Incoming,
    /// The resourceVersion at which the watch started.
    start_version: String,
    /// The last bytes received.
    tail: Vec<u8>,
    _connection: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

impl Stream {
    async fn open(server: &Server, start_version: &str) -> Result<Self> {
        let path = format!("/api/v1/pods?watch=true&resourceVersion={start_version}");
        let request = admin(Request::get(path)).body(Full::default())?;
        let mut connection = server.connect().await?;
        let response = connection.send_request(request).await.context("cannot start a watch")?;
        if !response.status().is_success() {
            let status = response.status();
            drain(response.into_body()).await?;
            bail!("a watch returned {status}");
        }
        let body = response.into_body();
        Ok(Self { body, start_version: start_version.to_owned(), tail: Vec::new(), _connection: connection })
    }

    /// Reads to the end of the stream and returns the resourceVersion of the last complete event.
    async fn read(&mut self, events: &AtomicU64) -> Result<String> {
        // A broken connection is treated like the end of the stream.
        while let Some(Ok(frame)) = self.body.frame().await {
            if let Ok(data) = frame.into_data() {
                self.keep(&data);
                #[expect(clippy::naive_bytecount, reason = "the compiler makes it fast enough")]
                let lines = data.iter().filter(|byte| **byte == b'\n').count();
                events.fetch_add(lines as u64, Ordering::Relaxed);
            }
        }
        match last_event(&self.tail) {
            Some(event) if event["type"] == "ERROR" => {
                bail!("a watch returned an error: {}", event["object"])
            }
            Some(event) => {
                let version = event["object"]["metadata"]["resourceVersion"].as_str();
                Ok(version.context("an event has no resourceVersion")?.to_owned())
            }
            None => Ok(self.start_version.clone()),
        }
    }

    fn keep(&mut self, data: &[u8]) {
        self.tail.extend_from_slice(data);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }
}

/// Parses the last complete line.
fn last_event(tail: &[u8]) -> Option<Value> {
    let end = tail.iter().rposition(|byte| *byte == b'\n')?;
    let start = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    serde_json::from_slice(&tail[start..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counters() {
        assert_eq!(last_event(b"rest}\n{\"a\":1}\n{\"a\":2}\n{\"a\""), Some(serde_json::json!({"a": 2})));
        assert_eq!(last_event(b"{\"a\":1}\n{"), Some(serde_json::json!({"a": 1})));
        assert_eq!(last_event(b"{"), None);
    }
}
