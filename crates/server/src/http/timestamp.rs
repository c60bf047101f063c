//! Requests for timestamps: `GET /timestamp`.

use bytes::{BufMut, Bytes, BytesMut};
use esker_oracle::{COUNT_MAX, OracleError, Range, Timestamp, TimestampWidth};
use esker_raft::NodeError;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};

use crate::error::BrokenInvariant;
use crate::forward::{FORWARDED_HEADER, ForwardError, Forwarder};
use crate::http::answer::{self, Answer};
use crate::http::body::AnswerBody;
use crate::http::client_connection::{ClientConnection, ConnectionState, SHORT_LIST_BYTES};
use crate::memory_budget::{BudgetExhausted, LIST_BYTES_MAX, Permit};
use crate::node_state::{FollowerPolicy, NodeState};

const TIMESTAMP_BYTES: usize = 16;
/// The length of a range: the first timestamp and the number of timestamps.
const RANGE_BYTES: usize = TIMESTAMP_BYTES + 8;
/// The length of a range of timestamps of 64 bits: the first one and the number of timestamps.
const U64_RANGE_BYTES: usize = 8 + 8;
/// The longest error of the leader that is passed on. It may be longer than a timestamp.
const FORWARDED_ERROR_BYTES_MAX: usize = 4096;

const _: () = assert!(size_of::<Timestamp>() == TIMESTAMP_BYTES);
const _: () = assert!(SHORT_LIST_BYTES / TIMESTAMP_BYTES == 16, "the limit in the documentation");
const _: () = assert!(
    COUNT_MAX as usize * TIMESTAMP_BYTES <= LIST_BYTES_MAX,
    "a connection has memory for the longest list"
);

/// The error for clients when the leader is unknown.
const NO_LEADER: OracleError = OracleError::NotLeader { leader: None };

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerFormat {
    /// All timestamps, 16 bytes each.
    List,
    /// The first timestamp and the number of timestamps.
    Range,
    /// All timestamps, 64 bits each.
    U64,
    /// The first timestamp of 64 bits, and the number of timestamps.
    U64Range,
}

impl AnswerFormat {
    fn width(self) -> TimestampWidth {
        match self {
            Self::U64 | Self::U64Range => TimestampWidth::Bits64,
            Self::List | Self::Range => TimestampWidth::Bits128,
        }
    }

    /// The length of an answer with `count` timestamps.
    fn bytes(self, count: u32) -> usize {
        match self {
            Self::List => TIMESTAMP_BYTES * count as usize,
            Self::Range => RANGE_BYTES,
            Self::U64 => size_of::<u64>() * count as usize,
            Self::U64Range => U64_RANGE_BYTES,
        }
    }
}

/// The parsed query of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimestampQuery {
    count: u32,
    format: AnswerFormat,
}

/// The error of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryError {
    Count,
    Format,
}

/// A request for timestamps.
#[derive(Debug)]
pub(crate) struct TimestampRequest {
    query: Result<TimestampQuery, QueryError>,
    /// The request for the leader, if this node forwards or redirects requests.
    forwarded: Option<Box<ForwardedRequest>>,
}

/// A request that is forwarded or redirected to the leader.
#[derive(Debug)]
struct ForwardedRequest {
    path: String,
    is_encrypted: bool,
}

impl TimestampRequest {
    pub(crate) fn parse<B>(connection: &ConnectionState, request: &Request<B>) -> Self {
        let state = connection.node();
        let query = request.uri().query();
        let is_forwarded = !matches!(state.followers(), FollowerPolicy::Refuse)
            // A node that forwards a request handles a 409 itself.
            && !request.headers().contains_key(FORWARDED_HEADER);
        let forwarded = is_forwarded.then(|| {
            let path =
                query.map_or_else(|| "/timestamp".into(), |query| format!("/timestamp?{query}"));
            Box::new(ForwardedRequest { path, is_encrypted: connection.access().is_encrypted })
        });
        let query = parse_query(query.unwrap_or_default(), state.oracle().max_timestamps());
        Self { query, forwarded }
    }
}

impl ForwardedRequest {
    /// Returns the URL of the same request to the node at this address.
    fn location(&self, address: &str) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{address}{}", self.path)
    }
}

