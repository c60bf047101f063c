//! A connection with many requests at a time, whichever its protocol is.

use std::path::Path;

use bytes::Bytes;

use crate::timestamp::http2;
use crate::timestamp::http3;
use crate::timestamp::tally::AnswerHead;
use crate::timestamp::timestamp_arguments::Protocol;
use esker_command::exit::Outcome;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Opens connections.
pub struct Dialer {
    /// The trusted servers of HTTP/3; without it, connections are HTTP/2.
    trust: Option<http3::Trust>,
}

impl Dialer {
    /// Creates a dialer for HTTP/2.
    pub fn http2() -> Self {
        Self { trust: None }
    }

    /// Creates a dialer for this protocol. HTTP/3 trusts the authority `ca`, and shows the
    /// certificate, whose key follows it.
    pub fn new(
        protocol: Protocol,
        ca: Option<&Path>,
        certificate: Option<(&Path, &Path)>,
    ) -> Outcome<Self> {
        match protocol {
            Protocol::H3 => Ok(Self { trust: Some(http3::Trust::new(ca, certificate)?) }),
            _ => Ok(Self::http2()),
        }
    }

    pub async fn open(&self, address: &str, path: &str) -> Result<Connection, AnyError> {
        if let Some(trust) = &self.trust {
            return Ok(Connection::Http3(http3::Connection::open(trust, address, path).await?));
        }
        Ok(Connection::Http2(http2::Connection::open(address, path).await?))
    }
}

/// A connection. Clones share it.
#[derive(Clone)]
pub enum Connection {
    Http2(http2::Connection),
    Http3(http3::Connection),
}

impl Connection {
    /// Sends a request and waits for its answer.
    pub async fn exchange(&mut self) -> Result<(AnswerHead, Bytes), AnyError> {
        match self {
            Self::Http2(connection) => connection.exchange().await,
            Self::Http3(connection) => connection.exchange().await,
        }
    }
}
