//! The components as processes of their own: connect, lead if that is asked for, work, and end in order.

mod options;
mod webhook;

use crate::args::{self, component as flags};
use anyhow::{Context, Result, anyhow, bail};
use kai_clock::Clock;
use kai_engine::plugin::PluginSet;
use kai_runtime::api::Api;
use kai_runtime::health::Health;
use kai_runtime::lease::{Candidate, Leadership, Timing};
use kai_runtime::limit::Limit;
use kai_runtime::{Key, Process, connect, http, log};
use prometheus::Registry;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long an ending process tries to send what it has decided.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// What the chart binds where a pod does not say its namespace.
const NAMESPACE: &str = "kai-scheduler";

/// Runs a component until it is told to end, or cannot go on.
pub(crate) fn run(command: &args::Component, plugins: &PluginSet) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    runtime.block_on(async {
        match command {
            args::Component::Scheduler(flags) => scheduler(flags, plugins).await,
            args::Component::Binder(flags) => {
                let options = options::binder(flags)?;
                let member = Member::start(&flags.process, "binder", "2ad35f9c.kai.scheduler").await?;
                member.work(|process| kai_binder::run(process, options)).await
            }
            args::Component::PodGrouper(flags) => {
                let options = options::grouper(flags);
                let member = Member::start(&flags.process, "pod-grouper", "54dff599.kai.scheduler").await?;
                member.work(|process| kai_controllers::grouper::run(process, options)).await
            }
            args::Component::PodgroupController(flags) => {
                let options = options::pod_groups(flags);
                let name = "podgroup-controller";
                let mut member = Member::start(&flags.process, name, "o1x22tjj.kai.scheduler").await?;
                if options.enable_webhook {
                    member.serve_webhook(&flags.webhook, kai_controllers::podgroup::router()).await?;
                }
                member.work(|process| kai_controllers::podgroup::run(process, options)).await
            }
            args::Component::QueueController(flags) => {
                let options = options::queues(flags)?;
                let mut member =
                    Member::start(&flags.process, "queue-controller", "ov3xj497.kai.scheduler").await?;
                if options.enable_webhook {
                    let router = kai_controllers::queue::router(member.api.clone(), &options);
                    member.serve_webhook(&flags.webhook, router).await?;
                }
                member.work(|process| kai_controllers::queue::run(process, options)).await
            }
            args::Component::Reservation(flags) => reservation(flags).await,
        }
    })
}

async fn scheduler(flags: &flags::Scheduler, plugins: &PluginSet) -> Result<ExitCode> {
    let options = options::scheduler(flags)?;
    let mut process = flags.process.clone();
    process.leader_election_namespace.get_or_insert_with(|| flags.namespace.clone());
    let name = flags.scheduler_name.clone();
    let lease = match flags.partition_label_value.as_str() {
        "" => name.clone(),
        partition => format!("{name}-{partition}"),
    };
    let mut member = Member::start(&process, "kai-scheduler", &lease).await?;
    member.candidate.timing = kai_scheduler::LEASE_TIMING;
    member.name = name;
    if flags.print_version {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "kai scheduler");
    }
    let (queries, asked) = kai_scheduler::serve::queries();
    let address = format!("127.0.0.1:{}", flags.plugin_server_port);
    member.serve(&address, kai_scheduler::serve::router(queries)).await?;
    member.work(|process| kai_scheduler::run(process, options, plugins.clone(), asked)).await
}

async fn reservation(flags: &flags::Reservation) -> Result<ExitCode> {
    let variable = |name: &str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        value.with_context(|| {
            format!(
                "`{name}` is not set; hint: the pod gets it from the downward API, as the binder writes it"
            )
        })
    };
    let pod = Key::new(&variable("POD_NAMESPACE")?, &variable("POD_NAME")?);
    let source = if flags.simulated {
        kai_reservation::DeviceSource::Status
    } else {
        kai_reservation::DeviceSource::Nvml
    };
    let options = kai_reservation::Options { pod, source };
    let member = Member::start(&flags.process, "resource-reservation", "").await?;
    let failure = std::sync::Arc::new(std::sync::Mutex::new(None));
    let seen = std::sync::Arc::clone(&failure);
    let code = member
        .work(|process| async move {
            let error = kai_reservation::run(process, options).await;
            *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
        })
        .await?;
    match failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
        Some(error) => Err(error.into()),
        None => Ok(code),
    }
}

/// A component that is connected to its cluster.
struct Member {
    name: String,
    api: Api,
    clock: Clock,
    metrics: Registry,
    health: Health,
    leads: bool,
    candidate: Candidate,
    servers: JoinSet<std::io::Result<()>>,
}

