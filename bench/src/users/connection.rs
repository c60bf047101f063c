//! A keep-alive connection of one user, over HTTP/1.1 or cleartext HTTP/2.

use std::error::Error;
use std::io;
use std::time::Duration;

use clap::ValueEnum;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::header::HOST;
use hyper::{Request, http};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A request without an answer for so long has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1
    H1,
    /// HTTP/2 without TLS
    H2c,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2c => "h2c",
        }
    }
}

/// An answer, with any status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The address of the leader, of a node that does not lead.
    pub leader: Option<String>,
    pub body: Bytes,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

/// An open connection.
pub struct Connection {
    sender: Sender,
    address: String,
}

impl Connection {
    /// Connects to a node.
    ///
    /// # Errors
    /// The class of the failure.
    pub async fn open(protocol: Protocol, address: &str) -> Result<Self, String> {
        match timeout(REQUEST_TIMEOUT, Self::connect(protocol, address)).await {
            Ok(Ok(sender)) => Ok(Self { sender, address: address.to_owned() }),
            Ok(Err(error)) => Err(format!("connect: {}", class(&*error))),
            Err(_) => Err("connect: timeout".into()),
        }
    }

    async fn connect(protocol: Protocol, address: &str) -> Result<Sender, AnyError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        // A connection ends with its sender. What fails in it fails the request, too.
        Ok(match protocol {
            Protocol::H1 => {
                let (sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::H2c => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        })
    }

    /// Sends a request and waits for the whole answer.
    ///
    /// # Errors
    /// The class of the failure. The connection is then of no more use.
    pub async fn get(&mut self, path: &str) -> Result<Answer, String> {
        match timeout(REQUEST_TIMEOUT, self.exchange(path)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(class(&*error)),
            Err(_) => Err("timeout".into()),
        }
    }

    async fn exchange(&mut self, path: &str) -> Result<Answer, AnyError> {
        let (head, body) = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                let request = Request::get(path).header(HOST, &self.address);
                sender.send_request(request.body(Empty::new())?).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                let request = Request::get(format!("http://{}{path}", self.address));
                sender.send_request(request.body(Empty::new())?).await?
            }
        }
        .into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), leader: leader(&head), body })
    }
}

type AnyError = Box<dyn Error + Send + Sync>;

fn leader(head: &http::response::Parts) -> Option<String> {
    let leader = head.headers.get("esker-leader")?.to_str().ok()?;
    (!leader.is_empty()).then(|| leader.to_owned())
}

/// The class of an error: that of the operating system if there is one, or else that of the HTTP
/// client with its first cause. Neither names the connection, so there are few of them.
fn class(error: &(dyn Error + 'static)) -> String {
    let mut first = error;
    while let Some(cause) = first.source() {
        first = cause;
        if let Some(error) = cause.downcast_ref::<io::Error>()
            && error.raw_os_error().is_some()
        {
            return error.to_string();
        }
    }
    let (effect, cause) = (error.to_string(), first.to_string());
    if effect == cause { effect } else { format!("{effect}: {cause}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_connection_has_its_class() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let refused = Connection::open(Protocol::H1, &address).await.err().unwrap();
        assert_eq!(refused, "connect: Connection refused (os error 111)");
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_an_answer_has_its_class() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                tokio::io::AsyncReadExt::read(&mut stream, &mut request).await.unwrap();
            }
        });
        let mut connection = Connection::open(Protocol::H1, &address).await.unwrap();
        let failed = connection.get("/timestamp").await.err().unwrap();
        assert_eq!(failed, "connection closed before message completed");
    }
}
