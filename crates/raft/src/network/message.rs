//! What nodes ask each other, and the answers, checked before openraft sees them: it takes for
//! granted that a peer is another openraft.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use esker_consensus::Slot;
use openraft::LogId;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::base::ballots::TERM_MAX;
use crate::base::config::{Committed, Id, StoredConfig, VoteOf};
use crate::base::encoding::{decode, encode};
use crate::base::failure::invalid;

/// A vote: term, node, and whether a quorum has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireVote {
    term: u64,
    node: u64,
    committed: bool,
}

impl From<VoteOf> for WireVote {
    fn from(vote: VoteOf) -> Self {
        let LeaderId { term, voted_for } = vote.leader_id;
        Self { term, node: voted_for, committed: vote.committed }
    }
}

impl WireVote {
    fn checked(self) -> io::Result<VoteOf> {
        let Self { term, node, committed } = self;
        if term > TERM_MAX {
            return Err(invalid(format!("the term {term} is above {TERM_MAX}")));
        }
        Ok(VoteOf { leader_id: LeaderId { term, voted_for: node }, committed })
    }

    /// The vote of a request, which only its own node sends.
    fn of_caller(self, caller: u64, committed: bool) -> io::Result<VoteOf> {
        let vote = self.checked()?;
        if self.node != caller || self.committed != committed {
            return Err(invalid(format!("node {caller} sent the vote {vote}")));
        }
        Ok(vote)
    }
}

/// The id of an entry: term and index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireId(u64, u64);

impl From<Id> for WireId {
    fn from(id: Id) -> Self {
        Self(id.leader_id.term, id.index)
    }
}

/// The most entries of a request. In memory each takes more than a byte on the wire.
const ENTRIES_MAX: usize = 16_384;
/// How far the term of a peer may be above that of this node. No cluster holds so many elections,
/// and above the highest term there is none.
const TERMS_AHEAD: u64 = 1 << 32;

/// A list that ends with an error where it gets too long, before it takes memory.
fn some_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Bytes>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {ENTRIES_MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<Bytes>, A::Error> {
            let mut some = Vec::new();
            while let Some(entry) = entries.next_element()? {
                if some.len() == ENTRIES_MAX {
                    return Err(A::Error::invalid_length(ENTRIES_MAX + 1, &self));
                }
                some.push(entry);
            }
            Ok(some)
        }
    }
    deserializer.deserialize_seq(Entries)
}

/// The highest index that is taken from a peer: openraft adds to indexes.
const INDEX_MAX: u64 = u64::MAX / 2;

/// The id that a peer sent.
fn checked(id: Option<WireId>) -> io::Result<Option<Id>> {
    let checked = |WireId(term, index)| match term <= TERM_MAX && index <= INDEX_MAX {
        true => Ok(LogId { leader_id: Committed::new(term), index }),
        false => Err(invalid(format!("the id {term}.{index} is above {TERM_MAX}.{INDEX_MAX}"))),
    };
    id.map(checked).transpose()
}

