//! Each component as a process of its own: flags to options, connection, leader election, servers.

use crate::Extensions;
use crate::combined::Started;
use crate::command::{Program, ProgramContext, ProgramFuture};
use crate::flags::{
    AdmissionFlags, BinderFlags, CombinedFlags, NodeScaleAdjusterFlags, NumaExporterFlags, OperatorFlags,
    PodGroupControllerFlags, PodGrouperFlags, ProcessFlags, QueueControllerFlags, ReservationFlags,
    SchedulerFlags, WebhookFlags,
};
use crate::part::Part;
use crate::process::{self, ComponentProcess};
use crate::signals::ShutdownSignals;
use crate::spec::{Component, Lease};
use crate::{combined, flags, logging, options, webhook_metrics};
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use kai_admission::queue::QuotaValidation;
use kai_api::well_known::env;
use kai_api::well_known::name::NAMESPACE;
use kai_runtime::api::Api;
use kai_runtime::leader_election::Candidate;
use kai_runtime::rate_limit::RateLimiter;
use kai_runtime::{Key, Process, connect, http, log};
use kai_scheduler::serve::Queries;
use parking_lot::Mutex;
use prometheus::Registry;
use std::sync::Arc;
use tower::Service as _;

impl Program for SchedulerFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(async {
            let part = self.part(&context.extensions)?;
            let mut flags = self.process.clone();
            flags.leader_election_namespace.get_or_insert_with(|| self.namespace.clone());
            // Each shard has a scheduler of its own, which leads by a lease of its own.
            let lease = self.lease();
            let mut process = connect(Component::Scheduler, &flags, context, Some(lease.clone())).await?;
            process.name.clone_from(&self.scheduler_name);
            process.election_source = Some(lease);
            (part.serve)(&mut process).await?;
            run(process, |process| (part.start)(process)).await
        })
    }

    fn part(&self, extensions: &Extensions) -> Result<Part> {
        let mut options = options::scheduler(self, &extensions.scheduler)?;
        let namespace = self.process.leader_election_namespace.as_ref().unwrap_or(&self.namespace);
        options.usage_ledger = Key::new(namespace, format!("{}-usage", self.lease()));
        let (plugins, flags) = (extensions.scheduler.clone(), self.clone());
        let latest = LatestQueries::default();
        let started = latest.clone();
        let part = Part::new(self.process.limits(), move |process| {
            let (client, queries) = kai_scheduler::serve::queries();
            started.set(client);
            Box::pin(kai_scheduler::run(process, options.clone(), plugins.clone(), queries))
        });
        let part = part.serving(move |process| {
            Box::pin(async move {
                if flags.enable_profiler {
                    tracing::warn!("`--enable-profiler`: {}", http::NO_PROFILES);
                    process.serve(&format!(":{}", flags.profiler_port), http::profiling()).await?;
                }
                if flags.print_version {
                    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting the scheduler");
                }
                let address = format!("127.0.0.1:{}", flags.plugin_server_port);
                process.serve(&address, latest.router()).await
            })
        });
        let pool = Some(self.partition_label_value.clone()).filter(|pool| !pool.is_empty());
        Ok(Part { pool, lease: Some(self.lease()), ..part })
    }

    fn check(&self, extensions: &Extensions) -> Result<()> {
        // The file is in the pod; its ConfigMap is checked.
        let mut flags = self.clone();
        flags.scheduler_conf = None;
        options::scheduler(&flags, &extensions.scheduler).map(drop)
    }
}

impl SchedulerFlags {
    fn lease(&self) -> String {
        match self.partition_label_value.as_str() {
            "" => self.scheduler_name.clone(),
            partition => format!("{}-{partition}", self.scheduler_name),
        }
    }
}

/// The query channel of the latest run of a scheduler; clones share it.
#[derive(Clone, Default)]
struct LatestQueries(Arc<Mutex<Option<Queries>>>);

impl LatestQueries {
    fn set(&self, queries: Queries) {
        *self.0.lock() = Some(queries);
    }

