//! The driver of this crate for the conformance suite: see `clients/conformance/README.md`.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_client::{
    AttemptError, AttemptErrorKind, CallError, Client, Error, NodeCaller, Timestamp, TlsOptions,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The kind of an error in the protocol, its cause and its message.
#[derive(Debug)]
struct Failure {
    kind: &'static str,
    cause: Option<&'static str>,
    message: String,
}

impl Failure {
    fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, cause: None, message: message.into() }
    }

    fn of_client(error: &Error) -> Self {
        let mut message = error.to_string();
        if let Some(source) = std::error::Error::source(error) {
            message = format!("{message}: {source}");
        }
        let (kind, cause) = match error {
            Error::Deadline { last } => ("deadline", last.as_ref().map(cause)),
            Error::Busy { .. } => ("queue_full", None),
            Error::Refused(attempt) => ("refused", Some(cause(attempt))),
            Error::NotMonotonic { .. } => ("went_backwards", None),
            Error::Closed | Error::Internal { .. } => ("closed", None),
            _ => ("invalid", None),
        };
        Self { kind, cause, message }
    }

    fn of_change(error: &CallError) -> Self {
        let kind = match (&error.attempt.kind, error.may_still_happen) {
            (AttemptErrorKind::Denied { .. }, _) => "denied",
            (_, true) => "unknown",
            (_, false) => "deadline",
        };
        Self { kind, cause: Some(cause(&error.attempt)), message: error.to_string() }
    }

    fn into_answer(self) -> Value {
        let Self { kind, cause, message } = self;
        let mut error = json!({"kind": kind, "message": message});
        if let Some(cause) = cause {
            error["cause"] = cause.into();
        }
        json!({"error": error})
    }
}

fn cause(attempt: &AttemptError) -> &'static str {
    match attempt.kind {
        AttemptErrorKind::Tls(_) => "tls",
        AttemptErrorKind::OtherCluster(_) => "other_cluster",
        _ => "other",
    }
}

/// A client, and what makes its changes.
#[derive(Clone)]
struct Opened {
    client: Client,
    caller: NodeCaller,
    timeout: Duration,
    /// Whether its timestamps have 64 bits.
    is_u64: bool,
}

type Answered = Result<Value, Failure>;
/// The calls that wait. Each is ended by the failure that is sent to it.
type Calls = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Failure>>>>;

/// Answers the requests of standard input until its end.
pub fn run() {
    let runtime = Runtime::new().unwrap();
    let (mut opened, calls) = (None, Calls::default());
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let id = request["id"].as_u64().unwrap();
        let answered = match request["op"].as_str().unwrap() {
            "open" => open(&request).map(|client| {
                opened = Some(client);
                json!({})
            }),
            "close" => {
                opened = None;
                let waiting = std::mem::take(&mut *calls.lock());
                for call in waiting.into_values() {
                    drop(call.send(Failure::new("closed", "the client is closed")));
                }
                Ok(json!({}))
            }
            "cancel" => {
                let call = calls.lock().remove(&request["call"].as_u64().unwrap());
                if let Some(call) = call {
                    drop(call.send(Failure::new("cancelled", "the call was cancelled")));
                }
                Ok(json!({}))
            }
            "compare" => compare(&request),
            "timestamps" | "change" | "bench" => {
                begin(&runtime, opened.clone().unwrap(), request, &calls);
                continue;
            }
            other => Err(Failure::new("unsupported", other)),
        };
        write_answer(id, answered);
    }
    runtime.shutdown_background();
}

fn write_answer(id: u64, answered: Answered) {
    let mut answer = answered.unwrap_or_else(Failure::into_answer);
    answer["id"] = id.into();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").unwrap();
    out.flush().unwrap();
}

/// Begins a call, whose answer is written when it ends.
fn begin(runtime: &Runtime, opened: Opened, request: Value, calls: &Calls) {
    let id = request["id"].as_u64().unwrap();
    let (ending, ended) = oneshot::channel();
    calls.lock().insert(id, ending);
    let calls = Arc::clone(calls);
    runtime.spawn(async move {
        let called = async {
            match request["op"].as_str().unwrap() {
                "timestamps" => timestamps(&opened, &request).await,
                "change" => change(&opened, &request).await,
                _ => Ok(bench(&opened, &request).await),
            }
        };
        let answered = tokio::select! {
            answered = called => answered,
            Ok(failure) = ended => Err(failure),
        };
        calls.lock().remove(&id);
        write_answer(id, answered);
    });
}

fn text<'a>(request: &'a Value, key: &str) -> Option<&'a str> {
    request[key].as_str()
}

fn millis(request: &Value, key: &str) -> Option<Duration> {
    request[key].as_u64().map(Duration::from_millis)
}

fn count(request: &Value, key: &str) -> Option<u32> {
    request[key].as_u64().map(|number| number.try_into().unwrap())
}

