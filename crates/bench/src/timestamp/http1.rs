//! An HTTP/1.1 connection that costs the generator of load as little as can be.

use std::io;

use esker_client::{NodeCaller, NodeStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::timestamp::tally::{ANSWER_BYTES_MAX, AnswerHead};

const HEADERS_MAX: usize = 32;

/// A connection, and what came over it.
pub struct Connection {
    stream: NodeStream,
    request: Vec<u8>,
    bytes: Vec<u8>,
    /// Bytes that came.
    filled: usize,
}

impl Connection {
    pub async fn open(caller: &NodeCaller, address: &str, path: &str) -> io::Result<Self> {
        let stream = caller.connect(address).await.map_err(io::Error::other)?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").into_bytes();
        Ok(Self { stream, request, bytes: vec![0; 4096], filled: 0 })
    }

    /// Sends the request and waits for its answer, whose body is in [`Connection::body`].
    pub async fn exchange(&mut self) -> io::Result<(AnswerHead, std::ops::Range<usize>)> {
        self.stream.write_all(&self.request).await?;
        self.filled = 0;
        loop {
            let more = self.stream.read(&mut self.bytes[self.filled..]).await?;
            if more == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.filled += more;
            if let Some((answered, body)) = parse(&self.bytes[..self.filled])? {
                if body.end <= self.filled {
                    return Ok((answered, body));
                }
                if body.end > ANSWER_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.bytes.resize(body.end.max(self.bytes.len()), 0);
            } else if self.filled == self.bytes.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    pub fn body(&self, at: std::ops::Range<usize>) -> &[u8] {
        self.bytes.get(at).unwrap_or_default()
    }
}

/// The head of an answer, and where its body is or will be.
fn parse(bytes: &[u8]) -> io::Result<Option<(AnswerHead, std::ops::Range<usize>)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    let httparse::Status::Complete(begin) = parsed else { return Ok(None) };
    let (mut len, mut leader) = (0, None);
    for header in answer.headers.iter() {
        let text = std::str::from_utf8(header.value).unwrap_or_default();
        if header.name.eq_ignore_ascii_case("content-length") {
            len = text.parse::<usize>().map_err(|_| io::ErrorKind::InvalidData)?;
        } else if header.name.eq_ignore_ascii_case("esker-leader") {
            leader = Some(text.to_owned());
        }
    }
    let answered = AnswerHead { status: answer.code.unwrap_or(0), leader };
    let end = begin.checked_add(len).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((answered, begin..end)))
}