    /// Answers that no scheduler runs while there is none.
    fn router(self) -> Router {
        Router::new().fallback(async move |request: Request| {
            let latest = self.0.lock().clone();
            match latest {
                Some(queries) => kai_scheduler::serve::router(queries).call(request).await.into_response(),
                None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            }
        })
    }
}

impl Program for BinderFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(alone(Component::Binder, self, &self.process, context))
    }

    fn part(&self, extensions: &Extensions) -> Result<Part> {
        let options = options::binder(self, &extensions.binder)?;
        Ok(Part::new(self.process.limits(), move |process| {
            Box::pin(kai_binder::run(process, options.clone()))
        }))
    }

    fn check(&self, extensions: &Extensions) -> Result<()> {
        options::binder(self, &extensions.binder).map(drop)
    }
}

impl Program for PodGrouperFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(alone(Component::PodGrouper, self, &self.process, context))
    }

    fn part(&self, extensions: &Extensions) -> Result<Part> {
        let options = options::pod_grouper(self, &extensions.grouper);
        Ok(Part::new(self.process.limits(), move |process| {
            Box::pin(kai_podgrouper::run(process, options.clone()))
        }))
    }
}

impl Program for PodGroupControllerFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(alone(Component::PodGroupController, self, &self.process, context))
    }

    fn part(&self, _extensions: &Extensions) -> Result<Part> {
        let (options, webhook) = (options::pod_group_controller(self), self.webhook.clone());
        let serves = options.enable_webhook;
        let part = Part::new(self.process.limits(), move |process| {
            Box::pin(kai_controllers::podgroup::run(process, options.clone()))
        });
        Ok(part.serving(move |process| {
            Box::pin(async move {
                if serves {
                    let router =
                        webhook_metrics::measured(kai_admission::podgroup::router(), &process.metrics);
                    process.spawn_server(serve_webhook(&webhook, router).await?);
                }
                Ok(())
            })
        }))
    }
}

impl Program for QueueControllerFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(alone(Component::QueueController, self, &self.process, context))
    }

    fn part(&self, _extensions: &Extensions) -> Result<Part> {
        let (options, webhook) = (options::queue_controller(self)?, self.webhook.clone());
        let validation = options.enable_webhook.then(|| quota_validation(&options));
        let part = Part::new(self.process.limits(), move |process| {
            Box::pin(kai_controllers::queue::run(process, options.clone()))
        });
        Ok(part.serving(move |process| {
            Box::pin(async move {
                if let Some(validation) = validation {
                    let router = kai_admission::queue::router(process.api.clone(), validation);
                    let router = webhook_metrics::measured(router, &process.metrics);
                    process.spawn_server(serve_webhook(&webhook, router).await?);
                }
                Ok(())
            })
        }))
    }

    fn check(&self, _extensions: &Extensions) -> Result<()> {
        options::queue_controller(self).map(drop)
    }
}

impl Program for AdmissionFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(alone(Component::Admission, self, &self.process, context))
    }

    fn part(&self, _extensions: &Extensions) -> Result<Part> {
        let namespace = self.process.leader_election_namespace.clone();
        let namespace = namespace.or_else(|| variable("POD_NAMESPACE").ok());
        let managed = options::managed_webhooks(self, namespace.as_deref().unwrap_or(NAMESPACE))?;
        // The operator mounts the certificate and registers the webhooks.
        let is_mounted = self.webhook_cert_dir.join("tls.crt").exists();
        let (maintained, flags) = (managed.clone(), self.clone());
        let part = Part::new(self.process.limits(), move |mut process| {
            let managed = maintained.clone();
            Box::pin(async move {
                if is_mounted {
                    process.failed().await;
                } else {
                    kai_admission::managed::run(process, managed).await;
                }
            })
        });
        Ok(part.serving(move |process| {
            Box::pin(async move {
                let router = kai_admission::pod::router(options::admission(&flags))
                    .merge(kai_admission::topology::router());
                let router = webhook_metrics::measured(router, &process.metrics);
                let address = format!(":{}", flags.webhook_addr);
                if is_mounted {
                    let server =
                        kai_admission::server::serve(&address, &flags.webhook_cert_dir, router).await?;
                    process.spawn_server(server);
                    return Ok(());
                }
                // All replicas serve; the one that holds the lease maintains the certificate.
                let source = kai_admission::server::SecretSource {
                    api: process.api.clone(),
                    secret: managed.secret.clone(),
                    reload_interval: managed.lifetime.reload_interval(),
                    health: process.health.watch("webhook certificates"),
                };
                let server = kai_admission::server::serve_from_secret(&address, source, router);
                process.spawn_server(server.await?);
                Ok(())
            })
        }))
    }
}

