//! `GET /timestamp`.

use bytes::{BufMut, Bytes, BytesMut};
use esker_oracle::{OracleError, Range, Timestamp};
use esker_raft::NodeError;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, Response, StatusCode, Version};

use crate::forward::{FORWARDED, ForwardError, Forwarder};
use crate::http::answer::{self, Answer};
use crate::http::body::AnswerBody;
use crate::http::client::{self, Client};
use crate::rooms::{NoRoom, Room};
use crate::shared::{Followers, Shared};

const LEN: usize = 16;
/// The most timestamps of an answer that needs no room of its own.
const SHORT: u32 = (client::SHORT / LEN) as u32;

/// What clients get that are not sent to another node.
const NO_LEADER: OracleError = OracleError::NotLeader { leader: None };

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    count: u32,
    is_range: bool,
}

/// What is wrong with a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Count,
    Format,
}

/// What of a request says how it is answered.
#[derive(Debug)]
pub(crate) struct Asked {
    wanted: Result<Wanted, Wrong>,
    /// What is passed on to the leader, where that is a setting.
    passed: Option<Box<Passed>>,
}

/// A request for the leader.
#[derive(Debug)]
struct Passed {
    path: String,
    version: Version,
}

impl Asked {
    pub(crate) fn of<B>(shared: &Shared, request: &Request<B>) -> Self {
        let query = request.uri().query();
        let passes = !matches!(shared.followers, Followers::Refuse)
            // A node that asks for a client knows what to do with a 409.
            && !request.headers().contains_key(FORWARDED);
        let passed = passes.then(|| {
            let path =
                query.map_or_else(|| "/timestamp".into(), |query| format!("/timestamp?{query}"));
            Box::new(Passed { path, version: request.version() })
        });
        Self { wanted: wanted(query.unwrap_or_default(), shared.oracle.max_timestamps()), passed }
    }
}

impl Passed {
    /// The same request to the node at this address.
    fn location(&self, address: &str) -> String {
        let scheme = if self.version == Version::HTTP_3 { "https" } else { "http" };
        format!("{scheme}://{address}{}", self.path)
    }
}

/// Answers with as many timestamps as the query says, 1 without a number.
pub(crate) async fn issue(shared: &Shared, client: &Client, id: u64, asked: Asked) -> Answer {
    let Asked { wanted, passed } = asked;
    let (room, error) = match wanted {
        Err(wrong) => match (refused(shared), wrong) {
            (Some(refused), _) => (None, refused),
            (None, Wrong::Count) => (None, OracleError::Count(0)),
            (None, Wrong::Format) => {
                let why = "invalid format param, must be list or range if provided";
                return answer::text(StatusCode::BAD_REQUEST, why);
            }
        },
        Ok(wanted) => match room(client, wanted).await {
            // There is no room for the leader's answer, either.
            Err(_) if matches!(shared.followers, Followers::Forward(_)) => {
                (None, OracleError::Busy)
            }
            Err(_) => (None, refused(shared).unwrap_or(OracleError::Busy)),
            Ok(room) => match shared.oracle.timestamps(wanted.count).await {
                Ok(range) if wanted.is_range => return answer::bytes(short(range).into()),
                Ok(range) => return answer::bytes(AnswerBody::new(whole(range), room)),
                Err(error) => (room, error),
            },
        },
    };
    // Apart, so that the futures of all other requests stay small: they are copied.
    Box::pin(of_follower(shared, id, passed, room, &error)).await
}

/// The answer of a node that does not lead, or of any error.
async fn of_follower(
    shared: &Shared,
    id: u64,
    passed: Option<Box<Passed>>,
    room: Option<Room>,
    error: &OracleError,
) -> Answer {
    let (OracleError::NotLeader { leader: Some((leader, member)) }, Some(passed)) = (error, passed)
    else {
        return of_error(shared, id, error);
    };
    let is_own = *leader == shared.node.id();
    let address = &*member.client;
    match &shared.followers {
        Followers::Redirect if !is_own => {
            let location = passed.location(address);
            answer::redirect(shared.node.id(), *leader, address, &location)
        }
        Followers::Forward(forwarder) if !is_own => {
            forward(shared, id, forwarder, address, &passed.path, room).await
        }
        // Clients of such a cluster are not sent to another node.
        Followers::Forward(_) => of_error(shared, id, &NO_LEADER),
        _ => of_error(shared, id, error),
    }
}

/// Answers as the leader does.
async fn forward(
    shared: &Shared,
    id: u64,
    forwarder: &Forwarder,
    address: &str,
    path: &str,
    room: Option<Room>,
) -> Answer {
    let most = room.as_ref().map_or(LEN * SHORT as usize, Room::bytes);
    // An error may be longer than a timestamp.
    let asked = forwarder.ask(address, path, most.max(4096)).await;
    let error = match asked {
        // It led when it was chosen.
        Ok(answer) if answer.status() == StatusCode::CONFLICT => {
            return of_error(shared, id, &NO_LEADER);
        }
        Ok(answer) => return passed_on(answer, room),
        Err(ForwardError::Busy) => return of_error(shared, id, &OracleError::Busy),
        Err(ForwardError::TimedOut) => return of_error(shared, id, &OracleError::TimedOut),
        Err(error) => error,
    };
    failed(shared, id, &error)
}

