//! Keeps the certificates of the webhooks in their Secrets, and renews them before they expire.
//!
//! The Secrets are written here rather than with the other objects, because each step of a renewal follows from what is
//! stored (see `kai_admission::certificate`).

use super::writes::{Permit, Writes};
use crate::facts::{Certificate, CertificateRequest};
use crate::key::ObjectKey;
use crate::unread::Unread;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kai_admission::certificate::{Lifetime, Stored};
use kai_clock::Clock;
use kai_runtime::api::{Api, Part};
use kai_runtime::kind::{Key, ResourceKind, builtin};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SECRET: ResourceKind = builtin::<Secret>();

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] kai_runtime::api::Error),
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("the Secret was written a moment ago")]
    Deferred,
}

impl Error {
    fn message(&self) -> String {
        match self {
            Self::Api(error) => error.message(),
            Self::Certificate(cause) => format!("{self}: {cause}"),
            Self::Deferred => self.to_string(),
        }
    }
}

/// The certificates by name of their Secret, or why there is none.
pub(super) async fn ensure(
    api: &Api,
    clock: Clock,
    requests: &[CertificateRequest],
    objects: &mut BTreeMap<ObjectKey, Value>,
    unread: &Unread,
    writes: &mut Writes,
) -> BTreeMap<String, Result<Certificate, String>> {
    let mut certificates = BTreeMap::new();
    for request in requests {
        let name = request.secret.to_owned();
        let key = ObjectKey::new("Secret", &request.namespace, request.secret);
        if let Some(problem) = unread.problem("Secret", &request.namespace) {
            certificates.insert(name, Err(problem));
            continue;
        }
        let (known, permit) = (objects.get(&key), writes.permit(&key));
        let trusted = |next: &str| is_trusted(objects, request, next);
        match ensure_one(api, clock, request, known, trusted, permit).await {
            Ok((certificate, changed)) => {
                if changed.is_some() {
                    writes.succeeded(&key);
                }
                certificates.insert(name, Ok(certificate));
                if let Some(mut secret) = changed {
                    kai_object::set(&mut secret, &["kind"], Value::from("Secret"));
                    kai_object::set(&mut secret, &["apiVersion"], Value::from("v1"));
                    objects.insert(key, secret);
                }
            }
            Err(error) => {
                let last = report(&error, &key, writes);
                // The last good certificate stays in use.
                let certificate = objects.get(&key).and_then(|known| usable(Stored::of(known)));
                certificates.insert(name, certificate.ok_or(last));
            }
        }
    }
    certificates
}

/// Schedules the next attempt; returns why the last one failed.
fn report(error: &Error, key: &ObjectKey, writes: &mut Writes) -> String {
    match error {
        Error::Deferred => {
            writes.defer(key);
            writes.error(key).map_or_else(|| error.message(), str::to_owned)
        }
        Error::Api(_) | Error::Certificate(_) => {
            tracing::warn!(
                object = %key,
                error = error as &dyn std::error::Error,
                "cannot store the certificate of a webhook"
            );
            writes.failed(key, error.message());
            error.message()
        }
    }
}

fn usable(stored: Stored) -> Option<Certificate> {
    let trusted = Some(stored.ca_bundle());
    let current = stored.current?;
    Some(Certificate { certificate: current.certificate, key: current.key, trusted })
}

async fn ensure_one(
    api: &Api,
    clock: Clock,
    request: &CertificateRequest,
    known: Option<&Value>,
    is_trusted: impl Fn(&str) -> bool,
    permit: Permit,
) -> Result<(Certificate, Option<Value>), Error> {
    let mut changed = None;
    let stored = known.map(Stored::of).unwrap_or_default();
    // The next certificate is served only when every webhook configuration trusts it.
    let waits = stored.next.as_ref().is_some_and(|next| !is_trusted(&next.certificate));
    let step =
        if waits { None } else { stored.next_step(&request.dns_name, clock.now(), Lifetime::default())? };
    if let Some(mut patch) = step {
        if permit == Permit::Later {
            return Err(Error::Deferred);
        }
        let key = Key::new(&request.namespace, request.secret);
        let secret = if let Some(known) = known {
            kai_object::set(
                &mut patch,
                &["metadata", "resourceVersion"],
                kai_object::meta(known, "resourceVersion").cloned(),
            );
            api.patch_dynamic(&SECRET, &key, Part::Main, &patch).await?
        } else {
            kai_object::set(&mut patch, &["apiVersion"], Value::from("v1"));
            kai_object::set(&mut patch, &["kind"], Value::from("Secret"));
            kai_object::set(&mut patch, &["metadata", "name"], Value::from(request.secret));
            kai_object::set(&mut patch, &["metadata", "namespace"], Value::from(request.namespace.as_str()));
            kai_object::set(&mut patch, &["metadata", "labels"], json!({"app": request.secret}));
            api.create_dynamic(&SECRET, &request.namespace, &patch).await?
        };
        changed = Some(secret);
    }
    let stored = changed.as_ref().map_or(stored, Stored::of);
    let trusted = Some(stored.ca_bundle());
    let (certificate, key) =
        stored.current.map(|current| (current.certificate, current.key)).unwrap_or_default();
    Ok((Certificate { certificate, key, trusted }, changed))
}

/// Whether all webhooks of the Service trust a certificate.
fn is_trusted(objects: &BTreeMap<ObjectKey, Value>, request: &CertificateRequest, certificate: &str) -> bool {
    const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    let configurations = objects.iter().filter(|(key, _)| KINDS.contains(&key.kind.as_str()));
    let webhooks = configurations.filter_map(|(_, of)| of.get("webhooks")?.as_array()).flatten();
    let mut clients = webhooks.filter_map(|webhook| webhook.get("clientConfig")).filter(|client| {
        let of = |field: &str| kai_object::str_at(client, field);
        format!("{}.{}.svc", of("/service/name"), of("/service/namespace")) == request.dns_name
    });
    clients.all(|client| {
        let bundle = STANDARD.decode(kai_object::str_at(client, "/caBundle")).unwrap_or_default();
        String::from_utf8(bundle).is_ok_and(|bundle| bundle.contains(certificate))
    })
}