impl Program for CombinedFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(async {
            let members = combined::members(self)?;
            let parts: Vec<_> =
                members.iter().map(|member| member.part(&context.extensions)).collect::<Result<_>>()?;
            let mut process = connect(Component::Combined, &self.process, context, None).await?;
            let mut started = Vec::new();
            for (member, part) in members.iter().zip(parts) {
                (part.serve)(&mut process).await?;
                started.push(Started {
                    name: member.name(part.pool.as_deref()),
                    user_agent: member.spec.name,
                    limits: part.limits,
                    // A process of its own takes this lease, so that of both one schedules.
                    lease: part.lease.and_then(|lease| process.further_lease(&lease)),
                    start: part.start,
                });
            }
            let components = combined::Components::new(started, process.registries.clone());
            run(process, |process| components.run(process)).await
        })
    }

    fn check(&self, extensions: &Extensions) -> Result<()> {
        combined::members(self)?.iter().try_for_each(|member| member.check(extensions))
    }
}

impl Program for OperatorFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(async {
            let mut flags = self.process.clone();
            flags.leader_election_namespace.get_or_insert_with(|| self.namespace.clone());
            let images = kai_operator::Images {
                repository: std::env::var(env::IMAGE_REPOSITORY).unwrap_or_default(),
                tag: std::env::var(env::IMAGE_TAG).unwrap_or_default(),
            };
            let options = kai_operator::process::Options { namespace: self.namespace.clone(), images };
            let process = connect(Component::Operator, &flags, context, None).await?;
            let extensions = context.extensions.clone();
            let check =
                kai_operator::process::Check::new(move |object| crate::check::check(object, &extensions));
            run(process, |process| kai_operator::process::run_checked(process, options, check)).await
        })
    }
}

impl Program for NodeScaleAdjusterFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(async {
            let options = options::node_scale_adjuster(self)?;
            let process = connect(Component::NodeScaleAdjuster, &self.process, context, None).await?;
            run(process, |process| kai_controllers::node_scale::run(process, options)).await
        })
    }

    fn check(&self, _extensions: &Extensions) -> Result<()> {
        options::node_scale_adjuster(self).map(drop)
    }
}

impl Program for NumaExporterFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(async {
            let options = options::numa_exporter(self)?;
            let process = connect(Component::NumaExporter, &self.process, context, None).await?;
            run_to_failure(process, |process| kai_numa_exporter::run(process, options)).await
        })
    }

    fn check(&self, _extensions: &Extensions) -> Result<()> {
        // The name of the node is in the environment of the pod.
        let mut flags = self.clone();
        flags.node_name.get_or_insert_with(|| "node".to_owned());
        options::numa_exporter(&flags).map(drop)
    }
}

impl Program for ReservationFlags {
    fn run<'a>(&'a self, context: &'a ProgramContext) -> ProgramFuture<'a> {
        Box::pin(async {
            let pod = Key::new(&variable("POD_NAMESPACE")?, &variable("POD_NAME")?);
            let source = if self.simulated {
                kai_reservation::DeviceSource::Status
            } else {
                kai_reservation::DeviceSource::Nvml
            };
            let options = kai_reservation::Options { pod, source };
            let process = connect(Component::ResourceReservation, &self.process, context, None).await?;
            run_to_failure(process, |process| async { Err(kai_reservation::run(process, options).await) })
                .await
        })
    }
}

