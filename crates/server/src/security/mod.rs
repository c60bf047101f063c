//! Who may connect to this node, and what it may do there.
//!
//! `admin_tokens` and `change_access` decide who may change the cluster, by the tokens that
//! `secret_file` reads, and `page_origin` which pages of a browser may. `caller` is how this node
//! connects to the others over HTTP.

mod admin_tokens;
mod caller;
mod change_access;
mod page_origin;
mod secret_file;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::ResolvesServerCert;
#[cfg(feature = "http3")]
use rustls::server::danger::ClientCertVerifier;
use tokio::task::JoinSet;

use crate::error::ServerError;
use crate::options::ServerOptions;
use crate::port;
use crate::reload::{ReloadFailures, ReloadedKind, keep_fresh};
use crate::supervisor::Tasks;
use crate::tls::{ClientCa, PeerTls, PortTls};
use crate::tls_refusals::TlsRefusals;

pub(crate) use admin_tokens::AdminTokens;
pub(crate) use caller::Caller;
pub(crate) use change_access::{ChangeAccess, Denial};
pub(crate) use page_origin::{is_of_own_page, is_of_page, requested_host};
pub use secret_file::read_secret_file;

/// The way to certificates, in the errors of a node that needs some.
const MAKE_CERTIFICATES: &str = "Make certificates with `esker cluster certs DIR --nodes \
                                 1=HOST,2=HOST,3=HOST`, and start node N with";

/// A task that reads a file again when it changes.
type FileWatch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The files with which connections are secured, opened.
#[derive(Debug, Clone)]
pub(crate) struct Security {
    pub(crate) peers: Option<Arc<PeerTls>>,
    client_ca: Option<Arc<ClientCa>>,
    tokens: Option<Arc<AdminTokens>>,
    refusals: Arc<TlsRefusals>,
    reload_failures: Arc<ReloadFailures>,
}

impl Security {
    /// Opens the files of the options, before any data is touched. The certificate gives the node
    /// its number, if no option does.
    ///
    /// # Errors
    /// [`ServerError::InvalidOption`]: a file cannot be used, or strangers could act as clients or
    /// nodes and no option says that they may.
    pub(crate) fn open(options: &mut ServerOptions) -> Result<Self, ServerError> {
        let refusals = Arc::default();
        let peers = open_peer_tls(options, &refusals)?;
        check_clients(options)?;
        let client_ca = options.client_ca.as_deref().map(ClientCa::open).transpose()?;
        let tokens = options.admin_token_file.as_deref().map(AdminTokens::open).transpose()?;
        Ok(Self {
            peers,
            client_ca: client_ca.map(Arc::new),
            tokens: tokens.map(Arc::new),
            refusals,
            reload_failures: Arc::default(),
        })
    }

    /// Returns the authority of clients' certificates, for HTTP/3.
    #[cfg(feature = "http3")]
    pub(crate) fn client_ca(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.client_ca.clone().map(|ca| ca as _)
    }

    pub(crate) fn refusals(&self) -> Arc<TlsRefusals> {
        Arc::clone(&self.refusals)
    }

    pub(crate) fn reload_failures(&self) -> Arc<ReloadFailures> {
        Arc::clone(&self.reload_failures)
    }

