//! The secret with the certificate of an operand's webhooks.

use crate::facts::{Certificate, CertificateRequest, Facts};
use crate::settings::Settings;
use crate::workload::metadata;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Directory in which a component expects its certificate: the default of controller-runtime.
const DIRECTORY: &str = "/tmp/k8s-webhook-server/serving-certs";

/// A Service with webhooks, and the secret with their certificate.
#[derive(Clone, Copy)]
pub(crate) struct Webhook {
    pub(crate) service: &'static str,
    pub(crate) secret: &'static str,
}

impl Webhook {
    pub(crate) fn certificate(self, namespace: &str) -> CertificateRequest {
        CertificateRequest {
            secret: self.secret,
            namespace: namespace.to_owned(),
            dns_name: format!("{}.{namespace}.svc", self.service),
        }
    }

    /// The secret, and the text that the webhook configurations trust.
    pub(crate) fn secret(self, settings: &Settings, facts: &Facts) -> Result<(Value, String), String> {
        let Some(Certificate { certificate, key, trusted }) = facts.certificates.get(self.secret) else {
            return Err(match facts.certificate_errors.get(self.secret) {
                Some(why) => {
                    format!(
                        "secret `{}` with the certificate of the webhook cannot be stored: {why}",
                        self.secret
                    )
                }
                None => format!("the certificate of secret `{}` is not known yet", self.secret),
            });
        };
        let own = STANDARD.encode(certificate);
        let trusted = trusted.clone().unwrap_or_else(|| own.clone());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": metadata(self.secret, &settings.namespace, &settings.owner()),
            "data": {"tls.crt": own, "tls.key": STANDARD.encode(key)},
        });
        Ok((secret, trusted))
    }

    pub(crate) fn volume(self) -> Value {
        json!({"name": "cert", "secret": {"secretName": self.secret}})
    }

    pub(crate) fn mount() -> Value {
        json!({"name": "cert", "mountPath": DIRECTORY, "readOnly": true})
    }
}
