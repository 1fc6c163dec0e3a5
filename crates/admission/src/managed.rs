//! Maintains the certificate of the webhooks and the configurations that trust it. One leader does; all replicas serve.

use crate::certificate::{Lifetime, Stored};
use crate::registration::{self, Endpoint, PodScope};
use crate::server::SECRET;
use kai_clock::Clock;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION};
use kai_runtime::{Key, Process, ResourceKind};
use serde_json::{Value, json};
use std::time::Duration;

/// Time before a failed step is repeated, at most.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// What is maintained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The Secret with the certificate.
    pub secret: Key,
    /// The DNS name or address that the API server calls.
    pub host: String,
    pub endpoint: Endpoint,
    pub scope: PodScope,
    pub lifetime: Lifetime,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] kai_runtime::api::Error),
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
}

/// Runs until the process ends.
pub async fn run(mut process: Process, options: Options) {
    let (api, clock) = (process.api.clone(), process.clock);
    tokio::select! {
        biased;
        () = process.failed() => {}
        () = maintain(&api, clock, &options) => {}
    }
}

async fn maintain(api: &Api, clock: Clock, options: &Options) {
    let interval = options.lifetime.check_interval();
    loop {
        let pause = match step(api, clock, options).await {
            // The next step of a rotation follows at once.
            Ok(true) => continue,
            Ok(false) => interval,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot maintain the certificate and the configurations of the webhooks"
                );
                interval.min(RETRY_MAX)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Does one step; returns whether the Secret was changed.
async fn step(api: &Api, clock: Clock, options: &Options) -> Result<bool, Error> {
    let secret = match api.get_dynamic(&SECRET, &options.secret).await {
        Err(error) if error.is_not_found() => {
            let Key { namespace, name } = &options.secret;
            let empty = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            });
            api.ensure_dynamic(&SECRET, namespace, &empty).await?;
            return Ok(true);
        }
        found => found?,
    };
    let stored = Stored::of(&secret);
    let changed = stored.current.is_some() && trust(api, options, &stored.ca_bundle()).await?;
    // API servers read configurations with a delay: a certificate that was trusted just now is promoted by the next
    // check, when all of them know it.
    if changed && stored.next.is_some() {
        return Ok(false);
    }
    let Some(mut patch) = stored.next_step(&options.host, clock.now(), options.lifetime)? else {
        return Ok(false);
    };
    kai_object::set(
        &mut patch,
        &["metadata", "resourceVersion"],
        kai_object::meta(&secret, "resourceVersion").cloned(),
    );
    api.patch_dynamic(&SECRET, &options.secret, Part::Main, &patch).await?;
    Ok(true)
}

/// Creates missing configurations, and writes the certificates to trust into existing ones, with the URL where there is one.
/// Other fields of existing ones belong to the installation. Returns whether a configuration was changed.
async fn trust(api: &Api, options: &Options, ca_bundle: &str) -> Result<bool, Error> {
    let Options { endpoint, scope, .. } = options;
    let wanted: [(ResourceKind, Value); 2] = [
        (MUTATING_WEBHOOK_CONFIGURATION, registration::mutating(endpoint, ca_bundle, scope)),
        (VALIDATING_WEBHOOK_CONFIGURATION, registration::validating(endpoint, ca_bundle, scope)),
    ];
    let mut changed = false;
    for (kind, wanted) in wanted {
        let known = match api.get_dynamic(&kind, &Key::new("", kai_object::name(&wanted))).await {
            Err(error) if error.is_not_found() => {
                api.ensure_dynamic(&kind, "", &wanted).await?;
                changed = true;
                continue;
            }
            known => known?,
        };
        let mut new = known.clone();
        for webhook in new.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            let url = url_of(&wanted, kai_object::str_at(webhook, "/name"));
            if let Some(client) = webhook.get_mut("clientConfig").and_then(Value::as_object_mut) {
                client.insert("caBundle".to_owned(), Value::from(ca_bundle));
                if let Some(url) = url.filter(|_| client.contains_key("url")) {
                    client.insert("url".to_owned(), url.clone());
                }
            }
        }
        changed |= api.patch_difference_dynamic(&kind, Part::Main, &known, &new).await?.is_some();
    }
    Ok(changed)
}

/// The URL of a webhook of a configuration.
fn url_of<'a>(configuration: &'a Value, name: &str) -> Option<&'a Value> {
    let mut webhooks = configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    webhooks.find(|webhook| kai_object::str_at(webhook, "/name") == name)?.pointer("/clientConfig/url")
}
