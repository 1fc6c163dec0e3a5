//! Events of leader election on the Lease, as client-go records them.

use kai_clock::Clock;
use kai_runtime::api::Api;
use kai_runtime::event::{Event, EventType, Recorder, Regarding};
use kai_runtime::kind::LEASE;
use kai_runtime::leader_election::Candidate;
use kai_runtime::writer::Writer;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the last event may delay the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Records who leads. Its client is not fenced: the end of leadership is recorded after it.
pub(crate) struct ElectionEvents {
    candidate: Candidate,
    recorder: Recorder,
    writer: Writer,
    _task: JoinSet<()>,
}

impl ElectionEvents {
    /// `source` is the component that the events name.
    pub(crate) fn start(api: Api, clock: Clock, candidate: Candidate, source: &str) -> Self {
        let writer = Writer::default();
        let recorder = Recorder::new(writer.clone(), clock, source);
        let mut task = JoinSet::new();
        let sending = writer.clone();
        task.spawn(async move { sending.run(api).await });
        Self { candidate, recorder, writer, _task: task }
    }

    pub(crate) fn became_leader(&self) {
        self.record("became leader");
    }

    /// Waits a short time for the event to be written.
    pub(crate) async fn stopped_leading(&self) {
        self.record("stopped leading");
        // Events are best effort.
        let _ = timeout(FLUSH_TIMEOUT, self.writer.idle()).await;
    }

    fn record(&self, what: &str) {
        let lease = self.candidate.lease.clone();
        self.recorder.record(&Event {
            // Without a uid, as in client-go.
            regarding: Regarding { kind: LEASE, key: lease, uid: String::new() },
            type_: EventType::Normal,
            reason: "LeaderElection",
            message: format!("{} {what}", self.candidate.identity),
            annotations: BTreeMap::new(),
        });
    }
}
