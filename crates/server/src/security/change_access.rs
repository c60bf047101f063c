//! Access to changes of the cluster: `POST /cluster/...`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use esker_raft::WallClock;
use hyper::header::{AUTHORIZATION, HeaderMap};
use rustls::pki_types::UnixTime;

use crate::log_limiter::LineLimiter;
use crate::port;
use crate::security::admin_tokens::AdminTokens;
use crate::tls::{ADMIN_NAME, ClientCa, ClientRole, ConnectionAccess, PeerTls};

/// The time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The reasons for which a change is denied, as metrics name them.
const DENIAL_REASONS: [&str; 4] = ["no_token", "wrong_token", "certificate", "closed"];

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
    /// The certificate that the caller showed when it connected is not valid any more.
    Certificate(String),
    /// No token is configured.
    Closed(String),
}

impl Denial {
    /// Returns the denial of a caller whose certificate is not valid any more, for this reason. It
    /// may still give a token.
    fn with_certificate(self, why: &str) -> Self {
        match self {
            Self::WrongToken(_) => self,
            Self::NoToken(_) | Self::Certificate(_) | Self::Closed(_) => {
                Self::Certificate(format!(
                    "the certificate of this connection is not valid any more: {why}; connect again \
                 with one that is"
                ))
            }
        }
    }
}

/// Decides who may change the cluster.
#[derive(Debug)]
pub(crate) struct ChangeAccess {
    tokens: Option<Arc<AdminTokens>>,
    client_ca: Option<Arc<ClientCa>>,
    peers: Option<Arc<PeerTls>>,
    /// The clock by which certificates end.
    clock: WallClock,
    /// Whether only this host reaches the node, as far as its options say.
    is_loopback: bool,
    denied: [AtomicU64; DENIAL_REASONS.len()],
    lines: LineLimiter,
}

impl ChangeAccess {
    /// Creates the access to a node that has these tokens, verifies administrators and nodes with
    /// these authorities, and whose certificates end by this clock.
    pub(crate) fn new(
        tokens: Option<Arc<AdminTokens>>,
        client_ca: Option<Arc<ClientCa>>,
        peers: Option<Arc<PeerTls>>,
        clock: WallClock,
        is_loopback: bool,
    ) -> Self {
        let (denied, lines) = Default::default();
        Self { tokens, client_ca, peers, clock, is_loopback, denied, lines }
    }

    /// Checks whether a caller with these headers may change the cluster, which it asks of this
    /// host. Counts and logs a denial, once a second at most.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(crate) fn check(
        &self,
        caller: &ConnectionAccess,
        headers: &HeaderMap,
        host: Option<&str>,
        from: SocketAddr,
    ) -> Result<(), Denial> {
        let client = || self.check_client(headers, host);
        let allowed = match self.verify_role(caller) {
            Ok(true) => return Ok(()),
            Ok(false) => client(),
            Err(why) => client().map_err(|denial| denial.with_certificate(&why)),
        };
        let Err(denial) = allowed else { return Ok(()) };
        let (at, why) = match &denial {
            Denial::NoToken(why) => (0, why),
            Denial::WrongToken(why) => (1, why),
            Denial::Certificate(why) => (2, why),
            Denial::Closed(why) => (3, why),
        };
        self.denied[at].fetch_add(1, Relaxed);
        if let Some(suppressed) = self.lines.should_log(LOG_INTERVAL) {
            let reason = DENIAL_REASONS[at];
            tracing::warn!(address = %from, reason, why, suppressed, "denied a change of the cluster");
        }
        Err(denial)
    }

    /// Whether the caller is an administrator or a node. Its certificate is verified again as in
    /// the handshake: the connection may be older than the end of the certificate, or than the
    /// authority.
    ///
    /// # Errors
    /// The reason why the certificate is not valid any more.
    fn verify_role(&self, caller: &ConnectionAccess) -> Result<bool, String> {
        let at = UnixTime::since_unix_epoch(Duration::from_nanos(self.clock.now()));
        let verified = match caller.role {
            ClientRole::Client => return Ok(false),
            ClientRole::Admin => self.client_ca.as_ref().map(|ca| ca.verify(caller.proof(), at)),
            ClientRole::Node(_) => self.peers.as_ref().map(|ca| ca.verify(caller.proof(), at)),
        };
        verified.unwrap_or_else(|| Err("there is no authority".into())).map(|()| true)
    }

    fn check_client(&self, headers: &HeaderMap, host: Option<&str>) -> Result<(), Denial> {
        let has_client_ca = self.client_ca.is_some();
        let or_certificate = match has_client_ca {
            true => format!(", or a certificate for {ADMIN_NAME}"),
            false => String::new(),
        };
        let Some(tokens) = &self.tokens else {
            return match (has_client_ca, self.is_loopback) {
                (true, _) => Err(Denial::Closed(format!(
                    "a change of the cluster needs a client certificate for {ADMIN_NAME}"
                ))),
                (false, true) => check_loopback(headers, host),
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

/// Checks whether a request to a node on loopback comes from this host. A browser here sends the
/// requests of pages whose names were made to resolve to loopback, too.
fn check_loopback(headers: &HeaderMap, host: Option<&str>) -> Result<(), Denial> {
    if is_forwarded(headers) {
        return Err(Denial::Closed(
            "a proxy forwards this request from another host: start the node with \
             --admin-token-file"
                .into(),
        ));
    }
    match host.filter(|host| !port::is_loopback(host)) {
        None => Ok(()),
        Some(host) => Err(Denial::Closed(format!(
            "a change of the cluster is asked of localhost or a loopback address here, and not of \
             {host}: start the node with --admin-token-file"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn loopback_is_open_to_this_host_alone() {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let access = ChangeAccess::new(None, None, None, WallClock::default(), true);
        let caller = ConnectionAccess::plain();
        let mut headers = HeaderMap::new();
        let host = Some("localhost:8080");
        assert_eq!(access.check(&caller, &headers, host, from), Ok(()));
        for name in ["forwarded", "via", "x-forwarded-for", "x-real-ip"] {
            headers.insert(name, HeaderValue::from_static("10.0.0.9"));
            let denied = access.check(&caller, &headers, host, from);
            assert!(matches!(denied, Err(Denial::Closed(_))), "{name}: {denied:?}");
            headers.clear();
        }
    }

    /// The name of any page can be made to resolve to a loopback address.
    #[test]
    fn loopback_is_open_under_its_own_names_alone() {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let access = ChangeAccess::new(None, None, None, WallClock::default(), true);
        let (caller, headers) = (ConnectionAccess::plain(), HeaderMap::new());
        for host in
            [None, Some("127.0.0.1:8080"), Some("127.1.2.3"), Some("[::1]"), Some("LOCALHOST")]
        {
            assert_eq!(access.check(&caller, &headers, host, from), Ok(()), "{host:?}");
        }
        for host in ["page.example:8080", "localhost.example", "127.0.0.1.example", "a@localhost:1"]
        {
            let denied = access.check(&caller, &headers, Some(host), from);
            assert!(matches!(denied, Err(Denial::Closed(_))), "{host}: {denied:?}");
        }
    }
}
