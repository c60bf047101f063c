//! An HTTP/3 connection, with many requests at a time.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use hyper::Request;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::timestamp::tally::{ANSWER_BYTES_MAX, AnswerHead};
use esker_command::exit::{Failure, Outcome};

/// The silence after which a server counts as gone: over UDP, no host reports that a process died.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that lives is never silent for so long.
const KEEP_ALIVE: Duration = Duration::from_millis(200);

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The servers that are trusted, and the certificate that they are shown.
#[derive(Debug, Clone)]
pub struct Trust {
    config: quinn::ClientConfig,
    is_any: bool,
}

impl Trust {
    /// Trusts the servers with a certificate of the file `ca`; without a file, all of this machine.
    /// Shows them the certificate, whose key follows it.
    pub fn new(ca: Option<&Path>, certificate: Option<(&Path, &Path)>) -> Outcome<Self> {
        let provider = Arc::new(ring::default_provider());
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("no HTTP/3: {error}"));
        let tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(&error))?;
        let tls = match ca {
            Some(ca) => tls.with_root_certificates(roots(ca)?),
            None => {
                let any = Arc::new(AnyOfLoopback(provider));
                tls.dangerous().with_custom_certificate_verifier(any)
            }
        };
        let mut tls = match certificate {
            Some((path, key_path)) => {
                let chain = certificates("--client-cert", path)?;
                let unusable = |error| wrong("--client-key", key_path, &error);
                let key = PrivateKeyDer::from_pem_file(key_path).map_err(unusable)?;
                let shown = tls.with_client_auth_cert(chain, key);
                shown.map_err(|error| wrong("--client-cert", path, &error))?
            }
            None => tls.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let quic = QuicClientConfig::try_from(tls).map_err(|error| failed(&error))?;
        let mut config = quinn::ClientConfig::new(Arc::new(quic));
        let mut transport = quinn::TransportConfig::default();
        let idle = quinn::IdleTimeout::try_from(IDLE_TIMEOUT).map_err(|error| failed(&error))?;
        transport.keep_alive_interval(Some(KEEP_ALIVE)).max_idle_timeout(Some(idle));
        config.transport_config(Arc::new(transport));
        Ok(Self { config, is_any: ca.is_none() })
    }
}

fn wrong(flag: &str, file: &Path, why: &dyn Display) -> Failure {
    Failure::usage(format!("{flag} {}: {why}", file.display()))
}

fn certificates(flag: &str, file: &Path) -> Outcome<Vec<CertificateDer<'static>>> {
    let parsed =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let parsed = parsed.map_err(|error| wrong(flag, file, &error))?;
    match parsed.is_empty() {
        true => Err(wrong(flag, file, &"it has no certificate")),
        false => Ok(parsed),
    }
}

fn roots(file: &Path) -> Outcome<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--ca", file)? {
        roots.add(certificate).map_err(|error| wrong("--ca", file, &error))?;
    }
    Ok(roots)
}

/// Takes any certificate. Used for loopback alone.
#[derive(Debug)]
struct AnyOfLoopback(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyOfLoopback {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection. Clones share it.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<OpenStreams, Bytes>,
    uri: String,
}

impl Connection {
    /// Connects, over a socket of its own.
    pub async fn open(trust: &Trust, address: &str, path: &str) -> Result<Self, AnyError> {
        let mut found = tokio::net::lookup_host(address).await?;
        let remote = found.next().ok_or("it has no address")?;
        if trust.is_any && !remote.ip().is_loopback() {
            return Err("it is not on this machine: give --ca".into());
        }
        let local = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        let endpoint = quinn::Endpoint::client(local)?;
        let quic = endpoint.connect_with(trust.config.clone(), remote, host)?.await?;
        let mut builder = h3::client::builder();
        let (mut connection, sender) =
            builder.send_grease(false).build(h3_quinn::Connection::new(quic)).await?;
        // It ends with its last sender; what fails there fails the requests, too.
        tokio::spawn(async move {
            drop(std::future::poll_fn(|cx| connection.poll_close(cx)).await);
            endpoint.wait_idle().await;
        });
        Ok(Self { sender, uri: format!("https://{address}{path}") })
    }

    /// Sends a request and waits for its answer.
    pub async fn exchange(&mut self) -> Result<(AnswerHead, Bytes), AnyError> {
        let request = Request::get(&*self.uri).body(())?;
        let mut stream = self.sender.send_request(request).await?;
        stream.finish().await?;
        let head = stream.recv_response().await?;
        let mut body = BytesMut::new();
        while let Some(mut part) = stream.recv_data().await? {
            if body.len() + part.remaining() > ANSWER_BYTES_MAX {
                return Err("the answer is too long".into());
            }
            let len = part.remaining();
            body.extend_from_slice(&part.copy_to_bytes(len));
        }
        let leader = head.headers().get("esker-leader").and_then(|leader| leader.to_str().ok());
        let leader = leader.map(ToOwned::to_owned);
        Ok((AnswerHead { status: head.status().as_u16(), leader }, body.freeze()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Bug: it took 30 s until a connection to a dead process was given up.
    #[tokio::test]
    async fn a_server_that_is_silent_is_given_up() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let trust = Trust::new(None, None).unwrap();
        let opened = Connection::open(&trust, &address, "/timestamp");
        assert!(tokio::time::timeout(IDLE_TIMEOUT * 10, opened).await.unwrap().is_err());
    }
}
