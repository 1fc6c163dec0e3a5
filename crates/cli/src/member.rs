//! A component at work: it leads where that is asked for, does what it does, and ends in order.

use anyhow::{Context, Result, anyhow, bail};
use kai_clock::Clock;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::lease::{Candidate, Leadership};
use kai_runtime::{Process, http};
use prometheus::Registry;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a component that ends tries to send what it has decided.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Where a component stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It waits for its lease.
    Waits,
    /// It works.
    Works,
}

/// A component that is connected to its cluster.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) api: Api,
    pub(crate) metrics: Registry,
    pub(crate) health: Health,
    clock: Clock,
    /// How it comes to lead; without it, it works at once.
    candidate: Option<Candidate>,
    servers: JoinSet<std::io::Result<()>>,
    standing: watch::Sender<Standing>,
}

impl Member {
    /// A component that does nothing yet.
    pub(crate) fn new(name: &str, api: Api, candidate: Option<Candidate>) -> Self {
        let metrics = Registry::new();
        api.measured(&metrics);
        Self {
            name: name.to_owned(),
            api,
            metrics,
            health: Health::default(),
            clock: Clock::system(),
            candidate,
            servers: JoinSet::new(),
            standing: watch::Sender::new(Standing::Waits),
        }
    }

    /// Tells where it stands from now on.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Serves something; nowhere when the address is `0`.
    pub(crate) async fn serve(&mut self, address: &str, router: axum::Router) -> Result<()> {
        if address == "0" || address.is_empty() {
            return Ok(());
        }
        let listening = http::listen(address).await;
        let (listener, address) = listening.with_context(|| {
            format!("cannot listen on `{address}`; hint: choose another address, or 0 for none")
        })?;
        tracing::info!(%address, "serving");
        self.beside(http::serve(listener, router));
        Ok(())
    }

    /// Runs a server beside the work, which ends when the server does.
    pub(crate) fn beside(&mut self, server: impl Future<Output = std::io::Result<()>> + Send + 'static) {
        self.servers.spawn(server);
    }

    /// Works until `end`, or until the work cannot go on.
    pub(crate) async fn work<F: Future<Output = ()>>(
        mut self,
        end: impl Future<Output = ()>,
        start: impl FnOnce(Process) -> F,
    ) -> Result<()> {
        let mut end = std::pin::pin!(end);
        // The lease is renewed whatever else waits for its turn.
        let api = self.api.apart();
        let mut working = self.api.clone();
        let mut lead = None;
        if let Some(candidate) = self.candidate.take() {
            let leadership = tokio::select! {
                biased;
                () = &mut end => return Ok(()),
                () = api.unauthorized() => return Err(unauthorized()),
                leadership = candidate.acquire(&api, self.clock) => leadership,
            };
            working = working.fenced(leadership.clone());
            lead = Some((candidate, leadership));
        }
        self.standing.send_replace(Standing::Works);
        let process =
            Process::with(working, self.clock, &self.name, self.metrics.clone(), self.health.clone());
        let writer = process.writer.clone();
        {
            let mut work = std::pin::pin!(start(process));
            tokio::select! {
                biased;
                () = &mut end => {
                    // The work goes on for a moment, so that what it has decided is written.
                    tokio::select! {
                        biased;
                        () = writer.idle() => {}
                        () = tokio::time::sleep(LAST_WRITES) => {}
                        () = &mut work => {}
                    }
                }
                () = api.unauthorized() => return Err(unauthorized()),
                lease = lost(&api, self.clock, lead.as_ref()) => {
                    bail!("the lease `{lease}` is lost; another copy leads")
                }
                Some(ended) = self.servers.join_next() => bail!("a server ended: {ended:?}"),
                () = &mut work => return Err(anyhow!("{} stopped working", self.name)),
            }
        }
        if let Some((candidate, _)) = &lead
            && let Err(error) = candidate.release(&api, self.clock).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot give the lease back");
        }
        Ok(())
    }
}

/// Waits until the lease is lost, and says which one.
async fn lost(api: &Api, clock: Clock, lead: Option<&(Candidate, Leadership)>) -> String {
    let Some((candidate, leadership)) = lead else { return std::future::pending().await };
    candidate.hold(api, clock, leadership).await;
    candidate.lease.to_string()
}

fn unauthorized() -> anyhow::Error {
    anyhow!(
        "the server no longer knows who we are (401); hint: the token or certificate has ended, start anew"
    )
}

/// What no other copy is called.
pub(crate) fn identity() -> Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let uuid =
        std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot draw a random name")?;
    Ok(format!("{}_{}", host.trim(), uuid.trim()))
}
