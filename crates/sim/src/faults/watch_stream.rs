//! Faults of watch events: delays, repetitions, losses, and broken streams.

use super::{Client, Faults, lineage};
use axum::body::Body;
use bytes::Bytes;
use futures::future::select_all;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt};
use http::Response;
use kai_runtime::watch_value::WatchValue;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

const EXPIRED: &[u8] = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: a simulated fault\",\"reason\":\"Expired\",\"code\":410}}\n";

/// The outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Passed,
    Late(Duration),
    Repeated,
    Lost,
    /// The stream ends before it.
    Dropped,
    Expired,
    /// Nothing arrives any more; the stream breaks after this time.
    Silenced(Duration),
    /// The stream ends inside it.
    Torn,
    /// The stream ends before it, without an error.
    Closed,
}

fn fault(client: &mut Client) -> Fault {
    let rates = client.rates;
    let fault = if client.occurs(rates.event_expired) {
        Fault::Expired
    } else if client.occurs(rates.event_dropped) {
        Fault::Dropped
    } else if client.occurs(rates.event_lost) {
        Fault::Lost
    } else if client.occurs(rates.event_late) {
        Fault::Late(client.delay())
    } else if client.occurs(rates.event_repeated) {
        Fault::Repeated
    } else if client.occurs(rates.event_silenced) {
        Fault::Silenced(rates.silence)
    } else if client.occurs(rates.event_torn) {
        Fault::Torn
    } else if client.occurs(rates.event_closed) {
        Fault::Closed
    } else {
        Fault::Passed
    };
    if fault != Fault::Passed {
        client.counts.faulty_events += 1;
    }
    fault
}

/// Draws the lag of a new watch.
fn lag(client: &mut Client) -> Duration {
    if client.occurs(client.rates.watch_lagging) { client.delay() } else { Duration::ZERO }
}

/// An open watch of a client.
struct FaultyWatch {
    faults: Faults,
    client: String,
    /// Of the ancestors and of the client.
    partitions: Vec<WatchValue<bool>>,
    /// Their incarnations, with the values at the start of the watch.
    incarnations: Vec<(WatchValue<u64>, u64)>,
    chunks: BoxStream<'static, Result<Bytes, axum::Error>>,
    /// Complete lines that are not delivered yet, and the start of the next.
    lines: VecDeque<Bytes>,
    rest: Vec<u8>,
    repeated: Option<Bytes>,
    /// How much later than they happen events arrive.
    lag: Duration,
    /// When the cache that serves the watch has caught up with the start of the watch.
    caught_up: Instant,
    ended: bool,
}

/// Wraps the response to a watch request.
pub(super) fn watch(faults: &Faults, client: &str, response: Response<Body>) -> Response<Body> {
    let signals = lineage(client).map(|name| {
        faults.with(name, |client| {
            (client.partition.clone(), (client.incarnation.clone(), client.incarnation.get()))
        })
    });
    let (partitions, incarnations) = signals.unzip();
    let mut lags = lineage(client).map(|name| faults.with(name, lag));
    let lag = lags.find(|lag| !lag.is_zero()).unwrap_or_default();
    drop(lags);
    let (parts, body) = response.into_parts();
    let watch = FaultyWatch {
        faults: faults.clone(),
        client: client.to_owned(),
        partitions,
        incarnations,
        chunks: body.into_data_stream().boxed(),
        lines: VecDeque::new(),
        rest: Vec::new(),
        repeated: None,
        lag,
        caught_up: Instant::now() + lag,
        ended: false,
    };
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        let seen = event.as_ref().map_or(&Bytes::new(), |event| event).clone();
        watch.faults.journal.note(&watch.client, "event", &seen);
        Some((event, watch))
    });
    Response::from_parts(parts, Body::from_stream(events))
}

impl FaultyWatch {
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        if self.ended {
            return None;
        }
        if let Some(event) = self.repeated.take() {
            return Some(Ok(event));
        }
        loop {
            let event = match self.line().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => return None,
            };
            match self.fault() {
                Fault::Passed => return Some(Ok(event)),
                Fault::Late(wait) => {
                    tokio::time::sleep(wait).await;
                    return Some(Ok(event));
                }
                Fault::Repeated => {
                    self.repeated = Some(event.clone());
                    return Some(Ok(event));
                }
                Fault::Lost => {}
                Fault::Dropped => {
                    self.ended = true;
                    return Some(Err(broken()));
                }
                Fault::Expired => {
                    self.ended = true;
                    return Some(Ok(Bytes::from_static(EXPIRED)));
                }
                Fault::Silenced(wait) => {
                    self.ended = true;
                    tokio::time::sleep(wait).await;
                    return Some(Err(broken()));
                }
                Fault::Torn => {
                    self.ended = true;
                    return Some(Ok(event.slice(..event.len() / 2)));
                }
                Fault::Closed => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }

    /// The first fault of the client and its ancestors.
    fn fault(&self) -> Fault {
        let mut faults = lineage(&self.client).map(|name| self.faults.with(name, fault));
        faults.find(|fault| *fault != Fault::Passed).unwrap_or(Fault::Passed)
    }

    /// The next complete line; an error where the connection breaks.
    async fn line(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if self.partitions.iter().any(WatchValue::get) {
                return Some(Err(broken()));
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            let (lag, caught_up) = (self.lag, self.caught_up);
            let chunk = tokio::select! {
                biased;
                () = first(&self.incarnations, |(incarnation, start)| incarnation.wait_for(move |now| now != *start)) => return std::future::pending().await,
                () = first(&self.partitions, |partition| partition.wait_for(|partitioned| partitioned)) => continue,
                chunk = late(&mut self.chunks, lag, caught_up) => chunk?,
            };
            match chunk {
                Ok(chunk) => self.split(&chunk),
                Err(error) => return Some(Err(io::Error::other(error))),
            }
        }
    }

    fn split(&mut self, chunk: &Bytes) {
        // Most chunks are one line.
        let whole = chunk.iter().position(|byte| *byte == b'\n').is_some_and(|at| at + 1 == chunk.len());
        if whole && self.rest.is_empty() {
            self.lines.push_back(chunk.clone());
            return;
        }
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.lines.push_back(Bytes::from(std::mem::take(&mut self.rest)));
            }
        }
    }
}

/// The next chunk, `lag` after it is there. Those that are there already follow at once, after `caught_up`.
async fn late<T>(chunks: &mut BoxStream<'static, T>, lag: Duration, caught_up: Instant) -> Option<T> {
    tokio::time::sleep_until(caught_up).await;
    if let Some(chunk) = chunks.next().now_or_never() {
        return chunk;
    }
    let chunk = chunks.next().await;
    if !lag.is_zero() {
        tokio::time::sleep(lag).await;
    }
    chunk
}

/// Waits for the first of the signals; there is at least that of the client itself.
async fn first<'a, T, F: Future<Output = ()>>(signals: &'a [T], wait: impl Fn(&'a T) -> F) {
    select_all(signals.iter().map(|signal| Box::pin(wait(signal)))).await;
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke")
}
