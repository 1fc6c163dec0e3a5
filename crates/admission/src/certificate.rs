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
use std::time::Duration;

/// When the certificate in `tls.crt` expires; absent on certificates that others made.
const EXPIRES: &str = "kai.scheduler/certificate-expires";
/// SHA-256 of the certificate that `EXPIRES` is about, in base64: others may replace `tls.crt` and leave the annotations.
const DIGEST: &str = "kai.scheduler/certificate-digest";
/// When the certificate in `next.crt` expires.
const NEXT_EXPIRES: &str = "kai.scheduler/next-certificate-expires";
/// The DNS name or address of the certificate in `tls.crt`; absent on those of earlier versions.
const FOR_HOST: &str = "kai.scheduler/certificate-host";
/// The DNS name or address of the certificate in `next.crt`.
const NEXT_FOR_HOST: &str = "kai.scheduler/next-certificate-host";

/// How long certificates are valid. How often they are looked at follows from it, so that every step of a rotation is done
/// by all replicas long before a certificate expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime(Duration);

impl Default for Lifetime {
    fn default() -> Self {
        Self(Duration::from_hours(365 * 24))
    }
}

impl Lifetime {
    /// Shorter ones leave no time for a rotation.
    pub const MIN: Duration = Duration::from_secs(8);

    /// `None` where it is shorter than [`MIN`](Self::MIN).
    pub fn new(validity: Duration) -> Option<Self> {
        (validity >= Self::MIN).then_some(Self(validity))
    }

    /// A certificate is replaced when less than this is left.
    fn renewal(self) -> Duration {
        self.0 / 4
    }

    /// Time between two checks of the leader: a deleted Secret or configuration is restored after it.
    pub fn check_interval(self) -> Duration {
        (self.0 / 40).min(Duration::from_secs(30))
    }

    /// Time after which a replica reads the Secret again.
    pub fn reload_interval(self) -> Duration {
        (self.0 / 80).min(Duration::from_secs(10))
    }
}

/// A certificate with its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pub certificate: String,
    pub key: String,
    pub expires: Timestamp,
    /// The DNS name or address that it is for.
    pub host: String,
}

/// Stands for a key where a value is printed, so that no key gets into a log.
const REDACTED: &str = "(redacted)";

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("certificate", &self.certificate)
            .field("key", &REDACTED)
            .field("expires", &self.expires)
            .field("host", &self.host)
            .finish()
    }
}

/// Creates a certificate for a DNS name or an address.
pub fn create(host: &str, now: Timestamp, lifetime: Lifetime) -> Result<Certificate, rcgen::Error> {
    let name = match host.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(host.try_into()?),
    };
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![name];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, host);
    let expires = now.checked_add(lifetime.0).unwrap_or(Timestamp::MAX);
    let date = |at: Timestamp| {
        let at = at.to_zoned(TimeZone::UTC);
        let day = rcgen::date_time_ymd(at.year().into(), at.month().unsigned_abs(), at.day().unsigned_abs());
        let seconds = [(at.hour(), 3600), (at.minute(), 60), (at.second(), 1)]
            .map(|(count, each)| i64::from(count) * each);
        day + Duration::from_secs(seconds.into_iter().sum::<i64>().unsigned_abs())
    };
    // Clocks of other machines may be behind.
    params.not_before = date(now.checked_sub(SignedDuration::from_hours(24)).unwrap_or(now));
    params.not_after = date(expires);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Certificate { certificate, key: key.serialize_pem(), expires, host: host.to_owned() })
}

/// The certificate that is served.
#[derive(Clone, PartialEq, Eq)]
pub struct Current {
    pub certificate: String,
    pub key: String,
    /// Not known of certificates that others made.
    pub expires: Option<Timestamp>,
    /// Not known of certificates of earlier versions, either.
    pub host: Option<String>,
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current")
            .field("certificate", &self.certificate)
            .field("key", &REDACTED)
            .field("expires", &self.expires)
            .field("host", &self.host)
            .finish()
    }
}

