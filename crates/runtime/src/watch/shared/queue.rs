//! The queue between a shared watch and one subscriber.

use crate::health::WatchState;
use crate::watch::{Change, Page};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How many bytes of texts may wait for a subscriber; with more it has to list again. A text that waits for several
/// subscribers counts for each.
pub(super) const WAITING_MAX: usize = 64 << 20;
/// The next page of a list is read when no more than this waits for a subscriber.
const PAGES_MAX: usize = 4 << 20;
/// How long a list waits for a subscriber.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) enum Message {
    /// What the subscriber missed is not in the queue: it has to list.
    Lagged,
    ListBegins,
    Page(Arc<Page>),
    Listed(u64),
    Event(Arc<EventText>),
    Denied,
    State(State),
}

impl Message {
    fn bytes(&self) -> usize {
        match self {
            Self::Page(page) => page.bytes(),
            Self::Event(event) => event.object.len(),
            Self::Lagged | Self::ListBegins | Self::Listed(_) | Self::Denied | Self::State(_) => 0,
        }
    }
}

/// An event as the server sent it.
pub(super) struct EventText {
    pub(super) change: Change,
    pub(super) object: Box<str>,
    pub(super) version: u64,
}

/// A [`WatchState`] that waits in a queue.
#[derive(Clone, Debug)]
pub(super) enum State {
    Listed,
    Healthy,
    Polled,
    Denied(Arc<str>),
    Interrupted(Arc<str>),
}

impl State {
    pub(super) fn of(state: WatchState<'_>) -> Self {
        match state {
            WatchState::Listed => Self::Listed,
            WatchState::Healthy => Self::Healthy,
            WatchState::Polled => Self::Polled,
            WatchState::Denied(why) => Self::Denied(why.into()),
            WatchState::Interrupted(why) => Self::Interrupted(why.into()),
        }
    }

    pub(super) fn borrow(&self) -> WatchState<'_> {
        match self {
            Self::Listed => WatchState::Listed,
            Self::Healthy => WatchState::Healthy,
            Self::Polled => WatchState::Polled,
            Self::Denied(why) => WatchState::Denied(why),
            Self::Interrupted(why) => WatchState::Interrupted(why),
        }
    }
}

/// What a subscriber has not read yet.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    pushed: Notify,
    read: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
    is_closed: bool,
}

impl Queue {
    /// Adds a message. If the subscriber is too far behind, everything is dropped, and it has to list.
    pub(super) fn push(&self, message: Message) {
        {
            let mut waiting = self.waiting.lock();
            let bytes = message.bytes();
            if waiting.bytes > 0 && waiting.bytes + bytes > WAITING_MAX {
                waiting.messages.clear();
                waiting.messages.push_back(Message::Lagged);
                waiting.bytes = 0;
            }
            waiting.bytes += bytes;
            waiting.messages.push_back(message);
        }
        self.pushed.notify_one();
    }

    /// The next message; none once the watch has ended.
    pub(super) async fn next(&self) -> Option<Message> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if let Some(message) = waiting.messages.pop_front() {
                    waiting.bytes -= message.bytes();
                    drop(waiting);
                    self.read.notify_one();
                    return Some(message);
                }
                if waiting.is_closed {
                    return None;
                }
            }
            self.pushed.notified().await;
        }
    }

    /// Waits until little waits for the subscriber, but not for long.
    pub(super) async fn read_on(&self) {
        let read = async {
            while self.waiting.lock().bytes > PAGES_MAX {
                self.read.notified().await;
            }
        };
        // One that does not read in time falls behind.
        let _ = timeout(READ_TIMEOUT, read).await;
    }

    /// The watch has ended.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.pushed.notify_one();
    }
}
