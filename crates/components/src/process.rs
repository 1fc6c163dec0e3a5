//! The lifecycle of a component: leader election, serving, running, and an orderly shutdown.

use crate::election_events::ElectionEvents;
use anyhow::{Context, Result, anyhow, bail};
use kai_clock::Clock;
use kai_runtime::api::Api;
use kai_runtime::event::Regarding;
use kai_runtime::health::Health;
use kai_runtime::kind::LEASE;
use kai_runtime::leader_election::{self, Candidate};
use kai_runtime::metrics::components::Registries;
use kai_runtime::metrics::leader_election::LeaderElectionMetrics;
use kai_runtime::metrics::process::register_process;
use kai_runtime::{Process, http};
use prometheus::Registry;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a shutdown waits for writes that were already decided.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipState {
    /// Another replica holds the lease, or it is being acquired.
    Standby,
    /// It holds the lease, or needs none.
    Leading,
}

/// An acquired lease.
struct Lead {
    candidate: Candidate,
    events: ElectionEvents,
}

/// A lease that a component inside a process takes besides that of the process.
#[derive(Clone, Debug)]
pub struct FurtherLease {
    pub candidate: Candidate,
    /// The client that acquires and renews it.
    pub api: Api,
}

/// A component that is connected to its cluster.
pub struct ComponentProcess {
    pub name: String,
    pub api: Api,
    pub metrics: Registry,
    /// What is served: these metrics, and those of components that run in this one.
    pub registries: Registries,
    pub health: Health,
    /// The component that events of leader election name; its identity where none is set, as in controller-runtime.
    pub election_source: Option<String>,
    /// For lease renewals; the other requests' client where none is set.
    pub lease_api: Option<Api>,
    clock: Clock,
    /// Without it, the component runs without leader election.
    candidate: Option<Candidate>,
    /// Leases that components inside the process may hold when it ends.
    further_leases: Vec<FurtherLease>,
    leads: Option<LeaderElectionMetrics>,
    servers: JoinSet<std::io::Result<()>>,
    leadership: watch::Sender<LeadershipState>,
}

impl ComponentProcess {
    /// A component whose metrics are registered in `metrics`, where its client is measured too.
    pub fn new(name: &str, api: Api, candidate: Option<Candidate>, metrics: Registry) -> Self {
        api.register_metrics(&metrics);
        register_process(&metrics);
        let lease = candidate.as_ref().map(|candidate| candidate.lease.name.as_str());
        let leads = lease.map(|lease| LeaderElectionMetrics::register(lease, &metrics));
        Self {
            name: name.to_owned(),
            api,
            registries: Registries::from(metrics.clone()),
            metrics,
            health: Health::default(),
            election_source: None,
            lease_api: None,
            clock: Clock::system(),
            candidate,
            further_leases: Vec::new(),
            leads,
            servers: JoinSet::new(),
            leadership: watch::Sender::new(LeadershipState::Standby),
        }
    }

    /// A lease that a component inside this process takes before it starts; the process releases it at its end. None without
    /// leader election, and for the lease of the process.
    pub fn further_lease(&mut self, name: &str) -> Option<FurtherLease> {
        let mut candidate = self.candidate.clone().filter(|candidate| candidate.lease.name != name)?;
        name.clone_into(&mut candidate.lease.name);
        let api = self.lease_api.clone().unwrap_or_else(|| self.api.isolated());
        let lease = FurtherLease { candidate, api };
        self.further_leases.push(lease.clone());
        Some(lease)
    }

    pub fn leadership(&self) -> watch::Receiver<LeadershipState> {
        self.leadership.subscribe()
    }

    /// Serves a router; the address `0` disables it, as in controller-runtime.
    pub async fn serve(&mut self, address: &str, router: axum::Router) -> Result<()> {
        if address == "0" || address.is_empty() {
            return Ok(());
        }
        let listening = http::listen(address).await;
        let (listener, address) = listening.with_context(|| {
            format!("cannot listen on `{address}`; hint: choose another address, or 0 to disable it")
        })?;
        tracing::info!(%address, "serving");
        self.spawn_server(http::serve(listener, router));
        Ok(())
    }

    /// Runs a server until the process ends; when the server ends first, so does the process.
    pub fn spawn_server(&mut self, server: impl Future<Output = std::io::Result<()>> + Send + 'static) {
        self.servers.spawn(server);
    }

