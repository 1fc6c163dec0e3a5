//! Certificates of the webhooks, and their rotation as a pure function.
//!
//! A certificate is trusted by itself: the webhook configurations contain it. To replace one without a refused call, the
//! next certificate is first stored, then trusted, then served; the previous one stays trusted until the next rotation,
//! since a replica may still serve it. Every step follows from what is stored, so any replica can continue.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use kai_clock::time;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::fmt;
use std::net::IpAddr;

/// How long a certificate is valid.
const VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// A certificate is replaced when less than this is left.
const RENEWAL: SignedDuration = SignedDuration::from_hours(90 * 24);
/// When the certificate in `tls.crt` expires; absent on certificates that others made.
const EXPIRES: &str = "kai.scheduler/certificate-expires";
/// SHA-256 of the certificate that `EXPIRES` is about, in base64: others may replace `tls.crt` and leave the annotations.
const DIGEST: &str = "kai.scheduler/certificate-digest";
/// When the certificate in `next.crt` expires.
const NEXT_EXPIRES: &str = "kai.scheduler/next-certificate-expires";

/// A certificate with its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pub certificate: String,
    pub key: String,
    pub expires: Timestamp,
}

/// Stands for a key where a value is printed, so that no key gets into a log.
const REDACTED: &str = "(redacted)";

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("certificate", &self.certificate)
            .field("key", &REDACTED)
            .field("expires", &self.expires)
            .finish()
    }
}

/// Creates a certificate for a DNS name or an address.
pub fn create(host: &str, now: Timestamp) -> Result<Certificate, rcgen::Error> {
    let name = match host.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(host.try_into()?),
    };
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![name];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, host);
    let expires = now.checked_add(VALIDITY).unwrap_or(Timestamp::MAX);
    // Clocks of other machines may be behind.
    let date = |at: Timestamp| {
        let at = at.to_zoned(TimeZone::UTC);
        rcgen::date_time_ymd(at.year().into(), at.month().unsigned_abs(), at.day().unsigned_abs())
    };
    params.not_before = date(now.checked_sub(SignedDuration::from_hours(24)).unwrap_or(now));
    params.not_after = date(expires);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Certificate { certificate, key: key.serialize_pem(), expires })
}

/// What is stored in the Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// `tls.crt` and `tls.key`; the expiry is not known of certificates that others made.
    pub current: Option<(String, String, Option<Timestamp>)>,
    pub next: Option<Certificate>,
    /// A certificate that a replica may still serve.
    pub previous: Option<String>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current.as_ref().map(|(certificate, _, expires)| (certificate, REDACTED, expires));
        f.debug_struct("Stored")
            .field("current", &current)
            .field("next", &self.next)
            .field("previous", &self.previous)
            .finish()
    }
}

impl Stored {
    pub fn of(secret: &Value) -> Self {
        let data = |key: &str| {
            let text = secret.get("data")?.get(key)?.as_str()?;
            String::from_utf8(STANDARD.decode(text).ok()?).ok().filter(|text| !text.is_empty())
        };
        let annotation = |key: &str| kai_object::meta(secret, "annotations")?.get(key)?.as_str();
        let expires = |key: &str| annotation(key)?.parse().ok();
        // Earlier versions stored no digest.
        let is_own = |certificate: &str| annotation(DIGEST).is_none_or(|of| of == digest_of(certificate));
        let pair = |certificate, key| Some((data(certificate)?, data(key)?));
        Self {
            current: pair("tls.crt", "tls.key").map(|(certificate, key)| {
                let expires = expires(EXPIRES).filter(|_| is_own(&certificate));
                (certificate, key, expires)
            }),
            next: pair("next.crt", "next.key").and_then(|(certificate, key)| {
                Some(Certificate { certificate, key, expires: expires(NEXT_EXPIRES)? })
            }),
            previous: data("previous.crt"),
        }
    }

    /// The certificates to trust, as PEM in base64.
    pub fn ca_bundle(&self) -> String {
        let current = self.current.iter().map(|(certificate, ..)| certificate.as_str());
        let next = self.next.iter().map(|next| next.certificate.as_str());
        let all: Vec<&str> = current.chain(next).chain(self.previous.as_deref()).collect();
        STANDARD.encode(all.join("\n"))
    }

    /// The merge patch of the Secret for the next step of a rotation, if there is one. A next certificate must be trusted
    /// everywhere before it is promoted.
    pub fn next_step(&self, host: &str, now: Timestamp) -> Result<Option<Value>, rcgen::Error> {
        let Some((current, _, expires)) = &self.current else {
            return Ok(Some(patch_current(&create(host, now)?)));
        };
        let Some(expires) = expires else {
            // It replaced one of ours, which was about to be renewed.
            return Ok(self.next.as_ref().map(|_| {
                json!({
                    "metadata": {"annotations": {NEXT_EXPIRES: null}},
                    "data": {"next.crt": null, "next.key": null},
                })
            }));
        };
        if let Some(next) = &self.next {
            let mut patch = patch_current(next);
            patch["data"]["previous.crt"] = Value::from(STANDARD.encode(current));
            for key in ["next.crt", "next.key"] {
                patch["data"][key] = Value::Null;
            }
            patch["metadata"]["annotations"][NEXT_EXPIRES] = Value::Null;
            return Ok(Some(patch));
        }
        if expires.duration_since(now) >= RENEWAL {
            return Ok(None);
        }
        let next = create(host, now)?;
        Ok(Some(json!({
            "metadata": {"annotations": {NEXT_EXPIRES: time(next.expires)}},
            "data": {"next.crt": STANDARD.encode(&next.certificate), "next.key": STANDARD.encode(&next.key)},
        })))
    }
}