/// What is stored in the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// `tls.crt` and `tls.key`.
    pub current: Option<Current>,
    pub next: Option<Certificate>,
    /// A certificate that a replica may still serve.
    pub previous: Option<String>,
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
                let is_own = is_own(&certificate);
                let expires = expires(EXPIRES).filter(|_| is_own);
                let host = annotation(FOR_HOST).filter(|_| is_own).map(str::to_owned);
                Current { certificate, key, expires, host }
            }),
            next: pair("next.crt", "next.key").and_then(|(certificate, key)| {
                let host = annotation(NEXT_FOR_HOST).unwrap_or_default().to_owned();
                Some(Certificate { certificate, key, expires: expires(NEXT_EXPIRES)?, host })
            }),
            previous: data("previous.crt"),
        }
    }

    /// The certificates to trust, as PEM in base64.
    pub fn ca_bundle(&self) -> String {
        let current = self.current.iter().map(|current| current.certificate.as_str());
        let next = self.next.iter().map(|next| next.certificate.as_str());
        let all: Vec<&str> = current.chain(next).chain(self.previous.as_deref()).collect();
        STANDARD.encode(all.join("\n"))
    }

    /// The merge patch of the Secret for the next step of a rotation, if there is one. A next certificate must be trusted
    /// everywhere before it is promoted.
    pub fn next_step(
        &self,
        host: &str,
        now: Timestamp,
        lifetime: Lifetime,
    ) -> Result<Option<Value>, rcgen::Error> {
        let Some(current) = &self.current else {
            return Ok(Some(patch_current(&create(host, now, lifetime)?)));
        };
        let Some(expires) = current.expires else {
            // It replaced one of ours, which was about to be renewed.
            return Ok(self.next.as_ref().map(|_| {
                json!({
                    "metadata": {"annotations": {NEXT_EXPIRES: null, NEXT_FOR_HOST: null}},
                    "data": {"next.crt": null, "next.key": null},
                })
            }));
        };
        if let Some(next) = &self.next {
            let mut patch = patch_current(next);
            kai_object::set(
                &mut patch,
                &["data", "previous.crt"],
                Value::from(STANDARD.encode(&current.certificate)),
            );
            for key in ["next.crt", "next.key"] {
                kai_object::set(&mut patch, &["data", key], Value::Null);
            }
            for key in [NEXT_EXPIRES, NEXT_FOR_HOST] {
                kai_object::set(&mut patch, &["metadata", "annotations", key], Value::Null);
            }
            return Ok(Some(patch));
        }
        let left = expires.duration_since(now);
        let renewal = SignedDuration::try_from(lifetime.renewal()).unwrap_or(SignedDuration::MAX);
        if left >= renewal && current.host.as_deref().is_none_or(|of| of == host) {
            return Ok(None);
        }
        let next = create(host, now, lifetime)?;
        Ok(Some(json!({
            "metadata": {"annotations": {NEXT_EXPIRES: time(next.expires), NEXT_FOR_HOST: next.host}},
            "data": {"next.crt": STANDARD.encode(&next.certificate), "next.key": STANDARD.encode(&next.key)},
        })))
    }
}

fn digest_of(certificate: &str) -> String {
    STANDARD.encode(digest(&SHA256, certificate.as_bytes()))
}

