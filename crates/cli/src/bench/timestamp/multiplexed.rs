//! A connection with many requests at a time, whichever its protocol is.

use std::path::Path;

use bytes::Bytes;

use crate::bench::timestamp::arguments::Protocol;
use crate::bench::timestamp::http2;
#[cfg(feature = "http3")]
use crate::bench::timestamp::http3;
use crate::bench::timestamp::tally::Answered;
use crate::exit::Outcome;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Opens connections.
pub struct Dialer {
    /// Without it, they are HTTP/2.
    #[cfg(feature = "http3")]
    trust: Option<http3::Trust>,
}

impl Dialer {
    /// Of HTTP/2.
    pub fn http2() -> Self {
        Self {
            #[cfg(feature = "http3")]
            trust: None,
        }
    }

    #[cfg(feature = "http3")]
    pub fn new(protocol: Protocol, ca: Option<&Path>) -> Outcome<Self> {
        match protocol {
            Protocol::H3 => Ok(Self { trust: Some(http3::Trust::new(ca)?) }),
            _ => Ok(Self::http2()),
        }
    }

    #[cfg(not(feature = "http3"))]
    pub fn new(_: Protocol, _: Option<&Path>) -> Outcome<Self> {
        Ok(Self::http2())
    }

    pub async fn open(&self, address: &str, path: &str) -> Result<Connection, AnyError> {
        #[cfg(feature = "http3")]
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
    #[cfg(feature = "http3")]
    Http3(http3::Connection),
}

impl Connection {
    /// Sends a request and waits for its answer.
    pub async fn exchange(&mut self) -> Result<(Answered, Bytes), AnyError> {
        match self {
            Self::Http2(connection) => connection.exchange().await,
            #[cfg(feature = "http3")]
            Self::Http3(connection) => connection.exchange().await,
        }
    }
}