fn digest_of(certificate: &str) -> String {
    STANDARD.encode(digest(&SHA256, certificate.as_bytes()))
}

fn patch_current(new: &Certificate) -> Value {
    json!({
        "metadata": {"annotations": {EXPIRES: time(new.expires), DIGEST: digest_of(&new.certificate)}},
        "data": {"tls.crt": STANDARD.encode(&new.certificate), "tls.key": STANDARD.encode(&new.key)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "admission.kai-scheduler.svc";

    fn apply(secret: &mut Value, patch: &Value) {
        for part in ["metadata/annotations", "data"] {
            let Some(fields) = patch.pointer(&format!("/{part}")).and_then(Value::as_object) else {
                continue;
            };
            for (key, value) in fields {
                let into =
                    if part == "data" { &mut secret["data"] } else { &mut secret["metadata"]["annotations"] };
                into[key.as_str()] = value.clone();
            }
        }
    }

    #[test]
    fn certificate_is_replaced_before_it_expires_and_all_served_ones_are_trusted() {
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut secret = json!({"metadata": {"annotations": {}}, "data": {}});
        let step = |secret: &mut Value, now| {
            let patch = Stored::of(secret).next_step(HOST, now).unwrap();
            patch.map(|patch| apply(secret, &patch)).is_some()
        };
        assert!(step(&mut secret, now));
        let first = Stored::of(&secret);
        assert!(!step(&mut secret, now), "nothing to do with a new certificate");
        now = now.checked_add(SignedDuration::from_hours(300 * 24)).unwrap();
        assert!(step(&mut secret, now));
        let prepared = Stored::of(&secret);
        assert_eq!(prepared.current, first.current, "the old one is served until the new one is trusted");
        let next = prepared.next.clone().unwrap();
        let bundle = String::from_utf8(STANDARD.decode(prepared.ca_bundle()).unwrap()).unwrap();
        assert!(bundle.contains(&next.certificate) && bundle.contains(&first.current.clone().unwrap().0));
        assert!(step(&mut secret, now));
        let promoted = Stored::of(&secret);
        assert_eq!(promoted.current.clone().unwrap().0, next.certificate);
        assert!(
            promoted.next.is_none()
                && promoted.previous == first.current.map(|(certificate, ..)| certificate)
        );
        assert!(!step(&mut secret, now));
    }

    #[test]
    fn certificate_of_others_is_kept() {
        let secret = json!({"data": {"tls.crt": STANDARD.encode("a"), "tls.key": STANDARD.encode("b")}});
        let stored = Stored::of(&secret);
        assert_eq!(stored.ca_bundle(), STANDARD.encode("a"));
        assert_eq!(stored.next_step(HOST, Timestamp::MAX).unwrap(), None);
    }

    #[test]
    fn certificate_of_others_is_kept_where_it_replaced_one_of_ours() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let late = now.checked_add(SignedDuration::from_hours(300 * 24)).unwrap();
        for renewal_has_begun in [false, true] {
            let mut secret = json!({"metadata": {"annotations": {}}, "data": {}});
            let step = |secret: &mut Value, now| {
                let patch = Stored::of(secret).next_step(HOST, now).unwrap();
                patch.map(|patch| apply(secret, &patch)).is_some()
            };
            assert!(step(&mut secret, now));
            assert_eq!(step(&mut secret, if renewal_has_begun { late } else { now }), renewal_has_begun);
            secret["data"]["tls.crt"] = json!(STANDARD.encode("a"));
            secret["data"]["tls.key"] = json!(STANDARD.encode("b"));
            assert_eq!(step(&mut secret, late), renewal_has_begun, "a renewal is dropped");
            assert!(!step(&mut secret, late));
            let stored = Stored::of(&secret);
            assert_eq!((stored.current, stored.next), (Some(("a".into(), "b".into(), None)), None));
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let made = create(HOST, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        let stored = Stored {
            current: Some((made.certificate.clone(), made.key.clone(), None)),
            next: Some(made),
            previous: None,
        };
        let text = format!("{stored:?} {stored:#?}");
        assert!(text.contains("BEGIN CERTIFICATE") && !text.contains("PRIVATE KEY"), "{text}");
    }

    #[test]
    fn certificate_names_a_host_or_an_address() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for host in [HOST, "127.0.0.1"] {
            assert!(create(host, now).unwrap().certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        }
    }
}
