//! The `watch` verb: initial events if requested, then every change as the selectors see it.

use super::Call;
use super::list::{Version, parse_version};
use super::selection::Selection;
use crate::field::{Error, Path};
use crate::registry::Resource;
use crate::server::Core;
use crate::status_error::{QualifiedName, StatusError};
use crate::store::{Action, Change, Compacted, Cursor, ListRange, Record};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Default timeout of a watch.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(45);
/// Longer time limits are shortened, so that the end of a watch is a valid time.
const TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// Interval of bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);

/// An item of a watch stream.
#[derive(Debug)]
pub enum WatchItem {
    /// An initial event.
    Existing(Arc<Record>),
    /// A change, and its event type for this watcher.
    Changed(Arc<Change>, Transition),
    /// A bookmark.
    Bookmark {
        revision: u64,
        /// Whether it ends the initial events (`k8s.io/initial-events-end`).
        initial_events_end: bool,
    },
    /// An `ERROR` event; the stream ends.
    Failed(StatusError),
}

/// What a change means for the selectors of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The selectors matched before and after.
    Unchanged,
    /// The selectors start to match: `ADDED`.
    Entered,
    /// The selectors stop matching: `DELETED`.
    Left,
}

/// An open watch.
#[derive(Debug)]
pub struct Watch {
    resource: Arc<Resource>,
    selection: Selection,
    cursor: Cursor,
    pending: VecDeque<WatchItem>,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    ended: bool,
}

impl Watch {
    /// Starts a watch. A compacted `resourceVersion` is reported in the stream, like every error after option parsing.
    pub fn start(core: &Core, call: &Call) -> Result<Self, StatusError> {
        let selection = Selection::read(call)?;
        let version = parse_version(call.query.get("resourceVersion").unwrap_or_default())
            .map_err(|message| StatusError::new(500, "", message))?;
        let bookmarks = call.query.is_set("allowWatchBookmarks");
        let initial = initial_events(core, call, version)?;
        let timeout = match call.query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()).min(TIMEOUT_MAX),
            Some(_) | None => TIMEOUT_DEFAULT,
        };
        let table = call.resource.table;
        let mut pending = VecDeque::new();
        let mut ended = false;
        let start = match initial {
            Initial::None(revision) => revision,
            Initial::List { mark_end } => {
                let wanted = ListRange { prefix: &selection.prefix, ..ListRange::default() };
                let page = core
                    .store
                    .list(table, &wanted, |record| selection.matches_selectors(record))
                    .map_err(|gone| expired(&gone))?;
                pending.extend(page.records.into_iter().map(WatchItem::Existing));
                if mark_end && bookmarks {
                    pending
                        .push_back(WatchItem::Bookmark { revision: page.revision, initial_events_end: true });
                }
                page.revision
            }
        };
        let cursor = match core.store.cursor(table, start) {
            Ok(cursor) => cursor,
            Err(compacted) => {
                pending.push_back(WatchItem::Failed(expired(&compacted)));
                ended = true;
                core.store.cursor(table, core.store.revision()).map_err(|gone| expired(&gone))?
            }
        };
        let now = Instant::now();
        let next_bookmark = now + BOOKMARK_PERIOD;
        Ok(Self {
            resource: Arc::clone(&call.resource),
            selection,
            cursor,
            pending,
            bookmarks,
            next_bookmark,
            deadline: now + timeout,
            ended,
        })
    }

    /// Waits for the next item; `None` at the end of the watch.
    pub async fn next(&mut self, core: &Core) -> Option<WatchItem> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            let wake_up = if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
            tokio::select! {
                biased;
                changes = core.store.next(&mut self.cursor) => match changes {
                    // Servers restart after a restore of etcd.
                    _ if core.store.is_restored_since(&self.cursor) => self.ended = true,
                    Ok(changes) if changes.is_empty() => self.ended = !self.is_served(core),
                    Ok(changes) => self.take(&changes),
                    Err(compacted) => self.fail(expired(&compacted)),
                },
                () = tokio::time::sleep_until(wake_up) => self.on_timer(),
            }
        }
    }

    /// A watch ends when its resource is no longer served.
    fn is_served(&self, core: &Core) -> bool {
        let resource = &self.resource;
        core.catalog().find(&resource.group, &resource.version, &resource.plural).is_some()
    }

    fn take(&mut self, changes: &[Arc<Change>]) {
        for change in changes {
            if let Some(transition) = transition(&self.selection, change) {
                self.pending.push_back(WatchItem::Changed(Arc::clone(change), transition));
            }
        }
    }

    fn on_timer(&mut self) {
        let now = Instant::now();
        if self.bookmarks {
            self.next_bookmark = now + BOOKMARK_PERIOD;
            let revision = self.cursor.revision();
            self.pending.push_back(WatchItem::Bookmark { revision, initial_events_end: false });
        }
        self.ended = now >= self.deadline;
    }

    fn fail(&mut self, failure: StatusError) {
        self.pending.push_back(WatchItem::Failed(failure));
        self.ended = true;
    }
}

fn expired(compacted: &Compacted) -> StatusError {
    StatusError::expired(format!("too old resource version: {} ({})", compacted.requested, compacted.oldest))
}

fn transition(selection: &Selection, change: &Change) -> Option<Transition> {
    let now = change.action() != Action::Deleted && selection.matches(change.record());
    let before = change.previous().is_some_and(|previous| selection.matches(previous));
    match (before, now, change.action()) {
        (false, false, _) => None,
        (true, true, _) | (true, false, Action::Deleted) | (false, true, Action::Added) => {
            Some(Transition::Unchanged)
        }
        (false, true, Action::Modified | Action::Deleted) => Some(Transition::Entered),
        (true, false, Action::Added | Action::Modified) => Some(Transition::Left),
    }
}

/// The start of a watch.
enum Initial {
    /// After this revision.
    None(u64),
    /// With initial events.
    List { mark_end: bool },
}

fn initial_events(core: &Core, call: &Call, version: Version) -> Result<Initial, StatusError> {
    let wanted = call.query.get("sendInitialEvents").map(|value| !matches!(value, "false" | "0"));
    let errors = option_errors(call, wanted);
    if !errors.is_empty() {
        return Err(StatusError::invalid(
            QualifiedName { group: "meta.k8s.io", name: "ListOptions" },
            "",
            &errors,
        ));
    }
    Ok(match (wanted, version) {
        (Some(true), _) => Initial::List { mark_end: true },
        (Some(false) | None, Version::At(revision)) => Initial::None(revision),
        (Some(false), Version::Latest | Version::Any) => Initial::None(core.store.revision()),
        (None, Version::Latest | Version::Any) => Initial::List { mark_end: false },
    })
}

fn option_errors(call: &Call, send_initial_events: Option<bool>) -> Vec<Error> {
    let path = Path::of("resourceVersionMatch");
    let matching = call.query.get("resourceVersionMatch").unwrap_or_default();
    let mut errors = Vec::new();
    if send_initial_events.is_some() && matching != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(Error::forbidden(&path, detail));
    }
    if !matching.is_empty() {
        if send_initial_events.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(Error::forbidden(&path, detail));
        }
        if matching != "NotOlderThan" {
            errors.push(Error::not_supported(&path, matching, &["NotOlderThan"]));
        }
        if call.query.get("continue").is_some_and(|token| !token.is_empty()) {
            errors
                .push(Error::forbidden(&path, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    errors
}
