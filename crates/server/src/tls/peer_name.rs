//! The name of a node in its certificate.

use std::fmt;
use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, ServerName};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The domain of all names: `.internal` is reserved, and no public authority certifies it.
pub(crate) const DOMAIN: &str = ".esker.internal";
/// The name of an authority, before that of its cluster.
const AUTHORITY_PREFIX: &str = "Esker cluster ";
/// The longest label of a name in DNS.
const CLUSTER_BYTES_MAX: usize = 63;

/// The name of a node in its certificate: `node-N.CLUSTER.esker.internal`, a DNS name without an
/// address. `N` is the number of the node, and `CLUSTER` a name that all nodes of a cluster share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerName {
    cluster: String,
    pub(crate) node: u64,
}

impl PeerName {
    /// Creates the name of a node; `None` if the cluster's name is no label of DNS in lower case.
    pub(crate) fn new(cluster: &str, node: u64) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_label = (1..=CLUSTER_BYTES_MAX).contains(&cluster.len())
            && cluster.bytes().all(|byte| is_plain(byte) || byte == b'-')
            && !cluster.starts_with('-')
            && !cluster.ends_with('-');
        (is_label && node > 0).then(|| Self { cluster: cluster.to_owned(), node })
    }

    fn parse(name: &str) -> Option<Self> {
        let (node, cluster) = name.strip_suffix(DOMAIN)?.strip_prefix("node-")?.split_once('.')?;
        let parsed = Self::new(cluster, node.parse().ok()?)?;
        // One form for each number: no sign, no zeros before it.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Finds the only name of a node in a certificate.
    ///
    /// # Errors
    /// The reason why the certificate names no node, or more than one.
    pub(crate) fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let names = Self::hosts(certificate)?;
        let mut found = names.iter().filter_map(|name| Self::parse(name));
        let name = found.next().ok_or_else(|| {
            format!("its certificate names no node: it needs the DNS name node-N.CLUSTER{DOMAIN}")
        })?;
        match found.find(|other| *other != name) {
            Some(other) => Err(format!("its certificate names two nodes, {name} and {other}")),
            None => Ok(name),
        }
    }

    /// Returns the names and addresses of a certificate.
    pub(crate) fn hosts(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
        let parsed = parse(certificate)?;
        let names = parsed.tbs_certificate.get::<SubjectAltName>().map_err(unreadable)?;
        let names = names.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
        let hosts = names.into_iter().filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.to_string()),
            GeneralName::IpAddress(bytes) => address(bytes.as_bytes()),
            _ => None,
        });
        Ok(hosts.collect())
    }

    /// Returns the name of the authority of a cluster.
    pub(crate) fn authority_name(cluster: &str) -> String {
        format!("{AUTHORITY_PREFIX}{cluster}")
    }

    /// Returns the cluster of an authority with a name as [`PeerName::authority_name`] gives it.
    pub(crate) fn authority_cluster(certificate: &CertificateDer<'_>) -> Result<String, String> {
        let subject = parse(certificate)?.tbs_certificate.subject.to_string();
        let cluster = subject.strip_prefix("CN=").and_then(|it| it.strip_prefix(AUTHORITY_PREFIX));
        let cluster = cluster.filter(|cluster| Self::new(cluster, 1).is_some());
        cluster
            .map(ToOwned::to_owned)
            .ok_or_else(|| format!("{subject} is no authority of a cluster"))
    }

    /// Returns the name of another node of this cluster.
    pub(crate) fn with_node(&self, node: u64) -> Self {
        Self { cluster: self.cluster.clone(), node }
    }

    /// Whether both are of one cluster.
    pub(crate) fn is_same_cluster(&self, other: &Self) -> bool {
        self.cluster == other.cluster
    }

    /// Returns the name that all nodes of this cluster have beside their own: some of them is
    /// called without its number.
    pub(crate) fn any_node(&self) -> String {
        format!("node.{}{DOMAIN}", self.cluster)
    }

    /// Returns the name as rustls verifies it.
    pub(crate) fn to_server_name(&self) -> Result<ServerName<'static>, String> {
        ServerName::try_from(self.to_string()).map_err(|error| format!("{self}: {error}"))
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}.{}{DOMAIN}", self.node, self.cluster)
    }
}

fn parse(certificate: &CertificateDer<'_>) -> Result<x509_cert::Certificate, String> {
    x509_cert::Certificate::from_der(certificate).map_err(unreadable)
}

fn unreadable(error: x509_cert::der::Error) -> String {
    format!("its certificate cannot be read: {error}")
}

fn address(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(names).unwrap().self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn certificate_names_one_node() {
        let named = |names: &[&str]| PeerName::from_certificate(&certificate(names));
        let expected = PeerName::new("orders", 3).unwrap();
        let name = "node-3.orders.esker.internal";
        assert_eq!(named(&[name]), Ok(expected.clone()));
        assert_eq!(named(&["db3.example.org", "10.0.0.3", name]), Ok(expected.clone()));
        assert_eq!(named(&[name, name]), Ok(expected));
        assert!(named(&[name, "node-4.orders.esker.internal"]).unwrap_err().contains("two nodes"));
        assert!(named(&["db3.example.org"]).unwrap_err().contains("names no node"));
    }

    #[test]
    fn other_forms_of_a_name_are_none() {
        for name in [
            "node-0.orders.esker.internal",
            "node-03.orders.esker.internal",
            "node-+3.orders.esker.internal",
            "node-18446744073709551616.orders.esker.internal",
            "node-3.esker.internal",
            "node-3..esker.internal",
            "node-3.a.b.esker.internal",
            "node-3.Orders.esker.internal",
            "node-3.-orders.esker.internal",
            "node-3.orders.esker.internal.example.org",
            "node-3.orders.esker.example",
            "*.orders.esker.internal",
        ] {
            assert_eq!(PeerName::parse(name), None, "{name}");
        }
    }
}