/// An answer of the leader, with what of its head is for the client.
fn passed_on(answer: Response<Bytes>, room: Option<Room>) -> Answer {
    let (head, body) = answer.into_parts();
    let mut answer = Response::new(AnswerBody::new(body, room));
    *answer.status_mut() = head.status;
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = head.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}

/// Room for an answer, if it is long. Clients that read slowly keep theirs.
async fn room(client: &Client, Wanted { count, is_range }: Wanted) -> Result<Option<Room>, NoRoom> {
    if is_range || count <= SHORT {
        return Ok(None);
    }
    // Apart, so that the futures of all other requests stay small: they are copied.
    Box::pin(client.room(count.saturating_mul(LEN as u32))).await.map(Some)
}

/// Fails for what no number of timestamps is, and for a format that there is not. What else a query
/// has is not looked at.
fn wanted(query: &str, most: u32) -> Result<Wanted, Wrong> {
    let mut wanted = Wanted { count: 1, is_range: false };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("n", count) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
                let count = count.parse().ok().filter(|n| (1..=most).contains(n));
                wanted.count = count.ok_or(Wrong::Count)?;
            }
            ("n", _) => return Err(Wrong::Count),
            ("format", "range") => wanted.is_range = true,
            ("format", "list") => wanted.is_range = false,
            ("format", _) => return Err(Wrong::Format),
            _ => {}
        }
    }
    Ok(wanted)
}

/// What comes before a wrong number: whether this node leads, as far as it knows.
fn refused(shared: &Shared) -> Option<OracleError> {
    let status = shared.node.status();
    match status.leader {
        Some(leader) if leader == status.node => None,
        leader => {
            let known = leader.and_then(|id| Some((id, status.members.get(&id)?.clone())));
            Some(OracleError::NotLeader { leader: known })
        }
    }
}

fn of_error(shared: &Shared, id: u64, error: &OracleError) -> Answer {
    match error {
        OracleError::NotLeader { leader: Some((leader, member)) } => {
            answer::not_leader(shared.node.id(), *leader, &member.client)
        }
        OracleError::NotLeader { leader: None } => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, "no node leads")
        }
        OracleError::Unavailable(error @ NodeError::NoQuorum) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
        // What an operator has to do is in them.
        OracleError::Clock { .. } | OracleError::NoEpochLeft | OracleError::Stopped => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
        OracleError::Count(_) => {
            let most = shared.oracle.max_timestamps();
            let why = format!("invalid n param, must be a number >= 1 and <= {most} if provided");
            answer::text(StatusCode::BAD_REQUEST, why)
        }
        OracleError::Busy => answer::busy(),
        OracleError::TimedOut | OracleError::Unavailable(NodeError::TimedOut) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, "no answer in time")
        }
        error => failed(shared, id, error),
    }
}

/// The answer that names no cause. Elections, transfers and lost quorums fail many requests: not
/// one line for each.
fn failed(shared: &Shared, id: u64, error: &(dyn std::error::Error + 'static)) -> Answer {
    if shared.refusals.is_new("timestamp", None, &error.to_string()) {
        tracing::warn!(id, error, "no timestamp; the same is not logged again for a minute");
    }
    answer::text(StatusCode::INTERNAL_SERVER_ERROR, answer::NEUTRAL)
}

/// All timestamps, one after the other.
fn whole(range: Range) -> Bytes {
    let mut body = BytesMut::with_capacity(LEN * range.count as usize);
    for Timestamp { epoch, index } in range.timestamps() {
        body.put_u64(epoch);
        body.put_u64(index);
    }
    body.freeze()
}

/// The first timestamp, and how many there are.
fn short(range: Range) -> Bytes {
    let mut body = BytesMut::with_capacity(LEN + 8);
    body.put_u64(range.first.epoch);
    body.put_u64(range.first.index);
    body.put_u64(u64::from(range.count));
    body.freeze()
}

#[cfg(test)]
mod tests {
    use esker_oracle::COUNT_MAX;

    use super::*;

    fn count(query: &str) -> Option<u32> {
        wanted(query, COUNT_MAX).ok().map(|wanted| wanted.count)
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
        assert_eq!(wanted("n=2&format=range", 2), Ok(Wanted { count: 2, is_range: true }));
        assert_eq!(wanted("format=list", 1), Ok(Wanted { count: 1, is_range: false }));
        assert_eq!(wanted("n=1&format=json", 1), Err(Wrong::Format));
        assert_eq!(wanted("n=3", 2), Err(Wrong::Count));
    }

    #[test]
    fn a_body_is_in_the_order_of_time() {
        let first = Timestamp { epoch: 0x0102_0304_0506_0708, index: u64::from(u32::MAX) };
        let range = Range { first, count: 3 };
        let body = whole(range);
        assert_eq!(body.len(), 48);
        assert_eq!(body[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(body.chunks(16).is_sorted());
        assert_eq!(body[24..32], (u64::from(u32::MAX) + 1).to_be_bytes());
        let body = short(range);
        assert_eq!((body.len(), &body[..16]), (24, &whole(range)[..16]));
        assert_eq!(body[16..], 3_u64.to_be_bytes());
    }
}