    /// Returns how this node calls the others.
    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.peers.clone(), self.tokens.clone())
    }

    /// Returns who may change the cluster of a node with these options.
    pub(crate) fn change_access(&self, options: &ServerOptions) -> ChangeAccess {
        // A node that other hosts reach through a proxy has another address for them.
        let advertised = options.advertise.as_deref();
        let is_loopback = is_loopback(options.listen) && advertised.is_none_or(port::is_loopback);
        let (client_ca, peers) = (self.client_ca.clone(), self.peers.clone());
        ChangeAccess::new(self.tokens.clone(), client_ca, peers, options.clock.clone(), is_loopback)
    }

    /// Returns the configurations of the port of clients, who get this certificate.
    pub(crate) fn port_tls(
        &self,
        options: &ServerOptions,
        certificate: Option<Arc<dyn ResolvesServerCert>>,
    ) -> Result<PortTls, ServerError> {
        let (client_ca, peers) = (self.client_ca.clone(), self.peers.clone());
        PortTls::new(certificate, client_ca, peers, options.plain_http, self.refusals())
    }

    /// Adds the tasks that read the files again when they change.
    pub(crate) fn add_tasks(&self, tasks: &mut Tasks, interval: Duration) {
        for (name, watch) in self.watches(interval) {
            tasks.spawn(name, watch);
        }
    }

    /// Reads the files again when they change, while the node waits for its cluster, until the
    /// result is dropped.
    pub(crate) fn watch_at_start(&self, interval: Duration) -> JoinSet<()> {
        self.watches(interval).into_iter().map(|(_, watch)| watch).collect()
    }

    fn watches(&self, interval: Duration) -> Vec<(&'static str, FileWatch)> {
        let report = |kind| (kind, self.reload_failures());
        let mut watches: Vec<(&'static str, FileWatch)> = Vec::new();
        if let Some(peers) = self.peers.clone() {
            let report = report(ReloadedKind::PeerCertificate);
            let watch = Box::pin(keep_fresh(peers, interval, report, PeerTls::refresh));
            watches.push(("watch the certificate for other nodes", watch));
        }
        if let Some(ca) = self.client_ca.clone() {
            let report = report(ReloadedKind::ClientCa);
            let watch = Box::pin(keep_fresh(ca, interval, report, ClientCa::refresh));
            watches.push(("watch the authority of clients", watch));
        }
        if let Some(tokens) = self.tokens.clone() {
            let report = report(ReloadedKind::AdminTokens);
            let watch = Box::pin(keep_fresh(tokens, interval, report, AdminTokens::refresh));
            watches.push(("watch the admin tokens", watch));
        }
        watches
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn refused<T>(why: String) -> Result<T, ServerError> {
    Err(ServerError::InvalidOption(why))
}

/// Opens the certificates of connections between nodes.
fn open_peer_tls(
    options: &mut ServerOptions,
    refusals: &Arc<TlsRefusals>,
) -> Result<Option<Arc<PeerTls>>, ServerError> {
    let Some(files) = &options.peer_certificates else {
        let raft = options.raft_listen;
        if is_loopback(raft) || options.plain_peers {
            if !is_loopback(raft) {
                tracing::warn!(%raft, "other nodes need no certificate: --plain-peers");
            }
            return Ok(None);
        }
        return refused(format!(
            "--raft-listen {raft}: a stranger that reaches this address can act as any node. \
             {MAKE_CERTIFICATES} --peer-ca, --peer-cert and --peer-key of DIR/node-N. In a network \
             that you trust whole, --plain-peers does without"
        ));
    };
    let peers = PeerTls::open(files, options.plain_peers, Arc::clone(refusals))?;
    match options.node {
        Some(node) if node != peers.node() => {
            let cert = files.own.cert.display();
            refused(format!("--peer-cert {cert} is of node {}, and not {node}", peers.node()))
        }
        _ => {
            options.node = Some(peers.node());
            Ok(Some(Arc::new(peers)))
        }
    }
}

/// Checks that clients are secured where strangers reach the node, or that an option says that they
/// are not.
fn check_clients(options: &ServerOptions) -> Result<(), ServerError> {
    let listen = options.listen;
    let has_tls = options.certificate.is_some();
    if options.client_ca.is_some() && !has_tls {
        return refused(
            "--client-ca verifies certificates of clients over TLS: give --cert and --key".into(),
        );
    }
    let needs_tls = !is_loopback(listen) && !options.plain_http;
    if needs_tls && !has_tls {
        return refused(format!(
            "--listen {listen}: what clients ask here, all that are on the way can read and change. \
             {MAKE_CERTIFICATES} --cert and --key, server.pem and server-key.pem of DIR/node-N. In \
             a network that you trust whole, --plain-http does without"
        ));
    }
    let has_members = !options.cluster.is_empty() || options.join.is_some();
    if has_members && has_tls && !options.plain_http && options.peer_certificates.is_none() {
        return refused(format!(
            "--cert without --plain-http: the other nodes call this one at {listen} over TLS, with \
             their own certificates. {MAKE_CERTIFICATES} --peer-ca, --peer-cert and --peer-key of \
             DIR/node-N, or with --plain-http"
        ));
    }
    if options.plain_http && !is_loopback(listen) {
        tracing::warn!(%listen, "clients need no TLS: --plain-http");
    }
    Ok(())
}
