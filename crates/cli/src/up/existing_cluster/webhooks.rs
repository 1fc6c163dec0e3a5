//! The webhooks of a trial, served in this process by URL, where the API server can reach it.
//!
//! Whether it can is found out with a registration that concerns one object, which is never stored. Only then the webhooks
//! are registered, with `failurePolicy: Ignore`: a trial that is killed must not stop the cluster.

use super::required_objects::MADE_BY;
use crate::embedded::admission;
use anyhow::{Context, Result, bail};
use kai_admission::certificate::{self, Lifetime};
use kai_admission::registration::{self, Endpoint, PROBE, PodScope};
use kai_admission::{pod, server};
use kai_clock::Clock;
use kai_object as object;
use kai_runtime::api::{Api, DeleteOptions};
use kai_runtime::kind::{
    Key, MUTATING_WEBHOOK_CONFIGURATION, ResourceKind, VALIDATING_WEBHOOK_CONFIGURATION,
};
use kai_runtime::{Process, url};
use kai_scheduler::resources::TOPOLOGY;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// The value of `--webhook-address` that serves no webhooks.
const NONE: &str = "none";
/// How long API servers may take to notice the registration of the probe.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);
/// How often an unreachable webhook is tried again: the first connection may fail for other reasons.
const ATTEMPTS_MAX: usize = 3;
const STEP: Duration = Duration::from_millis(300);
/// How long API servers wait for an answer. It is short, since the trial may have been stopped.
const TIMEOUT_SECONDS: u64 = 5;

const NOT_REVIEWED: &str = "\
  - pods that request a GPU fraction are not prepared; they are not bound, and an event says so
  - invalid pods, queues, pod groups and topologies are not refused when they are created
";

/// Lines to print; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices(Arc<Mutex<Vec<String>>>);

impl Notices {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    fn add(&self, text: String) {
        self.0.lock().push(text);
    }
}

/// How the webhooks of a trial are served; clones share the address.
#[derive(Clone, Debug)]
pub(super) struct Webhooks {
    /// `--webhook-address`.
    given: Option<String>,
    /// Host and port of the API server.
    server: (String, u16),
    notices: Notices,
    /// The authority of the URL that is registered.
    registered: Arc<Mutex<Option<String>>>,
}

impl Webhooks {
    pub(super) fn new(given: Option<&String>, config: &kube::Config, notices: &Notices) -> Self {
        let url = &config.cluster_url;
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = url.port_u16().unwrap_or(443);
        Self {
            given: given.cloned(),
            server: (host.to_owned(), port),
            notices: notices.clone(),
            registered: Arc::default(),
        }
    }

    /// Serves until the process ends. Where the API server cannot reach it, a notice says what does not work.
    pub(super) async fn run(self, mut process: Process) {
        let (api, clock) = (process.api.clone(), process.clock);
        let served = async {
            if let Err(error) = self.serve(&api, clock).await {
                self.notices.add(format!(
                    "No webhooks are served: {error:#}\n{NOT_REVIEWED}hint: --webhook-address HOST[:PORT] names an \
                     address of this machine that the API server can connect to"
                ));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = served => {}
            () = process.failed() => {}
        }
    }

    async fn serve(&self, api: &Api, clock: Clock) -> Result<()> {
        let (host, port) = self.address().await?;
        let certificate = certificate::create(&host, clock.now(), Lifetime::default())
            .with_context(|| format!("cannot create a certificate for `{host}`"))?;
        let router = admission::router(api, pod_options(api).await);
        let bind = bind_address(&host, port);
        let (bound, serving) = server::serve_with(&bind.to_string(), &certificate, router).await?;
        let bundle = base64(&certificate.certificate);
        let (_, endpoint) = Endpoint::at(&host, bound.port()).context("the address is not valid")?;
        let Endpoint::Url { authority } = &endpoint else { bail!("the webhooks have no URL") };
        let rest = async {
            probe(api, &endpoint, &bundle).await?;
            *self.registered.lock() = Some(authority.clone());
            let kept = register(api, &endpoint, &bundle).await?;
            self.notices.add(welcome(authority, &kept));
            std::future::pending::<Result<()>>().await
        };
        tokio::select! {
            biased;
            failed = rest => failed,
            ended = serving => {
                ended.context("the webhook server failed")?;
                bail!("the webhook server ended")
            }
        }
    }

    /// The host that is registered, and the port, 0 for any.
    async fn address(&self) -> Result<(String, u16)> {
        match self.given.as_deref() {
            Some(NONE) => bail!("--webhook-address is `{NONE}`"),
            Some(given) => {
                let parsed = Endpoint::at(given, 0).and_then(|(host, endpoint)| match endpoint {
                    Endpoint::Url { authority } => Some((host, authority.rsplit_once(':')?.1.parse().ok()?)),
                    Endpoint::Service { .. } => None,
                });
                parsed.with_context(|| format!("--webhook-address is `{given}`, which is no host or address"))
            }
            None => Ok((self.local_address().await?.to_string(), 0)),
        }
    }

    /// The address from which this machine reaches the API server.
    async fn local_address(&self) -> Result<IpAddr> {
        let (host, port) = &self.server;
        let mut found = tokio::net::lookup_host((host.as_str(), *port))
            .await
            .with_context(|| format!("cannot resolve `{host}`"))?;
        let remote = found.next().with_context(|| format!("`{host}` has no address"))?;
        let any: IpAddr = if remote.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        // Nothing is sent: the system only selects the address that it would send from.
        let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(remote).map(|()| socket));
        let local = socket.and_then(|socket| socket.local_addr());
        Ok(local.with_context(|| format!("no address of this machine reaches {remote}"))?.ip())
    }

