//! What a component is given to work with, and what ends when it does.

use crate::api::Api;
use crate::event::Recorder;
use crate::health::Health;
use crate::writer::Writer;
use kai_clock::Clock;
use prometheus::Registry;
use tokio::task::JoinSet;

/// What a component works with. Everything that it started stops when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// The server.
    pub api: Api,
    /// The time.
    pub clock: Clock,
    /// Where its metrics are.
    pub metrics: Registry,
    /// Whether it does its work.
    pub health: Health,
    /// Sends writes in the background.
    pub writer: Writer,
    /// Sends events.
    pub recorder: Recorder,
    /// What runs beside it; a task that ends is a defect.
    pub tasks: JoinSet<()>,
}

impl Process {
    /// What the component called `name` works with. Must be called in a tokio runtime.
    pub fn start(api: Api, clock: Clock, name: &str) -> Self {
        Self::with(api, clock, name, Registry::new(), Health::default())
    }

    /// The same, where somebody outside reads metrics and health.
    pub fn with(api: Api, clock: Clock, name: &str, metrics: Registry, health: Health) -> Self {
        let writer = Writer::default();
        let recorder = Recorder::new(writer.clone(), clock, name);
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let (writer, api) = (writer.clone(), api.clone());
            async move { writer.run(api).await }
        });
        Self { api, clock, metrics, health, writer, recorder, tasks }
    }

    /// Waits until one of the tasks ends, which none should, and passes its panic on.
    pub async fn failed(&mut self) {
        match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}
