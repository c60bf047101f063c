//! A cleartext HTTP/2 connection, with many requests at a time.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::timestamp::tally::{ANSWER_BYTES_MAX, AnswerHead};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A connection. Clones share it.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    uri: String,
}

impl Connection {
    pub async fn open(address: &str, path: &str) -> Result<Self, AnyError> {
        let stream = esker_server::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // It ends with its last sender; what fails there fails the requests, too.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, uri: format!("http://{address}{path}") })
    }

    /// Sends a request and waits for its answer.
    pub async fn exchange(&mut self) -> Result<(AnswerHead, Bytes), AnyError> {
        self.sender.ready().await?;
        let request = Request::get(&*self.uri).body(Empty::new())?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        let leader = head.headers.get("esker-leader").and_then(|leader| leader.to_str().ok());
        let leader = leader.map(ToOwned::to_owned);
        Ok((AnswerHead { status: head.status.as_u16(), leader }, body))
    }
}
