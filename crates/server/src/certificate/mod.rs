//! The certificate for clients: the operator's, or one that the node makes for HTTP/3.
//!
//! A node without `--cert` makes a self-signed certificate in its data folder, and a new one before
//! that ends. A certificate there that the node did not make is the operator's: it is used, and
//! never replaced. Open connections keep their certificate; new ones get that of
//! [`CertificateResolver`].
//!
//! `pair` is a certificate and its key, `files` reads and writes them, `maker` decides when the
//! node makes one, and `renewal` replaces it while the node runs.

// Without HTTP/3, only the parts that read the certificates of nodes are used.
#![cfg_attr(not(feature = "http3"), allow(dead_code))]

mod files;
mod maker;
mod pair;
mod renewal;
mod resolver;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::sign::CertifiedKey;

use crate::certificate::pair::certificate_hosts;
use crate::error::ServerError;

pub(crate) use files::{Pem, read as read_pem};
pub(crate) use pair::CertificatePair;
pub(crate) use renewal::{Certificate, EXPIRY_WARNING_INTERVAL};
#[cfg(feature = "http3")]
pub(crate) use resolver::CertificateResolver;

/// Makes a certificate in memory, for loopback and a day.
pub(crate) fn make_loopback_certificate(now: SystemTime) -> Result<Arc<CertifiedKey>, ServerError> {
    const ONE_DAY: Duration = Duration::from_secs(24 * 3600);
    let made = CertificatePair::make(&certificate_hosts([]), now, ONE_DAY);
    let pair =
        made.and_then(|pem| CertificatePair::parse(&pem)).map_err(ServerError::Certificate)?;
    Ok(pair.key())
}