    /// Removes the registrations of this process, if it has any. Those of another trial stay.
    pub(super) async fn unregister(&self, api: &Api) {
        let Some(authority) = self.registered.lock().take() else { return };
        for (kind, name) in NAMES {
            let key = Key::new("", name);
            let Ok(known) = api.get_dynamic(kind, &key).await else { continue };
            let url = object::str_at(&known, "/webhooks/0/clientConfig/url");
            if is_ours(&known) && url.starts_with(&format!("https://{authority}/")) {
                // It stays without effect otherwise, and the next trial replaces it.
                let _ = api.delete_dynamic(kind, &key, &DeleteOptions::default()).await;
            }
        }
    }
}

const NAMES: [(&ResourceKind, &str); 4] = [
    (&MUTATING_WEBHOOK_CONFIGURATION, registration::MUTATING),
    (&VALIDATING_WEBHOOK_CONFIGURATION, registration::VALIDATING),
    (&VALIDATING_WEBHOOK_CONFIGURATION, registration::QUEUE_VALIDATION),
    (&VALIDATING_WEBHOOK_CONFIGURATION, registration::POD_GROUP_VALIDATION),
];

/// Only this machine can call an address that only this machine has.
fn bind_address(host: &str, port: u16) -> SocketAddr {
    match host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => SocketAddr::from((address, port)),
        Ok(IpAddr::V6(_)) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port)),
        Ok(IpAddr::V4(_)) | Err(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
    }
}

/// Parts of GPUs may be requested. The runtime class is set only where it exists: pods would be refused otherwise.
async fn pod_options(api: &Api) -> pod::Options {
    let mut options = pod::Options { gpu_sharing: true, ..pod::Options::default() };
    let path = format!("/apis/node.k8s.io/v1/runtimeclasses/{}", url::segment(&options.runtime_class));
    if api.send("GET", &path, None).await.is_err() {
        options.runtime_class.clear();
    }
    options
}

/// Finds out whether the API server can call the webhooks.
async fn probe(api: &Api, endpoint: &Endpoint, bundle: &str) -> Result<()> {
    let kind = &VALIDATING_WEBHOOK_CONFIGURATION;
    let configuration = marked(registration::probe(endpoint, bundle, TIMEOUT_SECONDS));
    replace(api, kind, &configuration).await.context("cannot register webhooks")?;
    let reached = tokio::time::timeout(NOTICED_WITHIN, reach(api)).await;
    // The next trial replaces it; it concerns one object, which is never stored.
    let _ = api.delete_dynamic(kind, &Key::new("", PROBE), &DeleteOptions::default()).await;
    let Endpoint::Url { authority } = endpoint else { bail!("the webhooks have no URL") };
    let reason = match reached {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(reason)) => reason,
        Err(_) => format!("it has not called it within {} s", NOTICED_WITHIN.as_secs()),
    };
    bail!("the API server cannot reach this process at https://{authority}: {reason}")
}