fn wire(id: Option<Id>) -> Option<WireId> {
    id.map(WireId::from)
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Entries after `previous`, each as it is stored.
    Append {
        vote: WireVote,
        previous: Option<WireId>,
        commit: Option<WireId>,
        #[serde(deserialize_with = "some_entries")]
        entries: Vec<Bytes>,
    },
    Vote {
        vote: WireVote,
        last: Option<WireId>,
        is_transfer: bool,
    },
    PreVote {
        vote: WireVote,
        last: Option<WireId>,
    },
    Transfer {
        vote: WireVote,
        to: u64,
        last: Option<WireId>,
    },
    /// The first on a connection for a snapshot, which follows the answer.
    Snapshot {
        vote: WireVote,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// All of the entries, and the milliseconds for which the node gives no vote from now on.
    Appended(u32),
    /// The entries up to this one, and the same.
    AppendedThrough(Option<WireId>, u32),
    Conflict,
    HigherVote(WireVote),
    Voted {
        vote: WireVote,
        granted: bool,
        last: Option<WireId>,
    },
    Transferred,
    /// The target has another vote.
    TransferVoteChanged(WireVote),
    /// The last entry that the target has.
    TransferBehind(Option<WireId>),
    /// Go ahead with the snapshot; and, after it, the receiver's vote.
    Snapshot(WireVote),
    /// The call was not done.
    Refused(String),
}

impl Request {
    /// Refuses a term that is too far above that of this node.
    pub(crate) fn refuse_far_term(&self, own: u64) -> io::Result<()> {
        let term = match self {
            Self::Append { vote, .. }
            | Self::Vote { vote, .. }
            | Self::PreVote { vote, .. }
            | Self::Transfer { vote, .. }
            | Self::Snapshot { vote } => vote.term,
        };
        match term <= own.saturating_add(TERMS_AHEAD) {
            true => Ok(()),
            false => Err(invalid(format!("the term {term} is too far above {own}"))),
        }
    }

    pub(crate) fn append<C: StoredConfig>(request: &AppendEntriesRequest<C>) -> io::Result<Self> {
        let entries = request.entries.iter().map(|entry| encode::<C>(entry).map(Bytes::from));
        Ok(Self::Append {
            vote: request.vote.into(),
            previous: wire(request.prev_log_id),
            commit: wire(request.leader_commit),
            entries: entries.collect::<io::Result<_>>()?,
        })
    }

    pub(crate) fn vote<C: StoredConfig>(request: &VoteRequest<C>) -> Self {
        let (vote, last) = (request.vote.into(), wire(request.last_log_id));
        Self::Vote { vote, last, is_transfer: request.leadership_transfer }
    }

    pub(crate) fn pre_vote<C: StoredConfig>(request: &VoteRequest<C>) -> Self {
        Self::PreVote { vote: request.vote.into(), last: wire(request.last_log_id) }
    }

    pub(crate) fn transfer<C: StoredConfig>(request: &TransferLeaderRequest<C>) -> Self {
        let (vote, last) = (*request.from_leader(), request.last_log_id().copied());
        Self::Transfer { vote: vote.into(), to: *request.to_node_id(), last: wire(last) }
    }
}

/// A request to append that is one: entries without a gap, of terms that do not fall and are not
/// above that of the vote.
pub(crate) fn checked_append<C: StoredConfig>(
    caller: u64,
    vote: WireVote,
    previous: Option<WireId>,
    commit: Option<WireId>,
    entries: &[Bytes],
) -> io::Result<AppendEntriesRequest<C>> {
    let vote = vote.of_caller(caller, true)?;
    let prev_log_id = checked(previous)?;
    let mut term = prev_log_id.map_or(0, |id| id.leader_id.term);
    // There are far fewer entries in a frame than indexes above the highest.
    let first = prev_log_id.map_or(0, |id| id.index + 1);
    let mut decoded = Vec::with_capacity(entries.len());
    for (index, bytes) in (first..).zip(entries) {
        let entry = decode::<C>(Slot(index), bytes)?;
        if entry.log_id.leader_id.term < term {
            return Err(invalid(format!("the terms of the entries fall at {index}")));
        }
        term = entry.log_id.leader_id.term;
        decoded.push(entry);
    }
    if term > vote.leader_id.term {
        return Err(invalid(format!("an entry of term {term} under the vote {vote}")));
    }
    let leader_commit = checked(commit)?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries: decoded, leader_commit })
}

/// The request of a candidate.
pub(crate) fn checked_vote<C: StoredConfig>(
    caller: u64,
    vote: WireVote,
    last: Option<WireId>,
    is_transfer: bool,
) -> io::Result<VoteRequest<C>> {
    let mut request = VoteRequest::new(vote.of_caller(caller, false)?, checked(last)?);
    request.leadership_transfer = is_transfer;
    Ok(request)
}

pub(crate) fn checked_transfer<C: StoredConfig>(
    caller: u64,
    vote: WireVote,
    to: u64,
    last: Option<WireId>,
) -> io::Result<TransferLeaderRequest<C>> {
    Ok(TransferLeaderRequest::new(vote.of_caller(caller, true)?, to, checked(last)?))
}

pub(crate) fn checked_leader(caller: u64, vote: WireVote) -> io::Result<VoteOf> {
    vote.of_caller(caller, true)
}

impl Answer {
    /// Some of the entries were appended.
    pub(crate) fn appended_through(last: Option<Id>, lease_ms: u32) -> Self {
        Self::AppendedThrough(wire(last), lease_ms)
    }

