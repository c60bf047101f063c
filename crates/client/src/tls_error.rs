//! The reasons why there is no TLS connection to a node.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// The most characters of other texts that are kept.
const TEXT_CHARS_MAX: usize = 200;

/// The reason why there is no TLS connection to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The node's certificate is not of an authority that the client trusts.
    UnknownAuthority,
    /// The node's certificate has ended.
    Expired,
    /// The node's certificate is not valid yet.
    NotYetValid,
    /// The node's certificate is for these other names than the host that was connected to.
    OtherHost(String),
    /// The node wants a certificate of the client, which shows none.
    CertificateRequired,
    /// The node refuses the certificate of the client, for this reason.
    CertificateRefused(String),
    /// The node does not speak TLS, and the endpoints are `https://`.
    PlainNode,
    /// The node speaks TLS, and the endpoints are `http://`.
    TlsNode,
    /// Another reason.
    Other(String),
}

impl TlsError {
    /// Returns the failure of TLS that caused an error of I/O.
    pub(crate) fn from_io(error: &io::Error) -> Option<Self> {
        let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match cause {
            rustls::Error::InvalidCertificate(why) => Self::from_certificate(why),
            rustls::Error::AlertReceived(alert) => Self::from_alert(*alert),
            rustls::Error::InvalidMessage(_) => Self::PlainNode,
            other => Self::Other(excerpt(&other.to_string())),
        })
    }

    fn from_certificate(why: &CertificateError) -> Self {
        match why {
            // An authority of the same name with another key gives a wrong signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::NotValidForName => Self::OtherHost("other names".into()),
            CertificateError::NotValidForNameContext { presented, .. } => {
                // As in `DnsName("node-2.example")`.
                let name = |text: &String| text.split('"').nth(1).unwrap_or(text).to_owned();
                let names: Vec<_> = presented.iter().map(name).collect();
                Self::OtherHost(excerpt(&names.join(", ")))
            }
            other => Self::Other(excerpt(&format!("the node's certificate is invalid: {other}"))),
        }
    }

    fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired => Self::CertificateRequired,
            AlertDescription::CertificateExpired => Self::CertificateRefused("it has ended".into()),
            AlertDescription::UnknownCA => {
                Self::CertificateRefused("it is not of an authority that the node trusts".into())
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError => {
                Self::CertificateRefused(format!("{alert:?}").to_lowercase())
            }
            AlertDescription::NoApplicationProtocol => {
                Self::Other("the node does not speak the protocol of HTTP that is asked for".into())
            }
            alert => Self::Other(format!("the node ended the handshake: {alert:?}")),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no TLS connection: ")?;
        match self {
            Self::UnknownAuthority => {
                f.write_str("the node's certificate is not of an authority that is trusted here")
            }
            Self::Expired => f.write_str("the node's certificate has ended"),
            Self::NotYetValid => f.write_str("the node's certificate is not valid yet"),
            Self::OtherHost(names) => {
                write!(f, "the node's certificate is not for this host, but for {names}")
            }
            Self::CertificateRequired => f.write_str("the node wants a certificate of the client"),
            Self::CertificateRefused(why) => {
                write!(f, "the node refuses the certificate of the client: {why}")
            }
            Self::PlainNode => f.write_str("the node does not speak TLS; is it http://?"),
            Self::TlsNode => f.write_str("the node speaks TLS; is it https://?"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for TlsError {}

fn excerpt(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
