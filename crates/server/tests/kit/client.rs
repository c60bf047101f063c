//! A client that shows all of an answer, over each protocol.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::http_answer::HttpAnswer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
    Http3,
}

pub const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];
#[cfg(feature = "http3")]
pub const ALL: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];
#[cfg(not(feature = "http3"))]
pub const ALL: [Protocol; 2] = BOTH;

/// Sends a request with these headers.
pub async fn send(
    protocol: Protocol,
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpAnswer {
    send_to((protocol, address, address), method, path, headers, body).await
}

/// Sends a request to this address that names this host.
pub async fn send_to(
    (protocol, address, host): (Protocol, &str, &str),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpAnswer {
    #[cfg(feature = "http3")]
    if protocol == Protocol::Http3 {
        let client = crate::http3_client::Client::connect(address, None).await.unwrap();
        return client.for_host(host).send(method, path, headers, body).await.unwrap();
    }
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    // HTTP/1.1 has the host in a header, and the path alone before it.
    let mut request = Request::builder().method(method);
    request = match protocol {
        Protocol::Http1 => request.uri(path).header("host", host),
        _ => request.uri(format!("http://{host}{path}")),
    };
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let answer = match protocol {
        Protocol::Http1 => {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
        Protocol::Http2 => {
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
            let (mut sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
        Protocol::Http3 => panic!("this build has no HTTP/3"),
    };
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    HttpAnswer { status: head.status.as_u16(), headers: head.headers, body }
}

pub async fn get(protocol: Protocol, address: &str, path: &str) -> HttpAnswer {
    send(protocol, address, "GET", path, &[], b"").await
}

pub async fn post(address: &str, path: &str, body: &str) -> HttpAnswer {
    let json = [("content-type", "application/json")];
    send(Protocol::Http1, address, "POST", path, &json, body.as_bytes()).await
}
