//! The components as processes of their own: connect, lead if that is asked for, work, and end in order.

mod options;

use crate::args::{self, component as flags};
use crate::ends::Ends;
use crate::member::{self, Member};
use crate::stack::{lease, name};
use anyhow::{Context, Result, bail};
use kai_admission::queue::QuotaValidation;
use kai_engine::plugin::PluginSet;
use kai_runtime::api::Api;
use kai_runtime::lease::{Candidate, Timing};
use kai_runtime::limit::Limit;
use kai_runtime::{Key, Process, connect, http, log};
use std::process::ExitCode;

/// What the chart binds where a pod does not say its namespace.
const NAMESPACE: &str = "kai-scheduler";

/// Runs a component until it is told to end, or cannot go on.
pub(crate) fn run(command: &args::Component, plugins: &PluginSet) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    let usual = Timing::default();
    runtime.block_on(async {
        match command {
            args::Component::Scheduler(flags) => scheduler(flags, plugins).await,
            args::Component::Binder(flags) => {
                let options = options::binder(flags)?;
                let member = connect_to(&flags.process, name::BINDER, lease::BINDER, usual).await?;
                work(member, |process| kai_binder::run(process, options)).await
            }
            args::Component::PodGrouper(flags) => {
                let options = options::grouper(flags);
                let member = connect_to(&flags.process, name::GROUPER, lease::GROUPER, usual).await?;
                work(member, |process| kai_podgrouper::run(process, options)).await
            }
            args::Component::PodgroupController(flags) => {
                let options = options::pod_groups(flags);
                let (name, lease) = (name::POD_GROUP_CONTROLLER, lease::POD_GROUP_CONTROLLER);
                let mut member = connect_to(&flags.process, name, lease, usual).await?;
                if options.enable_webhook {
                    let router = kai_admission::podgroup::router();
                    member.beside(serve_webhook(&flags.webhook, router).await?);
                }
                // Boxed: it is large.
                Box::pin(work(member, |process| kai_controllers::podgroup::run(process, options))).await
            }
            args::Component::QueueController(flags) => {
                let options = options::queues(flags)?;
                let (name, lease) = (name::QUEUE_CONTROLLER, lease::QUEUE_CONTROLLER);
                let mut member = connect_to(&flags.process, name, lease, usual).await?;
                if options.enable_webhook {
                    let router = kai_admission::queue::router(member.api.clone(), quota_validation(&options));
                    member.beside(serve_webhook(&flags.webhook, router).await?);
                }
                work(member, |process| kai_controllers::queue::run(process, options)).await
            }
            args::Component::Reservation(flags) => reservation(flags).await,
        }
    })
}

async fn serve_webhook(
    flags: &flags::Webhook,
    router: axum::Router,
) -> Result<impl Future<Output = std::io::Result<()>> + Send + use<>> {
    let server = kai_admission::server::serve(&flags.webhook_bind_address, &flags.webhook_cert_dir, router);
    Ok(server.await?)
}

fn quota_validation(options: &kai_controllers::queue::Options) -> QuotaValidation {
    if options.enable_quota_validation { QuotaValidation::Enabled } else { QuotaValidation::Disabled }
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
    let mut member = connect_to(&process, name::SCHEDULER, &lease, kai_scheduler::LEASE_TIMING).await?;
    member.name = name;
    if flags.print_version {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "kai scheduler");
    }
    let (queries, asked) = kai_scheduler::serve::queries();
    let address = format!("127.0.0.1:{}", flags.plugin_server_port);
    member.serve(&address, kai_scheduler::serve::router(queries)).await?;
    work(member, |process| kai_scheduler::run(process, options, plugins.clone(), asked)).await
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
    let member = connect_to(&flags.process, name::RESERVATION, "", Timing::default()).await?;
    let failure = std::sync::Arc::new(std::sync::Mutex::new(None));
    let seen = std::sync::Arc::clone(&failure);
    let code = work(member, |process| async move {
        let error = kai_reservation::run(process, options).await;
        *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
    })
    .await;
    match failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
        Some(error) => Err(error.into()),
        None => code,
    }
}

/// Connects a component, and serves its metrics and health.
async fn connect_to(
    flags: &flags::Process,
    name: &'static str,
    lease: &str,
    timing: Timing,
) -> Result<Member> {
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
    let lease = Key::new(&namespace, lease);
    let identity = flags.leader_elect.then(member::identity).transpose()?;
    let candidate = identity.map(|identity| Candidate { lease, identity, timing });
    let mut member = Member::new(name, api, candidate);
    let router = http::router(member.metrics.clone(), member.health.clone());
    member.serve(&flags.metrics_bind_address, router.clone()).await?;
    if flags.health_probe_bind_address != flags.metrics_bind_address {
        member.serve(&flags.health_probe_bind_address, router).await?;
    }
    Ok(member)
}

/// Works until somebody ends the process.
async fn work<F: Future<Output = ()>>(member: Member, start: impl FnOnce(Process) -> F) -> Result<ExitCode> {
    let mut ends = Ends::listen()?;
    // Boxed: what a component holds while it runs is large.
    member.work(ends.wait(), |process| Box::pin(start(process))).await?;
    Ok(ExitCode::SUCCESS)
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
