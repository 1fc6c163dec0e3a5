//! Clients that watch all pods and read everything, as fast as it comes.

use crate::load::{admin, drain};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use kai_clock::Stopwatch;
use kai_kubetest::client::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often it is looked whether all events have come.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a watcher may lag behind the last write.
const LAG_MAX: Duration = Duration::from_mins(2);

/// The watchers of one server; they end when this is dropped.
pub(crate) struct Watchers {
    all: Vec<Watcher>,
}

struct Watcher {
    events: Arc<AtomicU64>,
    task: JoinHandle<Result<()>>,
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
            let request = admin(Request::get("/api/v1/pods?watch=true")).body(Full::<Bytes>::default())?;
            let mut connection = server.connect().await?;
            let response = connection.send_request(request).await.context("a watch did not begin")?;
            if !response.status().is_success() {
                let status = response.status();
                drain(response.into_body()).await?;
                bail!("a watch was answered with {status}");
            }
            let events = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&events);
            let task = tokio::spawn(async move {
                // The connection ends with its sender.
                let _connection = connection;
                let mut body = response.into_body();
                while let Some(frame) = body.frame().await {
                    if let Ok(data) = frame?.into_data() {
                        #[expect(clippy::naive_bytecount, reason = "the compiler makes it fast enough")]
                        let lines = data.iter().filter(|byte| **byte == b'\n').count();
                        counter.fetch_add(lines as u64, Ordering::Relaxed);
                    }
                }
                Ok(())
            });
            all.push(Watcher { events, task });
        }
        Ok(Self { all })
    }

    /// Waits until every watcher has read this many events since it began.
    pub(crate) async fn have_read(&self, events: u64) -> Result<()> {
        let lag = Stopwatch::start();
        for (number, watcher) in self.all.iter().enumerate() {
            while watcher.events.load(Ordering::Relaxed) < events {
                if watcher.task.is_finished() {
                    bail!("watcher {number} was cut off");
                }
                if lag.elapsed() > LAG_MAX {
                    let read = watcher.events.load(Ordering::Relaxed);
                    bail!("watcher {number} has read {read} of {events} events");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}