/// Answers with as many timestamps as the query asks for, 1 without a number.
pub(crate) async fn issue(
    state: &NodeState,
    client: &ClientConnection,
    id: u64,
    request: TimestampRequest,
) -> Answer {
    let TimestampRequest { query, forwarded } = request;
    let (permit, error) = match query {
        Err(query_error) => match (not_leader_error(state), query_error) {
            (Some(error), _) => (None, error),
            (None, QueryError::Count) => (None, OracleError::Count(0)),
            (None, QueryError::Format) => {
                let why = "invalid format param, must be list, range, u64 or u64-range if provided";
                return answer::text(StatusCode::BAD_REQUEST, why);
            }
        },
        Ok(query) => match permit_list(client, query).await {
            // There is no memory for the leader's answer, either.
            Err(BudgetExhausted) if matches!(state.followers(), FollowerPolicy::Forward(_)) => {
                (None, OracleError::Busy)
            }
            Err(BudgetExhausted) => (None, not_leader_error(state).unwrap_or(OracleError::Busy)),
            Ok(permit) => {
                let width = query.format.width();
                match state.oracle().timestamps_of_width(query.count, width).await {
                    Ok(range) => return answer_range(state, range, query, permit),
                    Err(error) => (permit, error),
                }
            }
        },
    };
    // Boxed, so that the futures of all other requests stay small: they are copied.
    Box::pin(answer_error(state, id, forwarded, permit, &error)).await
}

/// Answers with the timestamps that were issued.
fn answer_range(
    state: &NodeState,
    range: Range,
    TimestampQuery { count, format }: TimestampQuery,
    permit: Option<Permit>,
) -> Answer {
    debug_assert_eq!(range.count, count, "the oracle issues what is asked");
    debug_assert!(range.last().is_some(), "the indexes of a range do not overflow");
    let body = match format {
        AnswerFormat::List => Some(encode_list(range)),
        AnswerFormat::Range => Some(encode_range(range)),
        AnswerFormat::U64 => encode_u64s(range),
        AnswerFormat::U64Range => encode_u64_range(range),
    };
    let Some(body) = body else {
        let broken = BrokenInvariant("timestamps of 64 bits have no higher index");
        return answer::internal(state.failures(), broken);
    };
    debug_assert_eq!(body.len(), format.bytes(count), "an answer has all timestamps");
    answer::bytes(AnswerBody::new(body, permit))
}

/// Answers with an error, or as the leader does if this node follows it.
async fn answer_error(
    state: &NodeState,
    id: u64,
    forwarded: Option<Box<ForwardedRequest>>,
    permit: Option<Permit>,
    error: &OracleError,
) -> Answer {
    let (OracleError::NotLeader { leader: Some((leader, member)) }, Some(forwarded)) =
        (error, forwarded)
    else {
        return error_answer(state, id, error);
    };
    let is_own = *leader == state.node().id();
    let address = &*member.client;
    match state.followers() {
        FollowerPolicy::Redirect if !is_own => {
            let location = forwarded.location(address);
            answer::redirect(state.node().id(), *leader, address, &location)
        }
        FollowerPolicy::Forward(forwarder) if !is_own => {
            forward(state, id, forwarder, address, &forwarded.path, permit).await
        }
        // Clients of such a cluster are not redirected to another node.
        FollowerPolicy::Forward(_) => error_answer(state, id, &NO_LEADER),
        FollowerPolicy::Redirect | FollowerPolicy::Refuse => error_answer(state, id, error),
    }
}

/// Forwards a request, and answers as the leader does.
async fn forward(
    state: &NodeState,
    id: u64,
    forwarder: &Forwarder,
    address: &str,
    path: &str,
    permit: Option<Permit>,
) -> Answer {
    let list_bytes_max = permit.as_ref().map_or(SHORT_LIST_BYTES, Permit::bytes);
    let bytes_max = list_bytes_max.max(FORWARDED_ERROR_BYTES_MAX);
    let error = match forwarder.forward(address, path, bytes_max).await {
        // It led when it was chosen.
        Ok(answer) if answer.status() == StatusCode::CONFLICT => {
            return error_answer(state, id, &NO_LEADER);
        }
        Ok(answer) => return relay(answer, permit),
        Err(ForwardError::Busy) => return error_answer(state, id, &OracleError::Busy),
        Err(ForwardError::TimedOut) => return error_answer(state, id, &OracleError::TimedOut),
        Err(error @ ForwardError::Failed(_)) => error,
    };
    failed(state, id, &error)
}

