//! The events of a watch as a client meets them: some late, some twice, some not at all.

use super::{Client, Faults, lineage};
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::select_all;
use futures::stream::{self, BoxStream};
use http::Response;
use kai_runtime::signal::Signal;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

const EXPIRED: &[u8] = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: a simulated fault\",\"reason\":\"Expired\",\"code\":410}}\n";

/// What happens to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Late(Duration),
    Repeated,
    Lost,
    /// The stream ends before it.
    Dropped,
    Expired,
}

fn fate(client: &mut Client) -> Fate {
    let rates = client.rates;
    let fate = if client.happens(rates.event_expired) {
        Fate::Expired
    } else if client.happens(rates.event_dropped) {
        Fate::Dropped
    } else if client.happens(rates.event_lost) {
        Fate::Lost
    } else if client.happens(rates.event_late) {
        Fate::Late(client.delay())
    } else if client.happens(rates.event_repeated) {
        Fate::Repeated
    } else {
        Fate::Passed
    };
    if fate != Fate::Passed {
        client.counts.events_hurt += 1;
    }
    fate
}

/// One watch of a client that is under way.
struct Watched {
    faults: Faults,
    client: String,
    /// Of the client and of those that it is below.
    partitions: Vec<Signal<bool>>,
    /// The lives that they had when it began.
    lives: Vec<(Signal<u64>, u64)>,
    chunks: BoxStream<'static, Result<Bytes, axum::Error>>,
    /// Whole lines that have not been delivered, and the beginning of the next.
    lines: VecDeque<Bytes>,
    rest: Vec<u8>,
    again: Option<Bytes>,
    ended: bool,
}

/// The answer to a watch, as the client meets it.
pub(super) fn watch(faults: &Faults, client: &str, response: Response<Body>) -> Response<Body> {
    let signals = lineage(client).map(|name| {
        faults.with(name, |client| (client.partition.clone(), (client.life.clone(), client.life.get())))
    });
    let (partitions, lives) = signals.unzip();
    let (parts, body) = response.into_parts();
    let watched = Watched {
        faults: faults.clone(),
        client: client.to_owned(),
        partitions,
        lives,
        chunks: body.into_data_stream().boxed(),
        lines: VecDeque::new(),
        rest: Vec::new(),
        again: None,
        ended: false,
    };
    let events = stream::unfold(watched, |mut watched| async move {
        let event = watched.next().await?;
        let seen = event.as_ref().map_or(&Bytes::new(), |event| event).clone();
        watched.faults.journal.note(&watched.client, "sees", &seen);
        Some((event, watched))
    });
    Response::from_parts(parts, Body::from_stream(events))
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        if self.ended {
            return None;
        }
        if let Some(event) = self.again.take() {
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
            match self.fate() {
                Fate::Passed => return Some(Ok(event)),
                Fate::Late(wait) => {
                    tokio::time::sleep(wait).await;
                    return Some(Ok(event));
                }
                Fate::Repeated => {
                    self.again = Some(event.clone());
                    return Some(Ok(event));
                }
                Fate::Lost => {}
                Fate::Dropped => {
                    self.ended = true;
                    return Some(Err(broken()));
                }
                Fate::Expired => {
                    self.ended = true;
                    return Some(Ok(Bytes::from_static(EXPIRED)));
                }
            }
        }
    }

    /// What happens to an event: the first misfortune on its way.
    fn fate(&self) -> Fate {
        let mut fates = lineage(&self.client).map(|name| self.faults.with(name, fate));
        fates.find(|fate| *fate != Fate::Passed).unwrap_or(Fate::Passed)
    }

    /// The next whole line; an error when the connection breaks.
    async fn line(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if self.partitions.iter().any(Signal::get) {
                return Some(Err(broken()));
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            let chunk = tokio::select! {
                biased;
                () = first(&self.lives, |(life, begun)| life.until(move |now| now != *begun)) => return std::future::pending().await,
                () = first(&self.partitions, |partition| partition.until(|cut| cut)) => continue,
                chunk = self.chunks.next() => chunk?,
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

/// Waits for what comes first; a client has a lineage, so there is something to wait for.
async fn first<'a, T, F: Future<Output = ()>>(signals: &'a [T], wait: impl Fn(&'a T) -> F) {
    select_all(signals.iter().map(|signal| Box::pin(wait(signal)))).await;
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke")
}