/// Runs a component in a process of its own.
async fn alone(
    component: Component,
    program: &impl Program,
    flags: &ProcessFlags,
    context: &ProgramContext,
) -> Result<()> {
    let part = program.part(&context.extensions)?;
    let mut process = connect(component, flags, context, None).await?;
    (part.serve)(&mut process).await?;
    run(process, |process| (part.start)(process)).await
}

/// Connects a component to its cluster, and serves its metrics and health. `lease` replaces the name in the table.
async fn connect(
    component: Component,
    flags: &ProcessFlags,
    context: &ProgramContext,
    lease: Option<String>,
) -> Result<ComponentProcess> {
    log::start(logging::level(flags), logging::format(flags));
    for flag in &context.ignored_flags {
        tracing::warn!(flag, "{}", flags::NO_EFFECT);
    }
    let spec = component.spec();
    let config = connect::config(flags.kubeconfig.clone(), None).await?;
    let namespace = flags.leader_election_namespace.clone().unwrap_or_else(|| namespace(&config));
    let metrics = Registry::new();
    let lease_client = connect::lease_client(config.clone())?;
    let mut api = Api::new(connect::measured_client(config, &metrics)?, spec.name);
    if let Some(limit) = RateLimiter::new(flags.qps, flags.burst) {
        api = api.rate_limited(limit);
    }
    let candidate = match spec.lease {
        Some(Lease { name, timing }) if flags.leader_elect => Some(Candidate {
            lease: Key::new(&namespace, lease.as_deref().unwrap_or(name)),
            identity: process::identity()?,
            timing,
        }),
        Some(_) | None => None,
    };
    let mut process = ComponentProcess::new(spec.name, api, candidate, metrics);
    process.lease_api = Some(process.api.isolated_on(lease_client));
    let router = http::router(process.registries.clone(), process.health.clone());
    process.serve(&flags.metrics_bind_address, router.clone()).await?;
    if flags.health_probe_bind_address != flags.metrics_bind_address {
        process.serve(&flags.health_probe_bind_address, router).await?;
    }
    Ok(process)
}

/// Runs until a signal ends the process.
async fn run<F: Future<Output = ()>>(
    process: ComponentProcess,
    start: impl FnOnce(Process) -> F,
) -> Result<()> {
    let mut signals = ShutdownSignals::listen()?;
    // Boxed: the state of a component is large.
    process.run(signals.wait(), |process| Box::pin(start(process))).await
}

/// [`run`] of a component that may find that it cannot work.
async fn run_to_failure<E, F>(process: ComponentProcess, start: impl FnOnce(Process) -> F) -> Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
    F: Future<Output = Result<(), E>>,
{
    let failure = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&failure);
    let ended = run(process, |process| {
        let running = start(process);
        async move { *seen.lock() = running.await.err() }
    })
    .await;
    let failure = failure.lock().take();
    failure.map_or(ended, |error| Err(error.into()))
}

async fn serve_webhook(
    flags: &WebhookFlags,
    router: axum::Router,
) -> Result<impl Future<Output = std::io::Result<()>> + Send + use<>> {
    let server = kai_admission::server::serve(&flags.webhook_bind_address, &flags.webhook_cert_dir, router);
    Ok(server.await?)
}

fn quota_validation(options: &kai_controllers::queue::Options) -> QuotaValidation {
    if options.enable_quota_validation { QuotaValidation::Enabled } else { QuotaValidation::Disabled }
}

/// The namespace of the lease: that of the pod, else that of the kubeconfig's context.
fn namespace(config: &kube::Config) -> String {
    let pod = std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty());
    pod.unwrap_or_else(|| match config.default_namespace.as_str() {
        "" | "default" => NAMESPACE.to_owned(),
        name => name.to_owned(),
    })
}

/// A variable of the environment that the binder sets from the downward API.
fn variable(name: &str) -> Result<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    value.with_context(|| {
        format!("`{name}` is not set; hint: the binder sets it in reservation pods from the downward API")
    })
}