/// Relays an answer of the leader, with the headers that are for the client.
fn relay(answer: Response<Bytes>, permit: Option<Permit>) -> Answer {
    let (head, body) = answer.into_parts();
    let mut answer = Response::new(AnswerBody::new(body, permit));
    *answer.status_mut() = head.status;
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = head.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}

/// Acquires memory for an answer, if it is long. Clients that read slowly keep theirs.
async fn permit_list(
    client: &ClientConnection,
    TimestampQuery { count, format }: TimestampQuery,
) -> Result<Option<Permit>, BudgetExhausted> {
    let bytes = format.bytes(count);
    if bytes <= SHORT_LIST_BYTES {
        return Ok(None);
    }
    debug_assert!(count <= COUNT_MAX, "the query was checked");
    // Boxed, so that the futures of all other requests stay small: they are copied.
    Box::pin(client.permit_list(bytes as u32)).await.map(Some)
}

/// Parses a query for at most `count_max` timestamps. Ignores parameters that it does not know.
fn parse_query(query: &str, count_max: u32) -> Result<TimestampQuery, QueryError> {
    let mut parsed = TimestampQuery { count: 1, format: AnswerFormat::List };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("n", count) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
                let count = count.parse().ok().filter(|n| (1..=count_max).contains(n));
                parsed.count = count.ok_or(QueryError::Count)?;
            }
            ("n", _) => return Err(QueryError::Count),
            ("format", "range") => parsed.format = AnswerFormat::Range,
            ("format", "list") => parsed.format = AnswerFormat::List,
            ("format", "u64") => parsed.format = AnswerFormat::U64,
            ("format", "u64-range") => parsed.format = AnswerFormat::U64Range,
            ("format", _) => return Err(QueryError::Format),
            _ => {}
        }
    }
    Ok(parsed)
}

/// Returns the error of a node that does not lead, as far as it knows. It comes before the errors
/// of a query.
fn not_leader_error(state: &NodeState) -> Option<OracleError> {
    let status = state.node().status();
    match status.leader {
        Some(leader) if leader == status.node => None,
        leader => {
            let known = leader.and_then(|id| Some((id, status.members.get(&id)?.clone())));
            Some(OracleError::NotLeader { leader: known })
        }
    }
}

fn error_answer(state: &NodeState, id: u64, error: &OracleError) -> Answer {
    match error {
        OracleError::NotLeader { leader: Some((leader, member)) } => {
            answer::not_leader(state.node().id(), *leader, &member.client)
        }
        OracleError::NotLeader { leader: None } => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, "no node leads")
        }
        OracleError::Unavailable(error @ NodeError::NoQuorum) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
        // They say what an operator has to do.
        OracleError::Clock { .. }
        | OracleError::NoEpochLeft
        | OracleError::Stopped
        | OracleError::Internal { .. } => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
        OracleError::Count(_) => {
            let most = state.oracle().max_timestamps();
            let why = format!("invalid n param, must be a number >= 1 and <= {most} if provided");
            answer::text(StatusCode::BAD_REQUEST, why)
        }
        OracleError::Busy => answer::busy(),
        OracleError::TimedOut | OracleError::Unavailable(NodeError::TimedOut) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, "no answer in time")
        }
        OracleError::ClockTooHigh { .. } => {
            let broken = BrokenInvariant("only an operator sets a clock that is too high");
            answer::internal(state.failures(), broken)
        }
        OracleError::Unavailable(NodeError::TooLong { .. } | NodeError::Membership(_)) => {
            let broken = BrokenInvariant("no timestamp needs a long entry or a new member");
            answer::internal(state.failures(), broken)
        }
        error => failed(state, id, error),
    }
}

