//! TLS between nodes: each side proves which node of which cluster it is.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use esker_raft::{Connection, PeerSecurity, SecuredConnection};
use futures_util::future::BoxFuture;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::certificate::{CertificatePair, EXPIRY_WARNING_INTERVAL, Pem};
use crate::error::ServerError;
use crate::log_limiter::LineLimiter;
use crate::options::PeerCertificateFiles;
use crate::reload::ReloadedFiles;
use crate::tls::configs::{
    client_verifier, node_client_config, node_server_config, read_roots, verify_chain,
};
use crate::tls::peer_name::PeerName;
use crate::tls_refusals::{RefusalReason, TlsRefusals};

/// The protocol inside TLS, in its negotiation.
const PROTOCOL: &[u8] = b"esker-raft/1";
/// The first byte of a connection over TLS: a record of its handshake.
const TLS_FIRST_BYTE: u8 = 0x16;

/// A version of HTTP over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

impl HttpVersion {
    /// Returns the name of the version in the negotiation of TLS.
    fn protocol(self) -> Vec<u8> {
        match self {
            Self::Http1 => b"http/1.1".to_vec(),
            Self::Http2 => b"h2".to_vec(),
        }
    }

    /// Returns the names of all versions, the preferred one first.
    pub(crate) fn protocols() -> Vec<Vec<u8>> {
        vec![Self::Http2.protocol(), Self::Http1.protocol()]
    }
}

/// The connections to other nodes: mutual TLS with certificates that name cluster and node.
#[derive(Debug)]
pub(crate) struct PeerTls {
    configs: ReloadedFiles<PeerCertificateFiles, PeerConfigs>,
    /// The name of this node, which its certificate keeps when it is replaced.
    name: PeerName,
    allows_plain: bool,
    refusals: Arc<TlsRefusals>,
    expiry_warnings: LineLimiter,
}

/// The configurations of both directions, and the contents of the files that they are from.
#[derive(Debug)]
struct PeerConfigs {
    roots_pem: Vec<u8>,
    pem: Pem,
    pair: CertificatePair,
    /// The name of this node in its certificate.
    name: PeerName,
    /// Verifies the certificates of callers.
    verifier: Arc<dyn ClientCertVerifier>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// The configurations of calls over HTTP.
    http1_client: Arc<ClientConfig>,
    http2_client: Arc<ClientConfig>,
    http_server: Arc<ServerConfig>,
}

impl PartialEq for PeerConfigs {
    fn eq(&self, other: &Self) -> bool {
        (&self.roots_pem, &self.pem) == (&other.roots_pem, &other.pem)
    }
}

impl PeerTls {
    /// Reads the files. With `allows_plain`, nodes that have no TLS yet are talked to without.
    ///
    /// # Errors
    /// [`ServerError::InvalidOption`]: a file cannot be used, with the reason.
    pub(crate) fn open(
        files: &PeerCertificateFiles,
        allows_plain: bool,
        refusals: Arc<TlsRefusals>,
    ) -> Result<Self, ServerError> {
        let read = |files: &PeerCertificateFiles| PeerConfigs::read(files, SystemTime::now());
        let configs = ReloadedFiles::open(files.clone(), read).map_err(|why| {
            ServerError::InvalidOption(format!("--peer-ca, --peer-cert and --peer-key: {why}"))
        })?;
        let name = configs.current().name.clone();
        Ok(Self { configs, name, allows_plain, refusals, expiry_warnings: LineLimiter::default() })
    }

    /// The number of the node that the certificate names.
    pub(crate) fn node(&self) -> u64 {
        self.name.node
    }

    /// Returns the end of the certificate, in seconds since 1970.
    pub(crate) fn not_after_seconds(&self) -> u64 {
        self.configs().pair.not_after_seconds()
    }

