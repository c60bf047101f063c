//! Access to changes of the cluster: `POST /cluster/...`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::log_limiter::LineLimiter;
use crate::security::admin_tokens::AdminTokens;
use crate::tls::{ADMIN_NAME, ClientRole};

/// The time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The reasons for which a change is denied, as metrics name them.
const DENIAL_REASONS: [&str; 3] = ["no_token", "wrong_token", "closed"];

/// Whether a proxy says that it forwards a request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    ["forwarded", "via", "x-forwarded-for", "x-real-ip"]
        .iter()
        .any(|name| headers.contains_key(*name))
}

/// The reason why a caller may not change the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denial {
    /// A token would do, and the caller gave none.
    NoToken(String),
    /// The caller gave another token.
    WrongToken(String),
    /// No token is configured.
    Closed(String),
}

/// Decides who may change the cluster.
#[derive(Debug)]
pub(crate) struct ChangeAccess {
    tokens: Option<Arc<AdminTokens>>,
    /// Whether the certificates of clients are verified, and so that of an administrator.
    has_client_ca: bool,
    /// Whether only this host reaches the node, as far as its options say.
    is_loopback: bool,
    denied: [AtomicU64; DENIAL_REASONS.len()],
    lines: LineLimiter,
}

impl ChangeAccess {
    pub(crate) fn new(
        tokens: Option<Arc<AdminTokens>>,
        has_client_ca: bool,
        is_loopback: bool,
    ) -> Self {
        let (denied, lines) = Default::default();
        Self { tokens, has_client_ca, is_loopback, denied, lines }
    }

    /// Checks whether a caller with this role and these headers may change the cluster. Counts and
    /// logs a denial, once a second at most.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(crate) fn check(
        &self,
        role: ClientRole,
        headers: &HeaderMap,
        from: SocketAddr,
    ) -> Result<(), Denial> {
        if role != ClientRole::Client {
            return Ok(());
        }
        let Err(denial) = self.check_client(headers) else { return Ok(()) };
        let (at, why) = match &denial {
            Denial::NoToken(why) => (0, why),
            Denial::WrongToken(why) => (1, why),
            Denial::Closed(why) => (2, why),
        };
        self.denied[at].fetch_add(1, Relaxed);
        if let Some(suppressed) = self.lines.should_log(LOG_INTERVAL) {
            let reason = DENIAL_REASONS[at];
            tracing::warn!(address = %from, reason, why, suppressed, "denied a change of the cluster");
        }
        Err(denial)
    }

    fn check_client(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let or_certificate = match self.has_client_ca {
            true => format!(", or a certificate for {ADMIN_NAME}"),
            false => String::new(),
        };
        let Some(tokens) = &self.tokens else {
            return match (self.has_client_ca, self.is_loopback) {
                (true, _) => Err(Denial::Closed(format!(
                    "a change of the cluster needs a client certificate for {ADMIN_NAME}, over TCP"
                ))),
                (false, true) if is_forwarded(headers) => Err(Denial::Closed(
                    "a proxy forwards this request from another host: start the node with \
                     --admin-token-file"
                        .into(),
                )),
                (false, true) => Ok(()),
                (false, false) => Err(Denial::Closed(
                    "this node is not on loopback, and takes changes of the cluster only with a \
                     token or from nodes with certificates: start it with --admin-token-file"
                        .into(),
                )),
            };
        };
        match headers.get(AUTHORIZATION) {
            Some(given) if tokens.allow(given) => Ok(()),
            Some(_) => Err(Denial::WrongToken(format!(
                "the token is none of --admin-token-file{or_certificate}"
            ))),
            None => Err(Denial::NoToken(format!(
                "a change of the cluster needs a token of --admin-token-file, as Authorization: \
                 Bearer TOKEN (ESKER_TOKEN_FILE of `esker cluster`){or_certificate}"
            ))),
        }
    }

    /// Returns the number of denials of each of [`DENIAL_REASONS`].
    pub(crate) fn denied(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DENIAL_REASONS.iter().copied().zip(self.denied.iter().map(|count| count.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn loopback_is_open_to_this_host_alone() {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let access = ChangeAccess::new(None, false, true);
        let mut headers = HeaderMap::new();
        assert_eq!(access.check(ClientRole::Client, &headers, from), Ok(()));
        for name in ["forwarded", "via", "x-forwarded-for", "x-real-ip"] {
            headers.insert(name, HeaderValue::from_static("10.0.0.9"));
            let denied = access.check(ClientRole::Client, &headers, from);
            assert!(matches!(denied, Err(Denial::Closed(_))), "{name}: {denied:?}");
            headers.clear();
        }
    }
}
