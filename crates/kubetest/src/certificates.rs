//! Certificates for test servers: one authority, one leaf for the loopback address.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::net::{IpAddr, Ipv4Addr};

/// An authority and a leaf that it signed, all as PEM.
pub struct Certificates {
    /// The CA certificate.
    pub authority: String,
    /// The leaf, for `127.0.0.1` and `localhost`.
    pub leaf: String,
    pub key: String,
}

/// A key pair for signing service-account tokens, as PEM.
pub struct SigningKey {
    /// PKCS#8.
    pub private: String,
    pub public: String,
}

impl Certificates {
    pub fn for_loopback() -> Result<Self, rcgen::Error> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "test authority");
        let authority_pem = authority.self_signed(&authority_key)?.pem();

        let key = KeyPair::generate()?;
        let mut leaf = CertificateParams::new(vec!["localhost".to_owned(), "kubernetes".to_owned()])?;
        leaf.subject_alt_names.push(rcgen::SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        leaf.distinguished_name.push(DnType::CommonName, "test server");
        let leaf = leaf.signed_by(&key, &Issuer::new(authority, authority_key))?.pem();
        Ok(Self { authority: authority_pem, leaf, key: key.serialize_pem() })
    }
}

impl SigningKey {
    pub fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Self { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}