    /// Returns the configuration with which nodes are accepted on the port of clients.
    pub(crate) fn http_server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.configs().http_server)
    }

    /// Secures a connection for HTTP to some node of this cluster.
    ///
    /// # Errors
    /// Any: the other end is not proven to be a node of the cluster.
    pub(crate) async fn connect_http(
        &self,
        stream: TcpStream,
        version: HttpVersion,
    ) -> io::Result<Connection> {
        let configs = self.configs();
        let config = match version {
            HttpVersion::Http1 => &configs.http1_client,
            HttpVersion::Http2 => &configs.http2_client,
        };
        let name = ServerName::try_from(self.name.any_node()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        Ok(Box::new(stream))
    }

    /// Returns the name of a caller that has done its handshake.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`]: it is no node of this cluster.
    pub(crate) fn check_caller(&self, connection: &ServerConnection) -> io::Result<PeerName> {
        check_caller(&self.name, connection)
    }

    fn configs(&self) -> Arc<PeerConfigs> {
        self.configs.current()
    }

    /// Verifies the certificate that a node showed when it connected, at this time.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>], at: UnixTime) -> Result<(), String> {
        verify_chain(&*self.configs().verifier, chain, at)
    }

    /// Reads the files again. New connections are made with what they have; those that are open
    /// stay open. Warns once a day of a certificate that ends soon.
    ///
    /// # Errors
    /// The reason why the certificate before stays.
    pub(crate) fn refresh(&self) -> Result<(), String> {
        let refreshed = self.configs.refresh(|found| match found.name == self.name {
            true => Ok(()),
            false => {
                Err(format!("the certificate is of {}, and this node is {}", found.name, self.name))
            }
        });
        if refreshed == Ok(true) {
            tracing::info!("new connections to other nodes get a new certificate");
        }
        // Also where the files cannot be used: then the one in use is not renewed.
        let pair = &self.configs().pair;
        if pair.is_due(SystemTime::now())
            && self.expiry_warnings.should_log(EXPIRY_WARNING_INTERVAL).is_some()
        {
            let (end, cert) = (pair.not_after_text(), self.configs.files().own.cert.display());
            tracing::warn!(end, %cert, "the certificate for other nodes ends soon");
        }
        refreshed.map(drop)
    }
}

impl PeerConfigs {
    /// Reads the files.
    fn read(files: &PeerCertificateFiles, now: SystemTime) -> Result<Self, String> {
        let (roots_pem, roots) = read_roots(&files.ca)?;
        let found = files.own.read().map_err(|(path, error)| {
            format!("cannot read {}: {error}: let this user read it", path.display())
        })?;
        let pem = found.unwrap_or_default();
        let pair = CertificatePair::parse(&pem)?;
        pair.check(now)?;
        let key: Arc<CertifiedKey> = pair.key();
        let own = key.cert.first().ok_or("there is no certificate")?;
        let name = PeerName::from_certificate(own)?;
        if !pair.names(&[name.any_node()]) {
            return Err(format!(
                "the certificate of {name} lacks the DNS name {}, which all nodes have",
                name.any_node()
            ));
        }
        let verifier = client_verifier(Arc::clone(&roots))?;
        verify_chain(&*verifier, &key.cert, unix_time(now)?).map_err(|error| {
            let ca = files.ca.display();
            format!("the certificate of {name} is not of the authority {ca}: {error}")
        })?;
        let client = node_client_config(Arc::clone(&roots), Arc::clone(&key))?;
        let server = node_server_config(roots, key)?;
        Ok(Self {
            roots_pem,
            pem,
            pair,
            name,
            verifier,
            http1_client: with_protocols(&client, vec![HttpVersion::Http1.protocol()]),
            http2_client: with_protocols(&client, vec![HttpVersion::Http2.protocol()]),
            client: with_protocols(&client, vec![PROTOCOL.to_vec()]),
            http_server: accept_protocols(&server, HttpVersion::protocols()),
            server: accept_protocols(&server, vec![PROTOCOL.to_vec()]),
        })
    }
}

fn unix_time(now: SystemTime) -> Result<UnixTime, String> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(UnixTime::since_unix_epoch(since))
}

fn with_protocols(config: &ClientConfig, protocols: Vec<Vec<u8>>) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocols;
    Arc::new(config)
}

fn accept_protocols(config: &ServerConfig, protocols: Vec<Vec<u8>>) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocols;
    Arc::new(config)
}

/// A handshake on the port between nodes. Raft drops it after its deadline.
struct PendingHandshake {
    refusals: Arc<TlsRefusals>,
    is_ended: bool,
}