fn open(request: &Value) -> Result<Opened, Failure> {
    let is_u64 = match text(request, "format") {
        Some("u64") => true,
        Some("range") | None => false,
        Some(_) => return Err(Failure::new("unsupported", "the format")),
    };
    let endpoints = request["endpoints"].as_array().unwrap().iter();
    let endpoints: Vec<_> = endpoints.map(|it| it.as_str().unwrap().to_owned()).collect();
    let mut tls = None;
    if let Some(ca) = text(request, "ca") {
        tls = Some(TlsOptions::new().ca_file(ca));
    }
    if let (Some(certificate), Some(key)) =
        (text(request, "client_cert"), text(request, "client_key"))
    {
        tls = Some(tls.unwrap_or_default().client_certificate(certificate, key));
    }
    let timeout = millis(request, "timeout_ms").unwrap_or(CALL_TIMEOUT);
    let mut builder = endpoints.iter().fold(Client::builder(), |it, each| it.endpoint(each));
    builder = builder.timeout(timeout);
    if let Some(tls) = &tls {
        builder = builder.tls(tls.clone());
    }
    if let Some(cluster) = text(request, "cluster") {
        builder = builder.cluster(cluster);
    }
    if let Some(timeout) = millis(request, "connect_timeout_ms") {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(callers) = count(request, "queue") {
        builder = builder.queue(callers as usize);
    }
    if let Some(most) = count(request, "max_timestamps") {
        builder = builder.max_timestamps(most);
    }
    let invalid = |error| Failure::of_client(&error);
    let client = builder.build().map_err(invalid)?;
    let mut caller = NodeCaller::new(endpoints, tls).map_err(invalid)?;
    if let Some(token) = text(request, "token") {
        caller = caller.token(token).map_err(invalid)?;
    }
    Ok(Opened { client, caller, timeout, is_u64 })
}

async fn timestamps(opened: &Opened, request: &Value) -> Answered {
    let (client, n) = (&opened.client, count(request, "n").unwrap());
    let deadline = millis(request, "timeout_ms").map(|timeout| Instant::now() + timeout);
    let failed = |error| Failure::of_client(&error);
    if text(request, "format").map_or(opened.is_u64, |format| format == "u64") {
        let called = match deadline {
            Some(deadline) => client.timestamps_u64_by(n, deadline).await,
            None => client.timestamps_u64(n).await,
        };
        let numbers = called.map_err(failed)?;
        let (first, last) = (numbers.start().to_string(), numbers.end().to_string());
        return Ok(json!({"first": first, "last": last, "count": numbers.count()}));
    }
    let called = match deadline {
        Some(deadline) => client.timestamps_by(n, deadline).await,
        None => client.timestamps(n).await,
    };
    let range = called.map_err(failed)?;
    let (first, last) = (range.first.to_string(), range.last().unwrap().to_string());
    Ok(json!({"first": first, "last": last, "count": range.count}))
}

async fn change(opened: &Opened, request: &Value) -> Answered {
    let timeout = millis(request, "timeout_ms").unwrap_or(opened.timeout);
    let (path, body) = (text(request, "path").unwrap(), text(request, "body").unwrap());
    let called = opened.caller.change(&[], path, body.as_bytes(), timeout).await;
    let answer = called.map_err(|error| Failure::of_change(&error))?;
    Ok(json!({"status": answer.status, "body": answer.text()}))
}

fn compare(request: &Value) -> Answered {
    let parse = |key| text(request, key).unwrap().parse::<Timestamp>().unwrap();
    let (a, b) = (parse("a"), parse("b"));
    let parts =
        |it: Timestamp| json!({"epoch": it.epoch.to_string(), "index": it.index.to_string()});
    Ok(json!({"order": a.cmp(&b) as i8, "a": parts(a), "b": parts(b)}))
}

async fn bench(opened: &Opened, request: &Value) -> Value {
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(request["seconds"].as_f64().unwrap());
    let callers: Vec<_> = (0..request["callers"].as_u64().unwrap())
        .map(|_| {
            let (client, is_u64) = (opened.client.clone(), opened.is_u64);
            tokio::spawn(async move {
                let (mut last, mut calls) = (None, 0_u64);
                while Instant::now() < end {
                    let issued = match is_u64 {
                        true => u128::from(client.timestamp_u64().await.unwrap()),
                        false => u128::from_be_bytes(client.timestamp().await.unwrap().to_bytes()),
                    };
                    assert!(Some(issued) > last);
                    (last, calls) = (Some(issued), calls + 1);
                }
                calls
            })
        })
        .collect();
    let mut timestamps = 0;
    for caller in callers {
        timestamps += caller.await.unwrap();
    }
    json!({"timestamps": timestamps, "seconds": begun.elapsed().as_secs_f64()})
}
