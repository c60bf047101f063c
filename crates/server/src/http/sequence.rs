//! Sequences: `/sequence/NAME` and `/sequences`. Only the leader answers.
//!
//! Any client may take numbers, as it may have timestamps, but no page in a browser: a stranger's
//! page could take numbers of invoices, which are a gap then. Creating and removing a sequence is a
//! change, as those of the cluster are.

use std::str::FromStr;

use esker_oracle::{
    SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceError, SequenceName, Timestamp,
};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use serde::Serialize;

use crate::error::BrokenInvariant;
use crate::http::answer::{self, Answer};
use crate::http::client_connection::ConnectionState;
use crate::http::refusal::{
    ChangeResult, Refusal, change_denial, nothing_changed_by, refuse_removed_node,
};
use crate::node_state::NodeState;
use crate::protocol::{CreatedSequence, SequenceEntry, SequenceList, SequenceNumbers};
use crate::security::is_of_page;

/// The paths of sequences begin with this.
pub(crate) const PATH_PREFIX: &str = "/sequence/";

/// The header that distinguishes the reasons of a 422 to a request for numbers.
const REFUSAL_HEADER: HeaderName = HeaderName::from_static("esker-refusal");

/// A request about one sequence.
#[derive(Debug, PartialEq, Eq)]
enum SequenceCall {
    Next { name: SequenceName, count: u32, key: Timestamp },
    Create { name: SequenceName, first: u64 },
    Remove { name: SequenceName },
}

impl SequenceCall {
    /// Parses the path and the query. Ignores parameters that it does not know.
    fn parse(method: &Method, uri: &Uri) -> ChangeResult<Self> {
        let name = uri.path().strip_prefix(PATH_PREFIX).unwrap_or_default();
        let name = SequenceName::from_str(name).map_err(|error| malformed(error.to_string()))?;
        let query = uri.query().unwrap_or_default();
        match *method {
            Method::POST => {
                let count = number(query, "n", 1, SEQUENCE_COUNT_MAX.into())?;
                let count = u32::try_from(count).map_err(|error| malformed(error.to_string()))?;
                let key = parameter(query, "key").unwrap_or_default();
                let key = key.parse::<Timestamp>().map_err(|error| {
                    malformed(format!("invalid key param: {error}, one for each request"))
                })?;
                Ok(Self::Next { name, count, key })
            }
            Method::PUT => {
                let first = number(query, "first", 1, SEQUENCE_NUMBER_MAX)?;
                Ok(Self::Create { name, first })
            }
            _ => Ok(Self::Remove { name }),
        }
    }
}

fn malformed(why: String) -> Refusal {
    Refusal::Status(StatusCode::BAD_REQUEST, why)
}

/// The value of a parameter, the last one if there are several.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&').rev();
    let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
}

/// The value of a parameter that is a number from 1 to `max`, if it is provided.
fn number(query: &str, name: &str, default: u64, max: u64) -> ChangeResult<u64> {
    let Some(value) = parameter(query, name) else { return Ok(default) };
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| is_number && (1..=max).contains(number));
    number.ok_or_else(|| {
        malformed(format!("invalid {name} param, must be a number >= 1 and <= {max} if provided"))
    })
}

/// Answers a request about one sequence.
pub(crate) async fn call<B>(connection: &ConnectionState, id: u64, request: Request<B>) -> Answer {
    let state = connection.node();
    let parsed = match check_caller(connection, &request) {
        Ok(()) => SequenceCall::parse(request.method(), request.uri()),
        Err(denied) => return *denied,
    };
    drop(request);
    let made = match parsed {
        Ok(SequenceCall::Next { name, count, key }) => next(state, name, count, key).await,
        Ok(SequenceCall::Create { name, first }) => create(connection, id, name, first).await,
        Ok(SequenceCall::Remove { name }) => remove(connection, id, name).await,
        Err(refusal) => Err(refusal),
    };
    made.unwrap_or_else(|refusal| refusal.answer(state.node().id()))
}

/// Checks whether a caller may take numbers, or create and remove sequences.
///
/// # Errors
/// The answer to one that may not.
fn check_caller<B>(connection: &ConnectionState, request: &Request<B>) -> Result<(), Box<Answer>> {
    let headers = request.headers();
    let denied = match *request.method() {
        Method::POST => is_of_page(headers).then(|| {
            answer::text(StatusCode::FORBIDDEN, "a page in a browser may not take numbers")
        }),
        _ => change_denial(connection, request.uri(), headers),
    };
    denied.map_or(Ok(()), |denied| Err(Box::new(denied)))
}

async fn next(
    state: &NodeState,
    name: SequenceName,
    count: u32,
    key: Timestamp,
) -> ChangeResult<Answer> {
    match state.oracle().sequences().next(&name, count, key).await {
        Ok(first) => {
            let name = name.to_string();
            short(state, StatusCode::OK, &SequenceNumbers { name, first, n: count })
        }
        Err(error) => refuse(state, error),
    }
}