/// Creates a topology that the webhook refuses, as a dry run, until it does.
async fn reach(api: &Api) -> Result<(), String> {
    let topology = json!({
        "apiVersion": TOPOLOGY.api_version(), "kind": "Topology", "metadata": {"name": PROBE},
        "spec": {"levels": [{"nodeLabel": PROBE, "alias": PROBE}]},
    });
    let path = TOPOLOGY.path_of(&Key::new("", PROBE));
    let path = format!("{}?dryRun=All", path.trim_end_matches(&format!("/{PROBE}")));
    let mut failures = 0;
    loop {
        match api.send("POST", &path, Some(("application/json", &topology))).await {
            // The API server has not noticed the registration yet.
            Ok(_) => {}
            Err(error) if error.code() == 403 && error.message().contains("denied the request") => {
                return Ok(());
            }
            Err(error) => {
                failures += 1;
                if failures >= ATTEMPTS_MAX {
                    return Err(error.message());
                }
            }
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Registers all webhooks; returns the configurations that stay as they are, since the trial has not made them.
async fn register(api: &Api, endpoint: &Endpoint, bundle: &str) -> Result<Vec<&'static str>> {
    let scope = PodScope::default();
    let wanted = [
        registration::mutating(endpoint, bundle, &scope),
        registration::validating(endpoint, bundle, &scope),
        registration::queues(endpoint, bundle),
        registration::pod_groups(endpoint, bundle),
    ];
    let mut kept = Vec::new();
    for ((kind, name), mut wanted) in NAMES.into_iter().zip(wanted) {
        for webhook in wanted.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            webhook["failurePolicy"] = Value::from("Ignore");
            webhook["timeoutSeconds"] = Value::from(TIMEOUT_SECONDS);
        }
        match api.get_dynamic(kind, &Key::new("", name)).await {
            Ok(known) if !is_ours(&known) => kept.push(name),
            _ => replace(api, kind, &marked(wanted))
                .await
                .with_context(|| format!("cannot register `{name}`"))?,
        }
    }
    Ok(kept)
}

/// Creates an object in place of one of the same name that an earlier trial has left.
async fn replace(api: &Api, kind: &ResourceKind, wanted: &Value) -> Result<()> {
    let key = Key::new("", object::name(wanted));
    match api.delete_dynamic(kind, &key, &DeleteOptions::default()).await {
        Err(error) if !error.is_not_found() => bail!("{}", error.message()),
        _ => {}
    }
    match api.create_dynamic(kind, "", wanted).await {
        Ok(_) => Ok(()),
        Err(error) => bail!("{}", error.message()),
    }
}

fn marked(mut configuration: Value) -> Value {
    configuration["metadata"]["labels"][MADE_BY.0] = Value::from(MADE_BY.1);
    configuration
}

fn is_ours(configuration: &Value) -> bool {
    configuration["metadata"]["labels"][MADE_BY.0] == MADE_BY.1
}

fn welcome(authority: &str, kept: &[&str]) -> String {
    let served = format!(
        "webhooks are served at https://{authority}: pods that share GPUs are prepared, and invalid pods, queues, pod \
         groups and topologies are refused"
    );
    if kept.is_empty() {
        return served;
    }
    format!(
        "{served}\nexcept those of `{}`, which the cluster registers itself; hint: delete them, if what they call no longer runs",
        kept.join("`, `")
    )
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_for_this_machine_alone_are_not_served_to_others() {
        assert_eq!(bind_address("127.0.0.1", 7).to_string(), "127.0.0.1:7");
        assert_eq!(bind_address("::1", 7).to_string(), "[::1]:7");
        assert_eq!(bind_address("10.0.0.7", 7).to_string(), "0.0.0.0:7");
        assert_eq!(bind_address("fd00::7", 7).to_string(), "[::]:7");
        assert_eq!(bind_address("kai.example", 7).to_string(), "0.0.0.0:7");
    }

    fn webhooks(given: Option<&str>, server: &str) -> Webhooks {
        let config = kube::Config::new(format!("https://{server}").parse().unwrap());
        Webhooks::new(given.map(str::to_owned).as_ref(), &config, &Notices::default())
    }

    #[tokio::test]
    async fn address_is_given_or_that_which_reaches_the_api_server() {
        let of = async |given| webhooks(given, "127.0.0.1:6443").address().await.ok();
        assert_eq!(of(None).await, Some(("127.0.0.1".to_owned(), 0)));
        assert_eq!(of(Some("10.0.0.7")).await, Some(("10.0.0.7".to_owned(), 0)));
        assert_eq!(of(Some("kai.example:9443")).await, Some(("kai.example".to_owned(), 9443)));
        assert_eq!(of(Some("[fd00::7]:9443")).await, Some(("fd00::7".to_owned(), 9443)));
        for invalid in ["none", "a b", ":1", "a:b"] {
            assert_eq!(of(Some(invalid)).await, None, "{invalid}");
        }
    }
}
