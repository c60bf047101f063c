//! Counts of the connections that TLS refused, and their log lines.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[cfg(feature = "http3")]
use rustls::AlertDescription;
use rustls::{CertificateError, Error};

use crate::log_limiter::LineLimiter;

/// The time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The ports that refuse connections, as metrics name them.
const REFUSED_PORTS: [&str; 2] = ["clients", "raft"];

/// The reason why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// The caller ended the connection during the handshake.
    Closed,
    /// The handshake was not complete in time.
    Timeout,
    /// The caller has no TLS, and needs it.
    Plain,
    /// The caller wanted TLS for clients, or for nodes, and the node has no certificate for that.
    NoCertificate,
    /// The caller showed no certificate, or one of another authority.
    Certificate,
    /// The caller's certificate has ended, or is not valid yet.
    Expired,
    /// The caller's certificate is of another cluster, or names no node.
    Name,
    /// The caller does not trust the certificate of this node, or gave up for another reason.
    Alert,
    /// The caller speaks another version or protocol.
    Protocol,
}

impl RefusalReason {
    pub(crate) const ALL: [Self; 9] = [
        Self::Closed,
        Self::Timeout,
        Self::Plain,
        Self::NoCertificate,
        Self::Certificate,
        Self::Expired,
        Self::Name,
        Self::Alert,
        Self::Protocol,
    ];

    /// Returns the reason as metrics and log lines name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Plain => "plain",
            Self::NoCertificate => "no_certificate",
            Self::Certificate => "certificate",
            Self::Expired => "expired",
            Self::Name => "name",
            Self::Alert => "alert",
            Self::Protocol => "protocol",
        }
    }

    /// Classifies the failure of a handshake.
    pub(crate) fn from_handshake(error: &io::Error) -> Self {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) else {
            return match error.kind() {
                // Of the name in a certificate.
                io::ErrorKind::PermissionDenied => Self::Name,
                _ => Self::Closed,
            };
        };
        match cause {
            Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            ) => Self::Expired,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Self::Certificate,
            Error::AlertReceived(_) => Self::Alert,
            _ => Self::Protocol,
        }
    }

    /// Classifies the alert with which this node ended a handshake: over QUIC there is no more.
    #[cfg(feature = "http3")]
    pub(crate) fn from_own_alert(alert: AlertDescription) -> Self {
        use AlertDescription::{
            AccessDenied, BadCertificate, CertificateExpired, CertificateRequired,
            CertificateRevoked, CertificateUnknown, DecryptError, UnknownCA,
            UnsupportedCertificate,
        };
        match alert {
            CertificateExpired => Self::Expired,
            // A wrong signature is a wrong key of the certificate.
            AccessDenied
            | BadCertificate
            | CertificateRequired
            | CertificateRevoked
            | CertificateUnknown
            | DecryptError
            | UnknownCA
            | UnsupportedCertificate => Self::Certificate,
            _ => Self::Protocol,
        }
    }
}

/// The connections that were refused, by port and reason.
#[derive(Debug, Default)]
pub(crate) struct TlsRefusals {
    counts: [[AtomicU64; RefusalReason::ALL.len()]; REFUSED_PORTS.len()],
    lines: LineLimiter,
}

impl TlsRefusals {
    /// Counts a connection that the port between nodes refused. Raft logs it.
    pub(crate) fn count_raft(&self, reason: RefusalReason) {
        self.count(1, reason);
    }

    /// Counts a connection that the port of clients refused, and logs it, once a second at most.
    pub(crate) fn report_client(
        &self,
        from: SocketAddr,
        reason: RefusalReason,
        why: &dyn fmt::Display,
    ) {
        self.count(0, reason);
        if let Some(suppressed) = self.lines.should_log(LOG_INTERVAL) {
            let reason = reason.name();
            tracing::warn!(address = %from, reason, %why, suppressed, "refused a connection of a client");
        }
    }

    fn count(&self, port: usize, reason: RefusalReason) {
        if let Some(at) = RefusalReason::ALL.iter().position(|known| *known == reason) {
            self.counts[port][at].fetch_add(1, Relaxed);
        }
    }

    /// Returns the counts, each with its port and reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        REFUSED_PORTS.iter().zip(&self.counts).flat_map(|(port, counts)| {
            let counts = RefusalReason::ALL.iter().zip(counts);
            counts.map(|(reason, count)| (*port, reason.name(), count.load(Relaxed)))
        })
    }
}
