//! Connections to nodes: plain, or with TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::{Address, Scheme};
use crate::connect::connect;
use crate::error::{AttemptErrorKind, Error, with_sources};
use crate::tls_error::TlsError;
use crate::tls_options::{TlsConfig, TlsOptions};

/// The first bytes of an alert of TLS. No answer of HTTP begins with them.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];
/// The answer of a node that speaks TLS alone to a request without TLS, whatever its version.
const PLAIN_REFUSAL_STATUS: &[u8] = b"HTTP/1.1 400 ";
const PLAIN_REFUSAL_BODY: &[u8] = b"\r\n\r\nthis port speaks TLS";
/// The bytes of an answer in which that answer is looked for. It has fewer than 200.
const ANSWER_BEGIN_BYTES: usize = 512;

const _: () = assert!(PLAIN_REFUSAL_STATUS.len() + PLAIN_REFUSAL_BODY.len() < ANSWER_BEGIN_BYTES);

/// The way in which connections are made.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    Plain,
    Tls(Arc<TlsConfig>),
}

impl Transport {
    /// Creates the transport to these endpoints, and returns their addresses. `protocol` is the one
    /// of ALPN.
    pub(crate) fn to_endpoints(
        endpoints: Vec<String>,
        tls: Option<TlsOptions>,
        protocol: &'static [u8],
    ) -> Result<(Self, Vec<Address>), Error> {
        if endpoints.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let (mut scheme, mut addresses) = (None, Vec::new());
        for endpoint in endpoints {
            let Some((own, address)) = Address::from_endpoint(&endpoint) else {
                return Err(Error::InvalidEndpoint(endpoint));
            };
            if own.is_some() && scheme.is_some() && own != scheme {
                return Err(Error::MixedSchemes);
            }
            scheme = scheme.or(own);
            addresses.push(address);
        }
        let transport = match (scheme, tls) {
            (Some(Scheme::Https), tls) => {
                Self::Tls(Arc::new(TlsConfig::open(tls.unwrap_or_default(), protocol)?))
            }
            (_, None) => Self::Plain,
            (_, Some(_)) => return Err(Error::TlsWithoutHttps),
        };
        Ok((transport, addresses))
    }

    /// Returns the URL of a path of this node.
    pub(crate) fn url(&self, address: &Address, path: &str) -> String {
        let scheme = match self {
            Self::Plain => "http",
            Self::Tls(_) => "https",
        };
        format!("{scheme}://{address}{path}")
    }

    /// Connects, with the handshake of TLS. The caller sets the deadline.
    pub(crate) async fn connect(&self, address: &Address) -> Result<NodeStream, AttemptErrorKind> {
        let stream = connect(address.as_str()).await.map_err(connection)?;
        stream.set_nodelay(true).map_err(connection)?;
        let failure = TlsFailure::default();
        let Self::Tls(config) = self else {
            return Ok(NodeStream { inner: Stream::plain(stream), failure });
        };
        let tls = |why: String| AttemptErrorKind::Tls(TlsError::Other(why));
        let name = ServerName::try_from(address.host().to_owned());
        let name = name.map_err(|_| tls("no certificate can be for this host".into()))?;
        let config = Arc::clone(config);
        let config = tokio::task::spawn_blocking(move || config.refresh()).await;
        let connector = TlsConnector::from(config.map_err(|error| tls(error.to_string()))?);
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(NodeStream { inner: Stream::Tls(Box::new(stream)), failure }),
            Err(error) => Err(AttemptErrorKind::Tls(
                TlsError::from_io(&error)
                    .unwrap_or_else(|| TlsError::Other(format!("the handshake ended: {error}"))),
            )),
        }
    }
}

fn connection(error: io::Error) -> AttemptErrorKind {
    AttemptErrorKind::Connection(with_sources(&error))
}

/// The failure of TLS on a connection that was made. hyper's errors do not keep it, and in TLS 1.3
/// a client learns from its first read that its certificate was refused. Without TLS, it is that
/// the node speaks TLS alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsFailure(Arc<OnceLock<TlsError>>);

impl TlsFailure {
    pub(crate) fn get(&self) -> Option<&TlsError> {
        self.0.get()
    }