    /// For how long the node that answered gives no vote.
    pub(crate) fn lease(&self) -> Duration {
        match self {
            Self::Appended(ms) | Self::AppendedThrough(_, ms) => {
                Duration::from_millis((*ms).into())
            }
            _ => Duration::ZERO,
        }
    }

    /// The answer to a request for entries after `previous` and up to `last`.
    pub(crate) fn into_appended<C: StoredConfig>(
        self,
        previous: Option<Id>,
        last: Option<Id>,
    ) -> io::Result<AppendEntriesResponse<C>> {
        match self {
            Self::Appended(_) => Ok(AppendEntriesResponse::Success),
            Self::AppendedThrough(through, _) => {
                let through = checked(through)?;
                if through < previous || through > last {
                    return Err(invalid("it answered for entries that were not sent".into()));
                }
                Ok(AppendEntriesResponse::PartialSuccess(through))
            }
            // Nothing can be in conflict with the beginning of the log.
            Self::Conflict if previous.is_some() => Ok(AppendEntriesResponse::Conflict),
            Self::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(vote.checked()?)),
            other => Err(other.unexpected()),
        }
    }

    pub(crate) fn voted<C: StoredConfig>(answer: &VoteResponse<C>) -> Self {
        let (vote, last) = (answer.vote.into(), wire(answer.last_log_id));
        Self::Voted { vote, granted: answer.vote_granted, last }
    }

    pub(crate) fn into_voted<C: StoredConfig>(self) -> io::Result<VoteResponse<C>> {
        match self {
            Self::Voted { vote, granted, last } => {
                Ok(VoteResponse::new(vote.checked()?, checked(last)?, granted))
            }
            other => Err(other.unexpected()),
        }
    }

    pub(crate) fn transferred<C: StoredConfig>(answer: Result<(), TransferLeaderError<C>>) -> Self {
        match answer {
            Ok(()) => Self::Transferred,
            Err(TransferLeaderError::VoteChanged { actual, .. }) => {
                Self::TransferVoteChanged(actual.into())
            }
            Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
                Self::TransferBehind(wire(actual))
            }
        }
    }

    pub(crate) fn into_transferred<C: StoredConfig>(
        self,
        request: &TransferLeaderRequest<C>,
    ) -> io::Result<Result<(), TransferLeaderError<C>>> {
        Ok(match self {
            Self::Transferred => Ok(()),
            Self::TransferVoteChanged(actual) => Err(TransferLeaderError::VoteChanged {
                expected: *request.from_leader(),
                actual: actual.checked()?,
            }),
            Self::TransferBehind(actual) => Err(TransferLeaderError::LogNotFlushed {
                expected: request.last_log_id().copied(),
                actual: checked(actual)?,
            }),
            other => return Err(other.unexpected()),
        })
    }

    pub(crate) fn into_snapshot(self) -> io::Result<VoteOf> {
        match self {
            Self::Snapshot(vote) => vote.checked(),
            other => Err(other.unexpected()),
        }
    }

    pub(crate) fn unexpected(self) -> io::Error {
        match self {
            Self::Refused(why) => io::Error::new(io::ErrorKind::ConnectionRefused, why),
            other => invalid(format!("an answer to another question: {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn append(term: u64, entries: usize) -> Request {
        let vote = WireVote { term, node: 1, committed: true };
        let entries = vec![Bytes::new(); entries];
        Request::Append { vote, previous: None, commit: None, entries }
    }

    #[test]
    fn a_request_has_a_bounded_number_of_entries() {
        let sent = |entries| postcard::to_allocvec(&append(1, entries)).unwrap();
        assert!(postcard::from_bytes::<Request>(&sent(ENTRIES_MAX)).is_ok());
        assert!(postcard::from_bytes::<Request>(&sent(ENTRIES_MAX + 1)).is_err());
    }

    #[test]
    fn a_term_from_far_above_is_refused() {
        append(5 + TERMS_AHEAD, 0).refuse_far_term(5).unwrap();
        append(6 + TERMS_AHEAD, 0).refuse_far_term(5).unwrap_err();
        append(3, 0).refuse_far_term(5).unwrap();
    }
}