impl Member {
    /// Connects, and serves metrics and health.
    async fn start(flags: &flags::Process, name: &'static str, lease: &str) -> Result<Self> {
        let format = if flags.log_json { log::Format::Json } else { log::Format::Text };
        log::start(log::level_of_verbosity(flags.verbosity), format);
        for flag in flags.accepted.ignored() {
            tracing::warn!(flag, "this flag means nothing here");
        }
        let config = connect::config(flags.kubeconfig.clone(), None).await?;
        let namespace = flags.leader_election_namespace.clone().unwrap_or_else(|| namespace(&config));
        let mut api = Api::new(connect::client(config)?, name);
        if let Some(limit) = limit(flags)? {
            api = api.limited(limit);
        }
        let clock = Clock::system();
        let candidate = Candidate {
            lease: Key::new(&namespace, lease),
            identity: identity()?,
            timing: Timing::default(),
        };
        let mut member = Self {
            name: name.to_owned(),
            api,
            clock,
            metrics: Registry::new(),
            health: Health::default(),
            leads: flags.leader_elect,
            candidate,
            servers: JoinSet::new(),
        };
        let router = http::router(member.metrics.clone(), member.health.clone());
        member.serve(&flags.metrics_bind_address, router.clone()).await?;
        if flags.health_probe_bind_address != flags.metrics_bind_address {
            member.serve(&flags.health_probe_bind_address, router).await?;
        }
        Ok(member)
    }

    /// Serves something; nowhere when the address is `0`.
    async fn serve(&mut self, address: &str, router: axum::Router) -> Result<()> {
        if address == "0" || address.is_empty() {
            return Ok(());
        }
        let listening = http::listen(address).await;
        let (listener, address) = listening.with_context(|| {
            format!("cannot listen on `{address}`; hint: choose another address, or 0 for none")
        })?;
        tracing::info!(%address, "serving");
        self.servers.spawn(http::serve(listener, router));
        Ok(())
    }

    async fn serve_webhook(&mut self, flags: &flags::Webhook, router: axum::Router) -> Result<()> {
        let server = webhook::server(flags, router).await?;
        self.servers.spawn(server);
        Ok(())
    }

    /// Works until told to end, or until the work cannot go on.
    async fn work<F: Future<Output = ()>>(mut self, start: impl FnOnce(Process) -> F) -> Result<ExitCode> {
        let mut ends = crate::ends::Ends::listen()?;
        // The lease is renewed whatever else waits for its turn.
        let api = self.api.apart();
        let leadership = if self.leads {
            tokio::select! {
                biased;
                () = ends.wait() => return Ok(ExitCode::SUCCESS),
                () = api.unauthorized() => return unauthorized(),
                leadership = self.candidate.acquire(&api, self.clock) => Some(leadership),
            }
        } else {
            None
        };
        let mut working = self.api.clone();
        if let Some(leadership) = &leadership {
            working = working.fenced(leadership.clone());
        }
        let process =
            Process::with(working, self.clock, &self.name, self.metrics.clone(), self.health.clone());
        let writer = process.writer.clone();
        let work = start(process);
        let (candidate, clock) = (self.candidate.clone(), self.clock);
        let code = {
            let mut work = std::pin::pin!(work);
            tokio::select! {
                biased;
                () = ends.wait() => {
                    // The work goes on for a moment, so that what it has decided is written.
                    tokio::select! {
                        biased;
                        () = writer.idle() => {}
                        () = tokio::time::sleep(LAST_WRITES) => {}
                        () = &mut work => {}
                    }
                    ExitCode::SUCCESS
                }
                () = api.unauthorized() => return unauthorized(),
                () = held(&candidate, &api, clock, leadership.as_ref()) => {
                    bail!("the lease `{}` is lost; another copy leads", candidate.lease)
                }
                Some(ended) = self.servers.join_next() => bail!("a server ended: {ended:?}"),
                () = &mut work => return Err(anyhow!("{} stopped working", self.name)),
            }
        };
        if leadership.is_some()
            && let Err(error) = candidate.release(&api, clock).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot give the lease back");
        }
        Ok(code)
    }
}

async fn held(candidate: &Candidate, api: &Api, clock: Clock, leadership: Option<&Leadership>) {
    match leadership {
        Some(leadership) => candidate.hold(api, clock, leadership).await,
        None => std::future::pending().await,
    }
}

fn unauthorized() -> Result<ExitCode> {
    bail!("the server no longer knows who we are (401); hint: the token or certificate has ended, start anew")
}

fn limit(flags: &flags::Process) -> Result<Option<Limit>> {
    match (flags.qps, flags.burst) {
        (None, None) => Ok(None),
        (None, Some(_)) => bail!("`--burst` is given without `--qps`; hint: give both, or neither"),
        (Some(qps), burst) => Ok(Limit::new(qps, burst.unwrap_or(300))),
    }
}

/// Where our lease is: in the pod's own namespace.
fn namespace(config: &kube::Config) -> String {
    let own = std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty());
    own.unwrap_or_else(|| match config.default_namespace.as_str() {
        "" | "default" => NAMESPACE.to_owned(),
        name => name.to_owned(),
    })
}

/// What no other copy is called.
fn identity() -> Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let uuid =
        std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot draw a random name")?;
    Ok(format!("{}_{}", host.trim(), uuid.trim()))
}