    /// Returns whether an answer was that of a port which speaks TLS alone.
    pub(crate) fn is_of_tls_port(&self) -> bool {
        self.get() == Some(&TlsError::TlsNode)
    }

    fn record(&self, error: &io::Error) {
        if let Some(failure) = TlsError::from_io(error) {
            // The first one stays.
            let _ = self.0.set(failure);
        }
    }
}

/// A connection to a node, plain or with TLS.
#[derive(Debug)]
pub struct NodeStream {
    inner: Stream,
    failure: TlsFailure,
}

#[derive(Debug)]
enum Stream {
    Plain { stream: TcpStream, begin: AnswerBegin },
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn plain(stream: TcpStream) -> Self {
        Self::Plain { stream, begin: AnswerBegin::default() }
    }
}

/// The first bytes of the answers on a connection without TLS.
#[derive(Debug, Default)]
struct AnswerBegin(Vec<u8>);

impl AnswerBegin {
    /// Adds bytes that were read, and returns whether the node speaks TLS alone, as far as they
    /// show.
    fn add(&mut self, read: &[u8]) -> bool {
        let added = read.len().min(ANSWER_BEGIN_BYTES - self.0.len());
        if added == 0 {
            return false;
        }
        self.0.extend_from_slice(&read[..added]);
        let is_refused = self.0.starts_with(PLAIN_REFUSAL_STATUS)
            && self.0.windows(PLAIN_REFUSAL_BODY.len()).any(|bytes| bytes == PLAIN_REFUSAL_BODY);
        is_refused || self.0.starts_with(&TLS_ALERT)
    }
}

impl NodeStream {
    /// Returns the failure of TLS that the connection will have had when it ended.
    pub(crate) fn failure(&self) -> TlsFailure {
        self.failure.clone()
    }

    /// Records the failure of TLS that made a write fail: its alert, or the answer of a port that
    /// speaks TLS alone, may wait to be read.
    fn check_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = written {
            let mut begin = [0; ANSWER_BEGIN_BYTES];
            let mut begin = ReadBuf::new(&mut begin);
            // What it reads is lost, on a connection that has ended. That can be read soon, and
            // then the write fails again.
            if Pin::new(self).poll_read(context, &mut begin).is_pending() {
                return Poll::Pending;
            }
        }
        written
    }
}

impl AsyncRead for NodeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, failure } = &mut *self;
        let before = buffer.filled().len();
        match inner {
            Stream::Plain { stream, begin } => {
                let read = Pin::new(stream).poll_read(context, buffer);
                if begin.add(&buffer.filled()[before..]) {
                    let _ = failure.0.set(TlsError::TlsNode);
                }
                read
            }
            Stream::Tls(stream) => {
                let read = Pin::new(stream).poll_read(context, buffer);
                if let Poll::Ready(Err(error)) = &read {
                    failure.record(error);
                }
                read
            }
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Stream::Plain { stream, .. } => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.check_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Stream::Plain { stream, .. } => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        };
        self.check_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.inner {
            Stream::Plain { stream, .. } => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = match &mut self.inner {
            Stream::Plain { stream, .. } => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        };
        self.check_write(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Stream::Plain { stream, .. } => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes come in any parts.
    #[test]
    fn answer_of_a_tls_port_is_recognized_and_no_other_one() {
        let refusal = "HTTP/1.1 400 Bad Request\r\ncontent-length: 62\r\n\r\n\
                       this port speaks TLS: use https://";
        let recognizes = |answer: &[u8], part: usize| {
            let mut begin = AnswerBegin::default();
            answer.chunks(part).any(|bytes| begin.add(bytes))
        };
        for part in [1, 7, 4096] {
            assert!(recognizes(refusal.as_bytes(), part));
            assert!(recognizes(&[&TLS_ALERT[..], &[3, 0, 2, 2, 40]].concat(), part));
            for other in [
                refusal.replace(" 400 ", " 200 "),
                refusal.replace("this port", "it says: this port"),
                "HTTP/1.1 400 Bad Request\r\nx: this port speaks TLS\r\n\r\nno".to_owned(),
                format!("HTTP/1.1 200 OK\r\n\r\n{}{refusal}", " ".repeat(ANSWER_BEGIN_BYTES)),
                String::new(),
            ] {
                assert!(!recognizes(other.as_bytes(), part), "{other}");
            }
        }
    }
}
