//! Calls of members over HTTP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use esker_oracle::LeaderSearch;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::CallError;
use crate::security::Caller;
use crate::tls::{HttpVersion, TLS_PORT_TEXT};

/// The longest name of a host, with a colon and a port.
const ADDRESS_BYTES_MAX: usize = 253 + 6;
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The time that one member may take to answer a node that joins.
pub(crate) const MEMBER_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait before another attempt. It doubles with each.
const RETRY_DELAY: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(300);
/// The time that one member has to answer before another is asked beside it.
const NEXT_MEMBER_DELAY: Duration = Duration::from_secs(1);
/// The path that every process answers, and its answer.
const PROBE_PATH: &str = "/up";
pub(crate) const PROBE_ANSWER: &str = "ok";

/// The most characters of an answer that are kept as the reason of an error.
const REFUSAL_CHARS_MAX: usize = 1000;

const _: () = assert!(RETRY_DELAY.as_millis() <= RETRY_DELAY_MAX.as_millis());

/// The header of an answer with the address of the leader, from a node that does not lead.
pub(crate) const LEADER_HEADER: &str = "esker-leader";

/// Whether this text is the address of one host: a name or an IP address, and a port.
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_host = match host.parse::<Ipv4Addr>() {
        Ok(ip) => !ip.is_unspecified(),
        Err(_) => match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ip) => ip.parse::<Ipv6Addr>().is_ok_and(|ip| !ip.is_unspecified()),
            // With digits and dots alone it is no name.
            None => host.bytes().all(named) && host.bytes().any(|byte| byte.is_ascii_alphabetic()),
        },
    };
    is_host
        && text.len() <= ADDRESS_BYTES_MAX
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// The answer of a member.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, at most 4 MiB.
    pub body: Bytes,
}

impl Answer {
    /// Returns the body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }

    /// Whether a node answered that speaks TLS alone, and was asked without it.
    pub(crate) fn is_of_tls_port(&self) -> bool {
        self.status == StatusCode::BAD_REQUEST && self.body.starts_with(TLS_PORT_TEXT.as_bytes())
    }

    /// Returns the reason why this is not the answer that was asked for.
    fn refusal(&self) -> String {
        if self.is_of_tls_port() {
            return NO_CERTIFICATES.into();
        }
        let text: String = self.text().chars().take(REFUSAL_CHARS_MAX).collect();
        format!("{}: {text}", self.status)
    }

    /// Returns the address of the leader, if a node answered that does not lead.
    pub fn leader(&self) -> Option<&str> {
        self.headers.get(LEADER_HEADER)?.to_str().ok()
    }
}

/// Asks the member at this address, host and port, over a connection of its own. A request with a
/// body, which is JSON, is a POST.
///
/// # Cancel safety
/// The member may execute the request although the future was dropped.
///
/// # Errors
/// [`CallError`] if there is no answer within `timeout`.
pub async fn ask(
    address: &str,
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Answer, CallError> {
    ask_as(&Caller::default(), address, path, body, timeout).await
}

/// Asks the member at this address as [`ask`] does, over a connection of this caller.
pub(crate) async fn ask_as(
    caller: &Caller,
    address: &str,
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Answer, CallError> {
    let address = address.to_owned();
    match tokio::time::timeout(timeout, exchange(caller, &address, path, body)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            // Only connecting fails with an error of the system.
            let may_still_happen = !error.is::<io::Error>();
            Err(CallError { address, why: error.to_string(), may_still_happen })
        }
        Err(_) => Err(no_answer(address, timeout)),
    }
}

fn no_answer(address: String, timeout: Duration) -> CallError {
    CallError { address, why: format!("no answer within {timeout:?}"), may_still_happen: true }
}

/// The reason of a member that speaks TLS alone.
pub(crate) const NO_CERTIFICATES: &str = "this port speaks TLS, and this node has no certificates for \
                                          it: give --peer-ca, --peer-cert and --peer-key, as \
                                          `esker cluster certs` makes them";
/// The reason of a connection that speaks no HTTP.
const NOT_HTTP: &str = "the connection ended without an answer; is it the address for clients of an \
                       Esker node?";

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    caller: &Caller,
    address: &str,
    path: &str,
    body: Option<&[u8]>,
) -> Result<Answer, AnyError> {
    let connection = caller.connect(address, HttpVersion::Http1).await?;
    let authorization = connection.authorization.filter(|_| body.is_some());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(connection.stream)).await?;
    let mut request = Request::builder().uri(path).header(HOST, address);
    request = match body {
        None => request.method(Method::GET),
        Some(_) => request.method(Method::POST).header(CONTENT_TYPE, "application/json"),
    };
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let body = Full::new(body.map_or_else(Bytes::new, Bytes::copy_from_slice));
    let request = request.body(body)?;
    let exchanged = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| match error.is_user() {
            true => AnyError::from(error),
            false => NOT_HTTP.into(),
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    };
    let mut exchanged = pin!(exchanged);
    // The connection ends with the exchange.
    tokio::select! {
        biased;
        exchanged = &mut exchanged => exchanged,
        ended = connection => match ended {
            // Closed after the answer, or without one.
            Ok(()) => exchanged.await,
            Err(error) if error.is_parse() || error.is_incomplete_message() => Err(NOT_HTTP.into()),
            Err(error) => Err(describe(&error).into()),
        },
    }
}