fn patch_current(new: &Certificate) -> Value {
    json!({
        "metadata": {"annotations": {
            EXPIRES: time(new.expires), DIGEST: digest_of(&new.certificate), FOR_HOST: new.host,
        }},
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
            let patch = Stored::of(secret).next_step(HOST, now, Lifetime::default()).unwrap();
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
        assert!(
            bundle.contains(&next.certificate)
                && bundle.contains(&first.current.clone().unwrap().certificate)
        );
        assert!(step(&mut secret, now));
        let promoted = Stored::of(&secret);
        assert_eq!(promoted.current.clone().unwrap().certificate, next.certificate);
        assert!(
            promoted.next.is_none() && promoted.previous == first.current.map(|current| current.certificate)
        );
        assert!(!step(&mut secret, now));
    }

    #[test]
    fn certificate_of_others_is_kept() {
        let secret = json!({"data": {"tls.crt": STANDARD.encode("a"), "tls.key": STANDARD.encode("b")}});
        let stored = Stored::of(&secret);
        assert_eq!(stored.ca_bundle(), STANDARD.encode("a"));
        assert_eq!(stored.next_step(HOST, Timestamp::MAX, Lifetime::default()).unwrap(), None);
    }

    #[test]
    fn certificate_of_others_is_kept_where_it_replaced_one_of_ours() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let late = now.checked_add(SignedDuration::from_hours(300 * 24)).unwrap();
        for renewal_has_begun in [false, true] {
            let mut secret = json!({"metadata": {"annotations": {}}, "data": {}});
            let step = |secret: &mut Value, now| {
                let patch = Stored::of(secret).next_step(HOST, now, Lifetime::default()).unwrap();
                patch.map(|patch| apply(secret, &patch)).is_some()
            };
            assert!(step(&mut secret, now));
            assert_eq!(step(&mut secret, if renewal_has_begun { late } else { now }), renewal_has_begun);
            secret["data"]["tls.crt"] = json!(STANDARD.encode("a"));
            secret["data"]["tls.key"] = json!(STANDARD.encode("b"));
            assert_eq!(step(&mut secret, late), renewal_has_begun, "a renewal is dropped");
            assert!(!step(&mut secret, late));
            let stored = Stored::of(&secret);
            let others = Current { certificate: "a".into(), key: "b".into(), expires: None, host: None };
            assert_eq!((stored.current, stored.next), (Some(others), None));
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let made = create(HOST, "2026-01-01T00:00:00Z".parse().unwrap(), Lifetime::default()).unwrap();
        let current = Current {
            certificate: made.certificate.clone(),
            key: made.key.clone(),
            expires: None,
            host: None,
        };
        let stored = Stored { current: Some(current), next: Some(made), previous: None };
        let text = format!("{stored:?} {stored:#?}");
        assert!(text.contains("BEGIN CERTIFICATE") && !text.contains("PRIVATE KEY"), "{text}");
    }

    #[test]
    fn certificate_names_a_host_or_an_address() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for host in [HOST, "127.0.0.1"] {
            let made = create(host, now, Lifetime::default()).unwrap();
            assert!(made.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        }
    }

    #[test]
    fn certificate_for_another_host_is_replaced() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut secret = json!({"metadata": {"annotations": {}}, "data": {}});
        let step = |secret: &mut Value, host| {
            let patch = Stored::of(secret).next_step(host, now, Lifetime::default()).unwrap();
            patch.map(|patch| apply(secret, &patch)).is_some()
        };
        assert!(step(&mut secret, HOST));
        assert!(!step(&mut secret, HOST));
        assert!(step(&mut secret, "10.0.0.7") && step(&mut secret, "10.0.0.7"));
        assert_eq!(Stored::of(&secret).current.unwrap().host.as_deref(), Some("10.0.0.7"));
        assert!(!step(&mut secret, "10.0.0.7"));
    }

    #[test]
    fn intervals_leave_time_for_every_step_of_a_rotation() {
        assert_eq!(Lifetime::new(Duration::from_secs(7)), None);
        for validity in [Lifetime::MIN, Duration::from_mins(2), Duration::from_hours(365 * 24)] {
            let lifetime = Lifetime::new(validity).unwrap();
            let (check, reload) = (lifetime.check_interval(), lifetime.reload_interval());
            // Stored by one check and promoted by the next; then served by every replica.
            assert!(check * 2 + reload <= lifetime.renewal() / 2, "{validity:?}");
            assert!(reload < check, "{validity:?}");
        }
        assert_eq!(Lifetime::default().check_interval(), Duration::from_secs(30));
    }
}
