//! A node that answers as a test wants it, over HTTP/1.1 and HTTP/2.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::json;
use tokio::net::TcpListener;

/// A status, headers and a body. `None`: the request gets no answer.
pub type ScriptedAnswer = Option<(u16, Vec<(&'static str, &'static str)>, Vec<u8>)>;

/// Starts a node that leads a cluster of its own. It answers requests by method and path, but those
/// that every node answers.
pub async fn start(
    script: impl Fn(&str, &str) -> ScriptedAnswer + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, script) = (listener.local_addr().unwrap().to_string(), Arc::new(script));
    let own = address.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (own, script) = (own.clone(), Arc::clone(&script));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (own, script) = (own.clone(), Arc::clone(&script));
                async move {
                    let (head, body) = request.into_parts();
                    drop(body.collect().await);
                    let path = head.uri.path_and_query().unwrap().as_str();
                    let member = json!({"nodeID": 1, "addr": own, "raftAddr": own, "voter": true});
                    let members = json!({"leader": member, "members": [member], "cluster": "7"});
                    let answered = match path {
                        "/up" => Some((200, vec![], b"ok".to_vec())),
                        "/members" => Some((200, vec![], members.to_string().into_bytes())),
                        _ => script(head.method.as_str(), path),
                    };
                    let Some((status, headers, body)) = answered else {
                        return std::future::pending().await;
                    };
                    let mut answer = Response::builder().status(status);
                    for (name, value) in headers {
                        answer = answer.header(name, value);
                    }
                    Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body))).unwrap())
                }
            });
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    });
    address
}