impl PendingHandshake {
    /// Counts the handshake if it failed.
    fn end<T>(mut self, ended: io::Result<T>) -> io::Result<T> {
        self.is_ended = true;
        if let Err(error) = &ended {
            self.refusals.count_raft(RefusalReason::from_handshake(error));
        }
        ended
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        if !self.is_ended {
            self.refusals.count_raft(RefusalReason::Timeout);
        }
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

impl PeerSecurity for PeerTls {
    fn connect(&self, stream: TcpStream, to: u64) -> BoxFuture<'static, io::Result<Connection>> {
        let connector = TlsConnector::from(Arc::clone(&self.configs().client));
        let name = self.name.with_node(to).to_server_name();
        Box::pin(async move {
            // The authority and the name are verified: it is node `to`, or the handshake fails.
            let stream = connector.connect(name.map_err(refused)?, stream).await?;
            Ok(Box::new(stream) as Connection)
        })
    }

    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<SecuredConnection>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.configs().server));
        let (own, allows_plain) = (self.name.clone(), self.allows_plain);
        let pending = PendingHandshake { refusals: Arc::clone(&self.refusals), is_ended: false };
        Box::pin(async move {
            let accepted = async {
                if allows_plain && begins_with_tls(&stream).await? == Some(false) {
                    return Ok(SecuredConnection { stream: Box::new(stream), node: None });
                }
                let stream = acceptor.accept(stream).await?;
                let node = check_caller(&own, stream.get_ref().1)?.node;
                Ok(SecuredConnection { stream: Box::new(stream), node: Some(node) })
            };
            pending.end(accepted.await)
        })
    }

    fn allows_plain(&self) -> bool {
        self.allows_plain
    }
}

/// Returns the name of a caller that has done its handshake with the node `own`.
fn check_caller(own: &PeerName, connection: &ServerConnection) -> io::Result<PeerName> {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let shown = shown.ok_or_else(|| refused("it showed no certificate".into()))?;
    let name = PeerName::from_certificate(shown).map_err(refused)?;
    if !own.is_same_cluster(&name) {
        return Err(refused(format!("{name} is of another cluster than {own}")));
    }
    Ok(name)
}