/// Describes the failure of a connection: its cause may be what the other side has against the
/// certificate.
fn describe(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Asks all these members at once. Returns the JSON of each one that answers in time, and the
/// reason for each that does not.
pub(crate) async fn ask_all<T: DeserializeOwned + Send + 'static>(
    caller: &Caller,
    addresses: impl IntoIterator<Item = String>,
    path: &'static str,
    timeout: Duration,
) -> Vec<(String, Result<T, String>)> {
    let mut calls = JoinSet::new();
    for address in addresses {
        let caller = caller.clone();
        calls.spawn(async move {
            let answer = match ask_as(&caller, &address, path, None, timeout).await {
                Ok(answer) if answer.status == StatusCode::OK => {
                    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
                }
                Ok(answer) => Err(answer.refusal()),
                Err(CallError { why, .. }) => Err(why),
            };
            (address, answer)
        });
    }
    calls.join_all().await
}

/// Asks the leader, which any of these members names, until one answers as leader. A member that
/// cannot be reached, or knows no leader, is asked again. One that denies the request is not: other
/// members may have other options.
///
/// The request is sent to one member at a time, and never again after one may have executed it: a
/// change is made once. It is sent only where a member has just answered [`PROBE_PATH`], and so is
/// a token. While one does not answer, the next is tried beside it: a process that is stopped still
/// accepts connections.
///
/// # Errors
/// [`CallError`] of a member that got the request and may still execute it, at once; and the last
/// denial, once all members or the leader deny the request. After `timeout`, the last refusal of a
/// member; or the reason why none could be reached.
pub(crate) async fn ask_leader(
    caller: &Caller,
    members: &[String],
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Answer, CallError> {
    let deadline = Instant::now() + timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    let (mut search, mut delay) = (LeaderSearch::new(members.to_vec()), RETRY_DELAY);
    let mut probes = FuturesUnordered::new();
    loop {
        if let Some(address) = search.begin_probe() {
            let left = left();
            probes.push(async move { (probe(caller, &address, left).await, address) });
        }
        let Ok(probed) = tokio::time::timeout(NEXT_MEMBER_DELAY, probes.next()).await else {
            continue;
        };
        let Some((probed, address)) = probed else {
            let (address, why) = (String::new(), "no member is known".into());
            return Err(CallError { address, why, may_still_happen: false });
        };
        search.end_probe(&address);
        let outcome = match probed {
            Ok(()) if left().is_zero() => {
                let error = no_answer(address.clone(), timeout);
                Outcome::Unreached(CallError { may_still_happen: false, ..error })
            }
            Ok(()) => send(caller, &address, path, body, left()).await?,
            Err(error) => Outcome::Unreached(error),
        };
        match outcome {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Refused(error) => search.record_refusal(error),
            Outcome::Unreached(error) => search.record_failure(error),
            Outcome::Denied(error) => search.record_denial(address, error)?,
            Outcome::NotLeader(_, named) if search.is_probed(&named) => {
                let error = no_answer(named, timeout);
                search.record_failure(CallError { may_still_happen: false, ..error });
            }
            Outcome::NotLeader(error, named) => search.follow(error, named)?,
        }
        if Instant::now() + delay >= deadline
            && let Some(error) = search.take_error()
        {
            return Err(error);
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY_DELAY_MAX);
    }
}

/// Checks that a member answers at this address.
async fn probe(caller: &Caller, address: &str, timeout: Duration) -> Result<(), CallError> {
    let answer = ask_as(caller, address, PROBE_PATH, None, timeout).await;
    let answer = answer.map_err(|error| CallError { may_still_happen: false, ..error })?;
    match answer.status == StatusCode::OK && answer.text() == PROBE_ANSWER {
        true => Ok(()),
        false => Err(CallError {
            address: address.to_owned(),
            why: answer.refusal(),
            may_still_happen: false,
        }),
    }
}

/// The outcome of a request that one member got, or did not get.
enum Outcome {
    Answered(Answer),
    /// The member did nothing. The same request may succeed later.
    Refused(CallError),
    /// The member did nothing, and never will for this node.
    Denied(CallError),
    /// The member did nothing, and names the leader.
    NotLeader(CallError, String),
    /// The member did not get the request.
    Unreached(CallError),
}

/// Sends a request to a member that answers.
///
/// # Errors
/// [`CallError`] if the member may have executed the request, or may still execute it.
async fn send(
    caller: &Caller,
    address: &str,
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Outcome, CallError> {
    let answer = match ask_as(caller, address, path, body, timeout).await {
        Ok(answer) => answer,
        Err(error) if error.may_still_happen => return Err(error),
        Err(error) => return Ok(Outcome::Unreached(error)),
    };
    let error =
        |why, may_still_happen| CallError { address: address.into(), why, may_still_happen };
    match answer.status {
        StatusCode::CONFLICT => match answer.leader() {
            Some(leader) => Ok(Outcome::NotLeader(error(answer.text(), false), leader.to_owned())),
            None => Ok(Outcome::Answered(answer)),
        },
        status @ StatusCode::SERVICE_UNAVAILABLE => {
            Ok(Outcome::Refused(error(format!("{status}: {}", answer.text()), false)))
        }
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Ok(Outcome::Denied(error(format!("{status}: {}", answer.text()), false)))
        }
        // Others do not say that nothing was done.
        status if status.is_server_error() => {
            Err(error(format!("{status}: {}", answer.text()), true))
        }
        _ => Ok(Outcome::Answered(answer)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{NO_CERTIFICATES, ask, ask_leader, is_address};
    use crate::error::CallError;
    use crate::security::Caller;

    /// The end of the connection may arrive with the answer.
    #[tokio::test]
    async fn an_answer_before_the_end_of_its_connection_counts() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let rounds = 100;
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(rounds) {
                let mut stream = stream.unwrap();
                assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).unwrap();
            }
        });
        for _ in 0..rounds {
            let answer = ask(&address, "/", None, Duration::from_secs(30)).await.unwrap();
            assert_eq!(&*answer.body, b"ok");
        }
        server.join().unwrap();
    }

    /// A member that says that it answers, and gives these answers to requests, one each. Returns
    /// how many requests it got. After the last answer it keeps connections, and answers nothing.
    fn member(
        listener: tokio::net::TcpListener,
        answers: &'static [&'static str],
    ) -> Arc<AtomicUsize> {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                let answer = match head[..read].starts_with(b"GET /up ") {
                    true => Some(&DONE),
                    false => answers.get(counted.fetch_add(1, SeqCst)),
                };
                match answer {
                    Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                    None => kept.push(stream),
                }
            }
        });
        requests
    }

    async fn listen() -> (tokio::net::TcpListener, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const NOTHING_DONE: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno";
    const UNKNOWN: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 5\r\n\r\nmaybe";

    const DENIED: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";
    /// The longest that a test waits for an answer that comes.
    const TEST_TIMEOUT: Duration = Duration::from_secs(120);

    /// Asks for a change, and returns the body of the answer.
    async fn change(members: &[String], timeout: Duration) -> Result<String, CallError> {
        let (caller, path) = (Caller::default(), "/cluster/transfer");
        let answer = ask_leader(&caller, members, path, Some(b"{}"), timeout).await;
        answer.map(|answer| answer.text())
    }

    /// A process that is stopped accepts connections, and does not answer.
    #[tokio::test]
    async fn while_a_member_does_not_answer_the_next_is_asked() {
        let ((stopped, first), (leader, second)) = (listen().await, listen().await);
        member(leader, &[DONE]);
        assert_eq!(change(&[first, second], TEST_TIMEOUT).await.unwrap(), "ok");
        // It has nothing to do when it continues.
        let (mut probe, _) = stopped.accept().await.unwrap();
        let mut head = [0; 1024];
        let read = probe.read(&mut head).await.unwrap();
        assert!(head[..read].starts_with(b"GET /up "), "it was asked whether it answers");
    }

    /// A request that a member refused, and that is under way again, may still be executed.
    #[tokio::test]
    async fn a_refusal_does_not_hide_a_later_request_without_an_answer() {
        let (leader, address) = listen().await;
        let requests = member(leader, &[NOTHING_DONE]);
        let error = change(&[address], Duration::from_secs(2)).await;
        assert!(error.as_ref().is_err_and(|error| error.may_still_happen), "{error:?}");
        assert_eq!(requests.load(SeqCst), 2);
    }

    /// A change whose outcome was unknown was asked for again: it could be made twice, and that it
    /// was made already was reported as a refusal.
    #[tokio::test]
    async fn a_request_that_may_have_been_executed_is_not_sent_again() {
        let (leader, address) = listen().await;
        let requests = member(leader, &[NOTHING_DONE, UNKNOWN, DONE]);
        let error = change(&[address], TEST_TIMEOUT).await;
        assert!(error.as_ref().is_err_and(|error| error.may_still_happen), "{error:?}");
        assert_eq!(requests.load(SeqCst), 2, "the refusal and the unknown outcome");
        // Closed without an answer, as by a leader that crashes.
        let (leader, address) = listen().await;
        let requests = member(leader, &["", DONE]);
        let error = change(&[address], TEST_TIMEOUT).await;
        assert!(error.as_ref().is_err_and(|error| error.may_still_happen), "{error:?}");
        assert_eq!(requests.load(SeqCst), 1);
    }

    /// A member that denied a change was asked for it again and again.
    #[tokio::test]
    async fn each_member_denies_a_request_once() {
        let ((one, first), (two, second)) = (listen().await, listen().await);
        let (at_first, at_second) = (member(one, &[DENIED; 9]), member(two, &[DENIED; 9]));
        let members = [first.clone(), second.clone()];
        let error = change(&members, TEST_TIMEOUT).await.unwrap_err();
        assert_eq!(error.address, second, "the last denial");
        assert!(error.why.contains("401") && !error.may_still_happen, "{error}");
        assert_eq!([&at_first, &at_second].map(|asked| asked.load(SeqCst)), [1, 1]);
        let (leader, third) = listen().await;
        member(leader, &[DONE]);
        assert_eq!(change(&[first, second, third], TEST_TIMEOUT).await.unwrap(), "ok");
        assert_eq!([at_first, at_second].map(|asked| asked.load(SeqCst)), [2, 2]);
    }

    /// A change, and the token with it, was sent wherever anything was answered.
    #[tokio::test]
    async fn only_a_member_that_answers_gets_a_change() {
        for (up, why) in [
            (
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 20\r\n\r\nthis port speaks TLS",
                NO_CERTIFICATES,
            ),
            ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno", "503"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", "200 OK: <html>"),
        ] {
            let ((stranger, first), (leader, second)) = (listen().await, listen().await);
            let changes = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&changes);
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = stranger.accept().await.unwrap();
                    let mut head = [0; 1024];
                    let read = stream.read(&mut head).await.unwrap();
                    counted.fetch_add(usize::from(head[..read].starts_with(b"POST ")), SeqCst);
                    stream.write_all(up.as_bytes()).await.unwrap();
                }
            });
            let error =
                change(std::slice::from_ref(&first), Duration::from_secs(2)).await.unwrap_err();
            assert!(error.why.contains(why) && !error.may_still_happen, "{error}");
            member(leader, &[DONE]);
            assert_eq!(change(&[first, second], TEST_TIMEOUT).await.unwrap(), "ok");
            assert_eq!(changes.load(SeqCst), 0);
        }
    }

    #[test]
    fn an_address_is_that_of_one_host() {
        for right in ["127.0.0.1:8080", "node-1.example:1", "[::1]:65535", "esker_1:80"] {
            assert!(is_address(right), "{right}");
        }
        let wrong = [
            "http://127.0.0.1:8080",
            "0.0.0.0:8090",
            "[::]:80",
            "256.1.1.1:80",
            "a",
            "a:",
            ":80",
            "a:0",
            "a:65536",
            "a b:80",
            "::1:80",
            "\u{100}bad:1",
            "a/b:80",
            "",
        ];
        for wrong in wrong {
            assert!(!is_address(wrong), "{wrong}");
        }
    }
}
