//! The dependencies of a running component: client, clock, metrics, health, write queue and event recorder.

use crate::api::Api;
use crate::degradation::Degradations;
use crate::event::Recorder;
use crate::health::Health;
use crate::writer::Writer;
use kai_clock::Clock;
use prometheus::Registry;
use tokio::task::JoinSet;

/// The dependencies of a component. All tasks stop when this is dropped.
#[derive(Debug)]
pub struct Process {
    pub api: Api,
    pub clock: Clock,
    pub metrics: Registry,
    pub health: Health,
    pub writer: Writer,
    pub recorder: Recorder,
    /// Optional rights that its role does not grant.
    pub degradations: Degradations,
    /// Background tasks; one that ends is a defect.
    pub tasks: JoinSet<()>,
}

impl Process {
    /// Must be called in a tokio runtime.
    pub fn start(api: Api, clock: Clock, name: &str) -> Self {
        Self::with(api, clock, name, Registry::new(), Health::default())
    }

    /// As [`start`](Self::start), with metrics and health that the caller serves.
    pub fn with(api: Api, clock: Clock, name: &str, metrics: Registry, health: Health) -> Self {
        let writer = Writer::default();
        let recorder = Recorder::new(writer.clone(), clock, name);
        let degradations = Degradations::new(name, &metrics, recorder.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let (writer, api) = (writer.clone(), api.clone());
            async move { writer.run(api).await }
        });
        Self { api, clock, metrics, health, writer, recorder, degradations, tasks }
    }

    /// Waits until a task ends, which none should, and resumes its panic.
    pub async fn failed(&mut self) {
        match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}