async fn create(
    connection: &ConnectionState,
    id: u64,
    name: SequenceName,
    first: u64,
) -> ChangeResult<Answer> {
    let state = connection.node();
    refuse_removed_node(state, connection.access().role).await?;
    if let Err(error) = state.oracle().sequences().create(&name, first).await {
        return refuse(state, error);
    }
    tracing::info!(id, sequence = %name, first, "created a sequence");
    short(state, StatusCode::CREATED, &CreatedSequence { name: name.to_string(), first })
}

async fn remove(connection: &ConnectionState, id: u64, name: SequenceName) -> ChangeResult<Answer> {
    let state = connection.node();
    refuse_removed_node(state, connection.access().role).await?;
    if let Err(error) = state.oracle().sequences().remove(&name).await {
        return refuse(state, error);
    }
    tracing::info!(id, sequence = %name, "removed a sequence");
    short(state, StatusCode::OK, &serde_json::json!({}))
}

/// Answers `GET /sequences`.
pub(crate) async fn list(connection: &ConnectionState) -> Answer {
    let (state, client) = (connection.node(), connection.client());
    let sequences = match state.oracle().sequences().list().await {
        Ok(sequences) => sequences,
        Err(SequenceError::Unavailable(error)) => {
            return nothing_changed_by(error).answer(state.node().id());
        }
        Err(error) => return Refusal::from(error).answer(state.node().id()),
    };
    let entries = sequences
        .into_iter()
        .map(|sequence| SequenceEntry { name: sequence.name.to_string(), next: sequence.next });
    answer::json(client, &SequenceList { sequences: entries.collect() }).await
}

/// Answers with JSON that has a name and two numbers at most.
fn short(state: &NodeState, status: StatusCode, value: &impl Serialize) -> ChangeResult<Answer> {
    let Ok(body) = serde_json::to_vec(value) else {
        let broken = BrokenInvariant("all answers about a sequence are encoded as JSON");
        return Ok(answer::internal(state.failures(), broken));
    };
    let mut answer = answer::short_json(body.into());
    *answer.status_mut() = status;
    Ok(answer)
}

/// Refuses with the status of an error. A broken invariant stops the node.
fn refuse(state: &NodeState, error: SequenceError) -> ChangeResult<Answer> {
    let reason = match error {
        SequenceError::Internal { invariant } => {
            return Ok(answer::internal(state.failures(), BrokenInvariant(invariant)));
        }
        SequenceError::KeyUsed => "key-used",
        SequenceError::KeyNotIssued => "key-not-issued",
        SequenceError::UsedUp => "used-up",
        error => return Err(error.into()),
    };
    let mut answer = Refusal::from(error).answer(state.node().id());
    answer.headers_mut().insert(REFUSAL_HEADER, HeaderValue::from_static(reason));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KEY: &str = "17979cfe362a00000000000000000001";

    fn parse(method: &Method, path: &str) -> Result<SequenceCall, StatusCode> {
        SequenceCall::parse(method, &path.parse().unwrap()).map_err(|refusal| match refusal {
            Refusal::Status(status, _) => status,
            _ => StatusCode::IM_A_TEAPOT,
        })
    }

    #[test]
    fn paths_and_queries_are_parsed() {
        let (name, key): (SequenceName, Timestamp) = ("a-1".parse().unwrap(), KEY.parse().unwrap());
        let next = |count| Ok(SequenceCall::Next { name: name.clone(), count, key });
        for (query, count) in
            [("", 1), ("&n=3", 3), ("&n=9&x=1&n=65536", 65_536), ("&&N=2&n=007", 7)]
        {
            let path = format!("/sequence/a-1?key={KEY}{query}");
            assert_eq!(parse(&Method::POST, &path), next(count), "{path}");
        }
        let create = |first| Ok(SequenceCall::Create { name: name.clone(), first });
        for (query, first) in
            [("", 1), ("?first=41", 41), ("?first=9007199254740991", (1 << 53) - 1)]
        {
            assert_eq!(parse(&Method::PUT, &format!("/sequence/a-1{query}")), create(first));
        }
        let remove = SequenceCall::Remove { name: name.clone() };
        assert_eq!(parse(&Method::DELETE, "/sequence/a-1"), Ok(remove));
    }

    #[test]
    fn malformed_requests_are_refused() {
        let long = format!("/sequence/{}?key={KEY}", "x".repeat(65));
        let mut wrong = vec![long];
        for query in ["", "?key=", "?key=1", "?n=1", &format!("?key=+{}", &KEY[1..])] {
            wrong.push(format!("/sequence/a{query}"));
        }
        for n in ["0", "-1", "+1", "1.0", "1e3", "", "65537", "99999999999999999999", "%31"] {
            wrong.push(format!("/sequence/a?key={KEY}&n={n}"));
        }
        for name in ["", "a/b", "a%20b", "a%2Fb", "a,b"] {
            wrong.push(format!("/sequence/{name}?key={KEY}"));
        }
        for path in wrong {
            assert_eq!(parse(&Method::POST, &path), Err(StatusCode::BAD_REQUEST), "{path}");
        }
        for first in ["0", "-1", "9007199254740992", "x", ""] {
            let path = format!("/sequence/a?first={first}");
            assert_eq!(parse(&Method::PUT, &path), Err(StatusCode::BAD_REQUEST), "{path}");
        }
    }
}
