//! The role that a caller on the port of clients has proven.

use rustls::pki_types::CertificateDer;

use crate::tls::peer_name::PeerName;

/// The DNS name in the certificate of an administrator. `.internal` is reserved, and no public
/// authority certifies it.
pub(crate) const ADMIN_NAME: &str = "admin.esker.internal";

/// The role that a caller has proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientRole {
    /// A client. It may read.
    Client,
    /// An administrator: the certificate, which was verified, has [`ADMIN_NAME`].
    Admin,
    /// Another node of the cluster, with its number.
    Node(u64),
}

impl ClientRole {
    /// Returns the role of a client with this certificate, which was verified; with none, that of
    /// any client.
    pub(crate) fn from_certificate(certificate: Option<&CertificateDer<'_>>) -> Self {
        let names = certificate.and_then(|certificate| PeerName::hosts(certificate).ok());
        match names.is_some_and(|names| names.iter().any(|name| name == ADMIN_NAME)) {
            true => Self::Admin,
            false => Self::Client,
        }
    }
}

/// The role of the caller of a connection, and whether it is encrypted.
#[derive(Debug)]
pub(crate) struct ConnectionAccess {
    pub(crate) role: ClientRole,
    pub(crate) is_encrypted: bool,
    /// The certificates that prove the role, that of the caller first; none of a client.
    proof: Vec<CertificateDer<'static>>,
}

impl ConnectionAccess {
    /// Creates the access of a caller without TLS.
    pub(crate) fn plain() -> Self {
        Self { role: ClientRole::Client, is_encrypted: false, proof: Vec::new() }
    }

    /// Creates the access of a client over TLS that showed these certificates, which were verified.
    pub(crate) fn client(shown: &[CertificateDer<'_>]) -> Self {
        Self::with_role(ClientRole::from_certificate(shown.first()), shown)
    }

    /// Creates the access of another node, which was verified.
    pub(crate) fn node(node: u64, shown: &[CertificateDer<'_>]) -> Self {
        Self::with_role(ClientRole::Node(node), shown)
    }

    fn with_role(role: ClientRole, shown: &[CertificateDer<'_>]) -> Self {
        let is_proof = role != ClientRole::Client;
        let proof = shown.iter().filter(|_| is_proof).map(|shown| shown.clone().into_owned());
        Self { role, is_encrypted: true, proof: proof.collect() }
    }

    /// Returns the certificates that prove the role, that of the caller first.
    pub(crate) fn proof(&self) -> &[CertificateDer<'static>] {
        &self.proof
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn only_the_whole_name_is_an_administrator() {
        for (name, role) in [
            (ADMIN_NAME, ClientRole::Admin),
            ("*.esker.internal", ClientRole::Client),
            ("an.admin.esker.internal", ClientRole::Client),
            ("admin.esker.internal.example.org", ClientRole::Client),
            ("node-1.orders.esker.internal", ClientRole::Client),
        ] {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new([name.to_owned()]).unwrap();
            let certificate = certificate.self_signed(&key).unwrap();
            assert_eq!(ClientRole::from_certificate(Some(certificate.der())), role, "{name}");
        }
        assert_eq!(ClientRole::from_certificate(None), ClientRole::Client);
    }
}
