//! The admission webhooks of the embedded cluster, which its API server calls without a network.

use anyhow::{Context, Result};
use axum::Router;
use kai_admission::queue::QuotaValidation;
use kai_admission::registration::{self, Endpoint, PodScope};
use kai_admission::{pod, podgroup, queue, topology};
use kai_runtime::ResourceKind;
use kai_runtime::api::Api;
use kai_runtime::kind::{MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION};
use kai_sim::Cluster;
use serde_json::Value;

/// Host of the webhooks, resolved inside the embedded API server.
const HOST: &str = "kai-up.kai-scheduler.svc";

/// Options of the webhooks of pods. Simulated nodes have no runtime classes.
pub fn pod_options() -> pod::Options {
    pod::Options { gpu_sharing: true, runtime_class: String::new(), ..pod::Options::default() }
}

/// Registers all webhooks of an installation, and serves them.
pub async fn install(cluster: &Cluster, pods: pod::Options) -> Result<()> {
    install_with(cluster, pods, Router::new()).await
}

/// [`install`] with further routes on [`HOST`].
pub(crate) async fn install_with(cluster: &Cluster, pods: pod::Options, more: Router) -> Result<()> {
    let api = cluster.api();
    let router = router(api, pods).merge(more);
    cluster.server().core().webhooks.serve(HOST, router);
    let (endpoint, scope) = (Endpoint::Url { authority: HOST.to_owned() }, PodScope::default());
    ensure(api, &MUTATING_WEBHOOK_CONFIGURATION, &registration::mutating(&endpoint, "", &scope)).await?;
    for configuration in [
        registration::validating(&endpoint, "", &scope),
        registration::queues(&endpoint, ""),
        registration::pod_groups(&endpoint, ""),
    ] {
        ensure(api, &VALIDATING_WEBHOOK_CONFIGURATION, &configuration).await?;
    }
    Ok(())
}

/// All webhooks of an installation.
pub(crate) fn router(api: &Api, pods: pod::Options) -> Router {
    pod::router(pods)
        .merge(topology::router())
        .merge(podgroup::router())
        .merge(queue::router(api.clone(), QuotaValidation::Disabled))
}

/// The URL of a route.
pub(crate) fn url(path: &str) -> String {
    format!("https://{HOST}{path}")
}

pub(crate) async fn ensure(api: &Api, kind: &ResourceKind, configuration: &Value) -> Result<()> {
    api.ensure_dynamic(kind, "", configuration)
        .await
        .with_context(|| format!("cannot register webhooks `{}`", kai_object::name(configuration)))
}
