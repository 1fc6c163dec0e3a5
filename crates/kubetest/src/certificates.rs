//! Certificates for tests: an authority, and what it signs for servers and clients.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::net::{IpAddr, Ipv4Addr};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, as PEM.
    pub certificate: String,
}

/// A certificate with its key, both as PEM.
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

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

impl Authority {
    pub fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "test authority");
        let certificate = authority.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(authority, key), certificate })
    }

    /// A certificate of a server with these addresses besides the loopback address.
    pub fn server(&self, addresses: &[Ipv4Addr]) -> Result<Leaf, rcgen::Error> {
        let mut leaf = CertificateParams::new(vec!["localhost".to_owned(), "kubernetes".to_owned()])?;
        let addresses = addresses.iter().copied().chain([Ipv4Addr::LOCALHOST]);
        leaf.subject_alt_names.extend(addresses.map(|address| SanType::IpAddress(IpAddr::V4(address))));
        leaf.distinguished_name.push(DnType::CommonName, "test server");
        self.sign(&leaf)
    }

    /// A certificate by which the API server knows a user and its group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Leaf, rcgen::Error> {
        let mut leaf = CertificateParams::new(Vec::new())?;
        leaf.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            leaf.distinguished_name.push(DnType::OrganizationName, group);
        }
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&leaf)
    }

    fn sign(&self, leaf: &CertificateParams) -> Result<Leaf, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Leaf { certificate: leaf.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl Certificates {
    pub fn for_loopback() -> Result<Self, rcgen::Error> {
        let authority = Authority::new()?;
        let leaf = authority.server(&[])?;
        Ok(Self { authority: authority.certificate, leaf: leaf.certificate, key: leaf.key })
    }
}

impl SigningKey {
    pub fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Self { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}