/// Answers 500 without the cause, and logs it. Elections, transfers and lost quorums fail many
/// requests, which share one line.
fn failed(state: &NodeState, id: u64, error: &(dyn std::error::Error + 'static)) -> Answer {
    if state.should_log_refusal("timestamp", None, &error.to_string()) {
        tracing::warn!(id, error, "no timestamp; the same is not logged again for a minute");
    }
    answer::text(StatusCode::INTERNAL_SERVER_ERROR, answer::NEUTRAL_MESSAGE)
}

/// Encodes all timestamps, one after the other.
fn encode_list(range: Range) -> Bytes {
    let bytes = TIMESTAMP_BYTES * range.count as usize;
    let mut body = BytesMut::with_capacity(bytes);
    for Timestamp { epoch, index } in range.timestamps() {
        body.put_u64(epoch);
        body.put_u64(index);
    }
    debug_assert_eq!(body.len(), bytes, "a list has all timestamps of its range");
    debug_assert!(body.starts_with(&range.first.to_bytes()), "and begins with the first");
    body.freeze()
}

/// Encodes all timestamps, 64 bits each. `None` if one has no such form.
fn encode_u64s(range: Range) -> Option<Bytes> {
    let (first, last) = (range.first.to_u64()?, range.last()?.to_u64()?);
    debug_assert_eq!(last - first + 1, u64::from(range.count), "they are consecutive");
    let mut body = BytesMut::with_capacity(size_of::<u64>() * range.count as usize);
    (first..=last).for_each(|timestamp| body.put_u64(timestamp));
    Some(body.freeze())
}

/// Encodes the first timestamp of 64 bits and the number of timestamps. `None` if one has no such
/// form.
fn encode_u64_range(range: Range) -> Option<Bytes> {
    let (first, _) = (range.first.to_u64()?, range.last()?.to_u64()?);
    let mut body = BytesMut::with_capacity(U64_RANGE_BYTES);
    body.put_u64(first);
    body.put_u64(u64::from(range.count));
    Some(body.freeze())
}

/// Encodes the first timestamp and the number of timestamps.
fn encode_range(range: Range) -> Bytes {
    let mut body = BytesMut::with_capacity(RANGE_BYTES);
    body.put_u64(range.first.epoch);
    body.put_u64(range.first.index);
    body.put_u64(u64::from(range.count));
    debug_assert_eq!(body.len(), RANGE_BYTES);
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(query: &str) -> Option<u32> {
        parse_query(query, COUNT_MAX).ok().map(|parsed| parsed.count)
    }

    #[test]
    fn a_count_is_a_number_in_bounds() {
        for (query, expected) in [("", 1), ("n=1", 1), ("n=65536", COUNT_MAX), ("x=y&n=007&", 7)] {
            assert_eq!(count(query), Some(expected), "{query}");
        }
        let wrong = ["n=0", "n=-1", "n=+1", "n=abc", "n=", "n", "n=1.5", "n=%31", "n= 1"];
        let huge = ["n=65537", "n=9223372036854775808", "n=99999999999999999999999999"];
        for query in wrong.into_iter().chain(huge) {
            assert_eq!(count(query), None, "{query}");
        }
        let parsed = |count, format| Ok(TimestampQuery { count, format });
        assert_eq!(parse_query("n=2&format=range", 2), parsed(2, AnswerFormat::Range));
        assert_eq!(parse_query("format=list", 1), parsed(1, AnswerFormat::List));
        assert_eq!(parse_query("format=u64&n=3", 3), parsed(3, AnswerFormat::U64));
        assert_eq!(parse_query("format=u64-range", 1), parsed(1, AnswerFormat::U64Range));
        assert_eq!(parse_query("n=1&format=json", 1), Err(QueryError::Format));
        assert_eq!(parse_query("n=3", 2), Err(QueryError::Count));
    }

    #[test]
    fn a_body_is_in_the_order_of_time() {
        let first = Timestamp { epoch: 0x0102_0304_0506_0708, index: u64::from(u32::MAX) };
        let range = Range { first, count: 3 };
        let body = encode_list(range);
        assert_eq!(body.len(), 48);
        assert_eq!(body[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(body.chunks(16).is_sorted());
        assert_eq!(body[24..32], (u64::from(u32::MAX) + 1).to_be_bytes());
        let body = encode_range(range);
        assert_eq!((body.len(), &body[..16]), (24, &encode_list(range)[..16]));
        assert_eq!(body[16..], 3_u64.to_be_bytes());
    }

    #[test]
    fn timestamps_of_64_bits_are_consecutive() {
        let first = Timestamp { epoch: 1_700_000_000_123_456_789, index: 261_999 };
        let body = encode_u64s(Range { first, count: 2 });
        let bits = (1_700_000_000_123 << 18) + 261_999_u64;
        let expected = [bits.to_be_bytes(), (bits + 1).to_be_bytes()].concat();
        assert_eq!(body.as_deref(), Some(&expected[..]));
        let range = encode_u64_range(Range { first, count: 2 });
        let expected = [bits.to_be_bytes(), 2_u64.to_be_bytes()].concat();
        assert_eq!(range.as_deref(), Some(&expected[..]));
        for encode in [encode_u64s, encode_u64_range] {
            assert_eq!(encode(Range { first, count: 200 }), None);
        }
    }
}