/// Whether the caller speaks TLS; `None` if it ended the connection. Waits for its first byte; the
/// caller of this has a deadline.
pub(crate) async fn begins_with_tls(stream: &TcpStream) -> io::Result<Option<bool>> {
    let mut first = [0];
    let peeked = stream.peek(&mut first).await?;
    Ok((peeked == 1).then_some(first[0] == TLS_FIRST_BYTE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
    use rustls::pki_types::pem::PemObject;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::cluster_certificates::{make_certificates, renew_certificates};
    use crate::options::CertificateFiles;

    const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

    fn files(folder: &Path) -> PeerCertificateFiles {
        let own = CertificateFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        PeerCertificateFiles { ca: folder.join("ca.pem"), own }
    }

    /// The files of nodes 1 and 2 of a cluster.
    fn make(dir: &Path) -> [PeerCertificateFiles; 2] {
        let nodes = BTreeMap::from([1, 2].map(|node| (node, vec!["127.0.0.1".to_owned()])));
        let folders = make_certificates(dir, &nodes).unwrap();
        [files(&folders[0]), files(&folders[1])]
    }

    fn open(files: &PeerCertificateFiles) -> PeerTls {
        PeerTls::open(files, false, Arc::default()).unwrap()
    }

    /// A certificate of the authority of `files`, with these names, in place of the one there.
    fn replace(files: &PeerCertificateFiles, name: &str, change: fn(&mut CertificateParams)) {
        let ca_key = files.ca.parent().unwrap().parent().unwrap().join("ca-key.pem");
        let ca_key = KeyPair::from_pem(&fs::read_to_string(ca_key).unwrap()).unwrap();
        let ca = fs::read(&files.ca).unwrap();
        let ca = CertificateDer::from_pem_slice(&ca).unwrap();
        let mut authority = CertificateParams::default();
        authority.distinguished_name = DistinguishedName::new();
        let cluster = PeerName::authority_cluster(&ca).unwrap();
        let common = PeerName::authority_name(&cluster);
        authority.distinguished_name.push(DnType::CommonName, common);
        let name = name.replace("CLUSTER", &cluster);
        let any = name.split_once('.').map(|(_, domain)| format!("node.{domain}")).unwrap();
        let mut params = CertificateParams::new([name, any]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&authority, &ca_key);
        fs::write(&files.own.cert, params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(&files.own.key, key.serialize_pem()).unwrap();
    }

    /// The outcomes of both sides of a connection that `caller` opens to `called`, taken for node
    /// `to`.
    async fn meet(
        caller: &PeerTls,
        called: &PeerTls,
        to: u64,
    ) -> (Result<String, String>, Result<Option<u64>, String>) {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(port.local_addr().unwrap()).await.unwrap();
        let (taken, _) = port.accept().await.unwrap();
        let near = async {
            let mut stream = caller.connect(stream, to).await?;
            stream.write_all(b"hello").await?;
            let mut answer = [0; 5];
            // In TLS 1.3 the caller learns here that its certificate was refused.
            stream.read_exact(&mut answer).await?;
            Ok::<_, io::Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        let far = async {
            let SecuredConnection { mut stream, node } = called.accept(taken).await?;
            let mut greeting = [0; 5];
            stream.read_exact(&mut greeting).await?;
            stream.write_all(&greeting).await?;
            Ok::<_, io::Error>(node)
        };
        let met = timeout(HANDSHAKE_TIMEOUT, async { tokio::join!(near, far) }).await.unwrap();
        (met.0.map_err(|error| error.to_string()), met.1.map_err(|error| error.to_string()))
    }

    #[tokio::test]
    async fn each_side_proves_which_node_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = make(dir.path()).map(|files| open(&files));
        let (near, far) = meet(&one, &two, 2).await;
        assert_eq!((near.unwrap().as_str(), far.unwrap()), ("hello", Some(1)));
        // Another node at the address of node 3.
        let (near, far) = meet(&one, &two, 3).await;
        assert!(near.unwrap_err().contains("not valid for name"));
        assert!(far.is_err());
    }

    /// Checks that node 2 refuses node 1, for this reason, which is counted, and that no connection
    /// comes to be in either direction.
    async fn check_refused(one: &PeerTls, two: &PeerTls, why: &str, reason: RefusalReason) {
        let counted = |peers: &PeerTls| {
            let mut counts = peers.refusals.counts();
            counts.any(|count| (count.0, count.1) == ("raft", reason.name()) && count.2 > 0)
        };
        assert!(!counted(two), "{why}");
        for (caller, called, to) in [(one, two, 2), (two, one, 1)] {
            let (near, far) = meet(caller, called, to).await;
            assert!(near.is_err() && far.is_err(), "{why}: {near:?} {far:?}");
        }
        let called = call_unchecked(one, two).await;
        assert!(called.as_ref().is_err_and(|error| error.contains(why)), "{why}: {called:?}");
        assert!(counted(two), "{why}");
    }

    /// A caller that does not look at the name of the node that it calls.
    async fn call_unchecked(caller: &PeerTls, called: &PeerTls) -> Result<Option<u64>, String> {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(port.local_addr().unwrap()).await.unwrap();
        let (taken, _) = port.accept().await.unwrap();
        let connector = TlsConnector::from(Arc::clone(&caller.configs().client));
        let name = called.name.to_server_name().unwrap();
        let (_near, far) = tokio::join!(connector.connect(name, stream), called.accept(taken));
        far.map(|accepted| accepted.node).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn certificates_of_others_are_refused() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [one, two] = make(dir.path());
        let [stranger, _] = make(other.path());
        // It trusts both authorities, and is certified by its own.
        let both = [fs::read(&one.ca).unwrap(), fs::read(&stranger.ca).unwrap()].concat();
        fs::write(&stranger.ca, both).unwrap();
        let other_authority = open(&stranger);
        // The authority certifies two clusters.
        replace(&one, "node-1.another.esker.internal", |_| {});
        let other_cluster = open(&one);
        replace(&one, "node-1.CLUSTER.esker.internal", |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        });
        let mut expired = open(&two);
        expired.configs = ReloadedFiles::open(one.clone(), |files| {
            PeerConfigs::read(files, rcgen::date_time_ymd(2001, 6, 1).into())
        })
        .unwrap();
        for (caller, why, reason) in [
            (other_authority, "UnknownIssuer", RefusalReason::Certificate),
            (other_cluster, "is of another cluster than", RefusalReason::Name),
            (expired, "certificate expired", RefusalReason::Expired),
        ] {
            check_refused(&caller, &open(&two), why, reason).await;
        }
        replace(&one, "node-1.CLUSTER.esker.internal", |_| {});
        let (near, far) = meet(&open(&one), &open(&two), 2).await;
        assert_eq!((near.unwrap().as_str(), far.unwrap()), ("hello", Some(1)));
    }

    #[test]
    fn unusable_files_are_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = make(dir.path());
        let why = |files: &PeerCertificateFiles| {
            PeerTls::open(files, false, Arc::default()).unwrap_err().to_string()
        };
        replace(&one, "db1.example.org", |_| {});
        assert!(why(&one).contains("names no node"), "{}", why(&one));
        replace(&one, "node-1.CLUSTER.esker.internal", |params| {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        });
        assert!(why(&one).contains("the certificate ended at"), "{}", why(&one));
        let other = tempfile::tempdir().unwrap();
        let [stranger, _] = make(other.path());
        let opened = open(&two);
        fs::copy(&stranger.ca, &two.ca).unwrap();
        assert!(why(&two).contains("is not of the authority"), "{}", why(&two));
        assert!(opened.refresh().unwrap_err().contains("is not of the authority"));
        fs::write(&two.ca, "").unwrap();
        assert!(why(&two).contains("has no certificate of an authority"), "{}", why(&two));
        fs::remove_file(&two.own.key).unwrap();
        fs::copy(dir.path().join("ca.pem"), &two.ca).unwrap();
        assert!(why(&two).contains("key is missing or empty"), "{}", why(&two));
    }

    #[test]
    fn certificate_that_ends_soon_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let [one, _] = make(dir.path());
        let is_due = || open(&one).configs().pair.is_due(SystemTime::now());
        assert!(!is_due());
        replace(&one, "node-1.CLUSTER.esker.internal", |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = (SystemTime::now() + Duration::from_secs(3600)).into();
        });
        assert!(is_due());
    }

    /// A renewed pair is used by new connections, and one of another node is not.
    #[tokio::test]
    async fn files_that_change_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let [one_files, two_files] = make(dir.path());
        let (one, two) = (open(&one_files), open(&two_files));
        let known = one.configs();
        one.refresh().unwrap();
        assert!(Arc::ptr_eq(&known, &one.configs()), "nothing changed");
        renew_certificates(dir.path()).unwrap();
        one.refresh().unwrap();
        assert!(!Arc::ptr_eq(&known, &one.configs()));
        let (near, far) = meet(&one, &two, 2).await;
        assert_eq!((near.unwrap().as_str(), far.unwrap()), ("hello", Some(1)));
        let known = one.configs();
        fs::copy(&two_files.own.cert, &one_files.own.cert).unwrap();
        assert!(one.refresh().unwrap_err().contains("do not belong together"));
        fs::copy(&two_files.own.key, &one_files.own.key).unwrap();
        assert!(one.refresh().unwrap_err().contains("and this node is node-1"));
        assert!(Arc::ptr_eq(&known, &one.configs()));
    }

    #[tokio::test]
    async fn plain_callers_are_taken_only_where_they_are_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let [one, _] = make(dir.path());
        for allows_plain in [false, true] {
            let called = PeerTls::open(&one, allows_plain, Arc::default()).unwrap();
            let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut stream = TcpStream::connect(port.local_addr().unwrap()).await.unwrap();
            stream.write_all(b"ESKRAFT1 and more than a record's header").await.unwrap();
            let (taken, _) = port.accept().await.unwrap();
            let accepted = timeout(HANDSHAKE_TIMEOUT, called.accept(taken)).await.unwrap();
            assert_eq!(accepted.is_ok(), allows_plain);
            assert!(accepted.ok().and_then(|accepted| accepted.node).is_none());
        }
    }
}
