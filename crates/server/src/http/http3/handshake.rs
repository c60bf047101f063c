//! The handshake of a connection over QUIC, and why it may fail.

use std::time::Duration;

use quinn::{Connection, ConnectionError, Incoming, TransportErrorCode};
use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::tls_refusals::RefusalReason;

/// The time that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The errors of QUIC that are alerts of TLS, one for each.
const ALERT_CODES: std::ops::Range<u64> = 0x100..0x200;

/// A handshake that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedHandshake {
    pub(crate) reason: RefusalReason,
    pub(crate) why: String,
}

/// Accepts a connection.
///
/// # Errors
/// [`FailedHandshake`]: it is refused, or the client gave up.
pub(super) async fn accept(incoming: Incoming) -> Result<Connection, FailedHandshake> {
    let handshake = async { incoming.accept()?.await };
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(done) => done.map_err(|error| FailedHandshake {
            reason: refusal_reason(&error),
            why: error.to_string(),
        }),
        Err(_) => Err(FailedHandshake {
            reason: RefusalReason::Timeout,
            why: "its handshake was not complete in time".into(),
        }),
    }
}

/// Returns the certificates that the client showed, its own first. They were verified.
pub(super) fn shown_certificates(connection: &Connection) -> Vec<CertificateDer<'static>> {
    let shown = connection.peer_identity();
    let shown = shown.and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
    shown.map_or_else(Vec::new, |shown| *shown)
}

fn refusal_reason(error: &ConnectionError) -> RefusalReason {
    match error {
        ConnectionError::TransportError(error) => {
            alert(error.code).map_or(RefusalReason::Protocol, RefusalReason::from_own_alert)
        }
        ConnectionError::ConnectionClosed(close) if alert(close.error_code).is_some() => {
            RefusalReason::Alert
        }
        ConnectionError::VersionMismatch => RefusalReason::Protocol,
        ConnectionError::TimedOut => RefusalReason::Timeout,
        _ => RefusalReason::Closed,
    }
}

/// Returns the alert of TLS in an error of QUIC.
fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let code = u64::from(code);
    ALERT_CODES.contains(&code).then(|| AlertDescription::from(code as u8))
}
