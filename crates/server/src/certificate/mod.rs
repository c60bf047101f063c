//! The certificate of HTTP/3: the operator's, or one that the node makes.
//!
//! A node without `--cert` makes a self-signed certificate in its data folder, and a new one before
//! it ends. One there that the node did not make is the operator's: it is used, and never replaced.
//! Connections that are open keep theirs; new ones get what [`Current`] has.
//!
//! `pair` is a certificate and its key, `files` reads and writes them, `own` decides when the node
//! makes one, and `watch` does so while the node runs.

mod current;
mod files;
mod own;
mod pair;
mod watch;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::sign::CertifiedKey;

use crate::error::ServerError;

pub(crate) use current::Current;
pub(crate) use watch::Certificate;

/// A certificate that is kept in memory, for loopback and a day.
pub(crate) fn self_made(now: SystemTime) -> Result<Arc<CertifiedKey>, ServerError> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let made = pair::Pair::make(&pair::hosts([]), now, DAY);
    let pair = made.and_then(|pem| pair::Pair::parse(&pem)).map_err(ServerError::Certificate)?;
    Ok(pair.key)
}