    /// Acquires the lease where one is configured, and runs until `shutdown` or a failure.
    pub async fn run<F: Future<Output = ()>>(
        mut self,
        shutdown: impl Future<Output = ()>,
        start: impl FnOnce(Process) -> F,
    ) -> Result<()> {
        let mut shutdown = std::pin::pin!(shutdown);
        // Lease renewals do not queue behind other requests.
        let lease_api = self.lease_api.take().unwrap_or_else(|| self.api.isolated());
        let mut api = self.api.clone();
        let mut renewal = JoinSet::new();
        let mut lead = None;
        if let Some(candidate) = self.candidate.take() {
            let leadership = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = lease_api.unauthorized() => return Err(unauthorized()),
                leadership = candidate.acquire(&lease_api, self.clock) => leadership,
            };
            renewal = leader_election::spawn_renewal(&candidate, &lease_api, self.clock, &leadership);
            api = api.fenced(leadership);
            let source = self.election_source.take().unwrap_or_else(|| candidate.identity.clone());
            let events = ElectionEvents::start(lease_api.clone(), self.clock, candidate.clone(), &source);
            events.became_leader();
            lead = Some(Lead { candidate, events });
        }
        self.leadership.send_replace(LeadershipState::Leading);
        if let Some(leads) = &self.leads {
            leads.set(true);
        }
        let process = Process::with(api, self.clock, &self.name, self.metrics.clone(), self.health.clone());
        if let Some(lead) = &lead {
            // The object that stands for the component in the cluster, whatever runs it.
            let key = lead.candidate.lease.clone();
            process.degradations.report_on(Regarding { kind: LEASE, key, uid: String::new() });
        }
        let writer = process.writer.clone();
        {
            let mut running = std::pin::pin!(start(process));
            tokio::select! {
                biased;
                () = &mut shutdown => {
                    // Decisions that were made before the shutdown are still written.
                    tokio::select! {
                        biased;
                        () = writer.idle() => {}
                        () = tokio::time::sleep(DRAIN_TIMEOUT) => {}
                        () = &mut running => {}
                    }
                }
                () = lease_api.unauthorized() => return Err(unauthorized()),
                Some(_) = renewal.join_next() => {
                    let mut lease = String::new();
                    if let Some(lead) = &lead {
                        lease = lead.candidate.lease.to_string();
                        lead.events.stopped_leading().await;
                    }
                    bail!("leader election lost: lease `{lease}` is held by another replica")
                }
                Some(ended) = self.servers.join_next() => bail!("a server ended: {ended:?}"),
                () = &mut running => return Err(anyhow!("{} stopped: one of its tasks ended", self.name)),
            }
        }
        renewal.shutdown().await;
        // Those that this process does not hold stay as they are.
        for FurtherLease { candidate, api } in &self.further_leases {
            if let Err(error) = candidate.release(api, self.clock).await {
                tracing::warn!(lease = %candidate.lease, error = &error as &dyn std::error::Error, "cannot release the lease");
            }
        }
        if let Some(lead) = &lead {
            if let Err(error) = lead.candidate.release(&lease_api, self.clock).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot release the lease");
            }
            lead.events.stopped_leading().await;
        }
        Ok(())
    }
}

fn unauthorized() -> anyhow::Error {
    anyhow!(
        "the API server no longer accepts the credentials (401); hint: the token or certificate may have expired, \
         restart the process"
    )
}

/// A unique identity for leader election, in the form of client-go: `HOST_UUID`.
pub fn identity() -> Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let uuid =
        std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot draw a random name")?;
    Ok(format!("{}_{}", host.trim(), uuid.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kai_apiserver::{ApiServer, Options};
    use kai_object as object;
    use kai_runtime::Key;
    use kai_runtime::kind::EVENT;
    use kai_runtime::leader_election::Timing;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn begin_and_end_of_leadership_are_events_of_the_lease() {
        let server = ApiServer::new(&Options::new(1, Clock::system()));
        let api = Api::new(kube::Client::new(server.service(), "default"), "binder");
        let candidate = Candidate {
            lease: Key::new("default", "binder"),
            identity: "host_1".to_owned(),
            timing: Timing::default(),
        };
        let process = ComponentProcess::new("binder", api.clone(), Some(candidate), Registry::new());
        let shutdown = tokio::time::sleep(Duration::from_secs(5));
        process.run(shutdown, |_process| std::future::pending()).await.expect("it ends in order");
        let events = api.list_dynamic(&EVENT, "default").await.expect("events are served").items;
        let mut messages: Vec<&str> = events.iter().map(|event| object::str_at(event, "/message")).collect();
        messages.sort_unstable();
        assert_eq!(messages, ["host_1 became leader", "host_1 stopped leading"]);
        for event in &events {
            let at = |path: &str| object::str_at(event, path);
            assert_eq!((at("/involvedObject/kind"), at("/involvedObject/name")), ("Lease", "binder"));
            assert_eq!((at("/type"), at("/reason")), ("Normal", "LeaderElection"));
            assert_eq!(at("/source/component"), "host_1");
        }
    }
}
