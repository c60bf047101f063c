//! Requests and answers between nodes, checked before openraft gets them: it assumes that a peer is
//! another openraft.

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
use crate::base::encoding::{INDEX_MAX, decode, encode, index_after};
use crate::base::failure::invalid_data;
use crate::base::type_config::{CommittedLeader, EntryId, RaftVote, StoredConfig};

/// A vote: term, node, and whether a quorum has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireVote {
    term: u64,
    node: u64,
    committed: bool,
}

impl From<RaftVote> for WireVote {
    fn from(vote: RaftVote) -> Self {
        let LeaderId { term, voted_for } = vote.leader_id;
        Self { term, node: voted_for, committed: vote.committed }
    }
}

impl WireVote {
    fn to_vote(self) -> io::Result<RaftVote> {
        let Self { term, node, committed } = self;
        if term > TERM_MAX {
            return Err(invalid_data(format!("the term {term} is above {TERM_MAX}")));
        }
        Ok(RaftVote { leader_id: LeaderId { term, voted_for: node }, committed })
    }

    /// Checks the vote of a request, which only its own node sends.
    fn check_sender(self, caller: u64, committed: bool) -> io::Result<RaftVote> {
        let vote = self.to_vote()?;
        if self.node != caller || self.committed != committed {
            return Err(invalid_data(format!("node {caller} sent the vote {vote}")));
        }
        Ok(vote)
    }
}

/// The id of an entry: term and index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireId(u64, u64);

impl From<EntryId> for WireId {
    fn from(id: EntryId) -> Self {
        Self(id.leader_id.term, id.index)
    }
}

/// The most entries of a request. In memory each takes more than a byte on the wire.
const ENTRIES_MAX: usize = 16_384;
/// The most terms by which a peer may be ahead of this node. No cluster holds as many elections,
/// and there is none above the highest term.
const TERM_AHEAD_MAX: u64 = 1 << 32;

/// Deserializes a list, and fails where it gets too long, before it takes memory.
fn bounded_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
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

/// Checks the id of an entry that a peer sent.
fn to_entry_id(id: Option<WireId>) -> io::Result<Option<EntryId>> {
    let checked = |WireId(term, index)| match term <= TERM_MAX && index <= INDEX_MAX {
        true => Ok(LogId { leader_id: CommittedLeader::new(term), index }),
        false => {
            Err(invalid_data(format!("the id {term}.{index} is above {TERM_MAX}.{INDEX_MAX}")))
        }
    };
    id.map(checked).transpose()
}

fn to_wire_id(id: Option<EntryId>) -> Option<WireId> {
    id.map(WireId::from)
}

/// A call to another node. The order of the variants is part of the protocol.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Entries after `previous`, each as it is stored.
    Append {
        vote: WireVote,
        previous: Option<WireId>,
        commit: Option<WireId>,
        #[serde(deserialize_with = "bounded_entries")]
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

/// The answer to a call. The order of the variants is part of the protocol.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The node has all of the entries, and gives no vote for this many milliseconds from now on.
    Appended(u32),
    /// The node has the entries up to this one, and gives no vote for this many milliseconds.
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
    /// The receiver's vote, before a snapshot and after it.
    Snapshot(WireVote),
    /// The call was refused.
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
        match term <= own.saturating_add(TERM_AHEAD_MAX) {
            true => Ok(()),
            false => Err(invalid_data(format!("the term {term} is too far above {own}"))),
        }
    }

    pub(crate) fn append<C: StoredConfig>(request: &AppendEntriesRequest<C>) -> io::Result<Self> {
        debug_assert!(request.entries.len() <= ENTRIES_MAX, "the receiver takes as many entries");
        let entries = request.entries.iter().map(|entry| encode::<C>(entry).map(Bytes::from));
        Ok(Self::Append {
            vote: request.vote.into(),
            previous: to_wire_id(request.prev_log_id),
            commit: to_wire_id(request.leader_commit),
            entries: entries.collect::<io::Result<_>>()?,
        })
    }

    pub(crate) fn vote<C: StoredConfig>(request: &VoteRequest<C>) -> Self {
        let (vote, last) = (request.vote.into(), to_wire_id(request.last_log_id));
        Self::Vote { vote, last, is_transfer: request.leadership_transfer }
    }

    pub(crate) fn pre_vote<C: StoredConfig>(request: &VoteRequest<C>) -> Self {
        Self::PreVote { vote: request.vote.into(), last: to_wire_id(request.last_log_id) }
    }

    pub(crate) fn transfer<C: StoredConfig>(request: &TransferLeaderRequest<C>) -> Self {
        let (vote, last) = (*request.from_leader(), request.last_log_id().copied());
        Self::Transfer { vote: vote.into(), to: *request.to_node_id(), last: to_wire_id(last) }
    }
}

/// Checks a request to append: its entries have no gap, and their terms do not fall and are not
/// above that of the vote.
pub(crate) fn checked_append<C: StoredConfig>(
    caller: u64,
    vote: WireVote,
    previous: Option<WireId>,
    commit: Option<WireId>,
    entries: &[Bytes],
) -> io::Result<AppendEntriesRequest<C>> {
    let vote = vote.check_sender(caller, true)?;
    let prev_log_id = to_entry_id(previous)?;
    let mut term = prev_log_id.map_or(0, |id| id.leader_id.term);
    let first = prev_log_id.map_or(0, |id| index_after(id.index));
    let mut decoded = Vec::with_capacity(entries.len());
    for (index, bytes) in (first..).zip(entries) {
        if index > INDEX_MAX {
            return Err(invalid_data(format!("an entry has the index {index}")));
        }
        let entry = decode::<C>(Slot(index), bytes)?;
        if entry.log_id.leader_id.term < term {
            return Err(invalid_data(format!("the terms of the entries fall at {index}")));
        }
        term = entry.log_id.leader_id.term;
        decoded.push(entry);
    }
    if term > vote.leader_id.term {
        return Err(invalid_data(format!("an entry of term {term} under the vote {vote}")));
    }
    debug_assert!(
        decoded.windows(2).all(|pair| pair[0].log_id < pair[1].log_id),
        "the entries of a request rise"
    );
    let leader_commit = to_entry_id(commit)?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries: decoded, leader_commit })
}

/// Checks the request of a candidate.
pub(crate) fn checked_vote<C: StoredConfig>(
    caller: u64,
    vote: WireVote,
    last: Option<WireId>,
    is_transfer: bool,
) -> io::Result<VoteRequest<C>> {
    let mut request = VoteRequest::new(vote.check_sender(caller, false)?, to_entry_id(last)?);
    request.leadership_transfer = is_transfer;
    Ok(request)
}

pub(crate) fn checked_transfer<C: StoredConfig>(
    caller: u64,
    vote: WireVote,
    to: u64,
    last: Option<WireId>,
) -> io::Result<TransferLeaderRequest<C>> {
    Ok(TransferLeaderRequest::new(vote.check_sender(caller, true)?, to, to_entry_id(last)?))
}

pub(crate) fn checked_leader(caller: u64, vote: WireVote) -> io::Result<RaftVote> {
    vote.check_sender(caller, true)
}

impl Answer {
    /// The answer for a part of the entries.
    pub(crate) fn appended_through(last: Option<EntryId>, lease_ms: u32) -> Self {
        Self::AppendedThrough(to_wire_id(last), lease_ms)
    }

    /// The time for which the node that answered gives no vote.
    pub(crate) fn lease(&self) -> Duration {
        match self {
            Self::Appended(ms) | Self::AppendedThrough(_, ms) => {
                Duration::from_millis((*ms).into())
            }
            _ => Duration::ZERO,
        }
    }

    /// Checks the answer to a request with the entries after `previous` and up to `last`.
    pub(crate) fn into_appended<C: StoredConfig>(
        self,
        previous: Option<EntryId>,
        last: Option<EntryId>,
    ) -> io::Result<AppendEntriesResponse<C>> {
        match self {
            Self::Appended(_) => Ok(AppendEntriesResponse::Success),
            Self::AppendedThrough(through, _) => {
                let through = to_entry_id(through)?;
                if through < previous || through > last {
                    return Err(invalid_data("it answered for entries that were not sent".into()));
                }
                Ok(AppendEntriesResponse::PartialSuccess(through))
            }
            // Nothing conflicts with the beginning of the log.
            Self::Conflict if previous.is_some() => Ok(AppendEntriesResponse::Conflict),
            Self::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(vote.to_vote()?)),
            other => Err(other.into_unexpected()),
        }
    }

    pub(crate) fn voted<C: StoredConfig>(answer: &VoteResponse<C>) -> Self {
        let (vote, last) = (answer.vote.into(), to_wire_id(answer.last_log_id));
        Self::Voted { vote, granted: answer.vote_granted, last }
    }

    pub(crate) fn into_voted<C: StoredConfig>(self) -> io::Result<VoteResponse<C>> {
        match self {
            Self::Voted { vote, granted, last } => {
                Ok(VoteResponse::new(vote.to_vote()?, to_entry_id(last)?, granted))
            }
            other => Err(other.into_unexpected()),
        }
    }

    pub(crate) fn transferred<C: StoredConfig>(answer: Result<(), TransferLeaderError<C>>) -> Self {
        match answer {
            Ok(()) => Self::Transferred,
            Err(TransferLeaderError::VoteChanged { actual, .. }) => {
                Self::TransferVoteChanged(actual.into())
            }
            Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
                Self::TransferBehind(to_wire_id(actual))
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
                actual: actual.to_vote()?,
            }),
            Self::TransferBehind(actual) => Err(TransferLeaderError::LogNotFlushed {
                expected: request.last_log_id().copied(),
                actual: to_entry_id(actual)?,
            }),
            other => return Err(other.into_unexpected()),
        })
    }

    pub(crate) fn into_snapshot(self) -> io::Result<RaftVote> {
        match self {
            Self::Snapshot(vote) => vote.to_vote(),
            other => Err(other.into_unexpected()),
        }
    }

    pub(crate) fn into_unexpected(self) -> io::Error {
        match self {
            Self::Refused(why) => io::Error::new(io::ErrorKind::ConnectionRefused, why),
            other => invalid_data(format!("an answer to another question: {other:?}")),
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
        append(5 + TERM_AHEAD_MAX, 0).refuse_far_term(5).unwrap();
        append(6 + TERM_AHEAD_MAX, 0).refuse_far_term(5).unwrap_err();
        append(3, 0).refuse_far_term(5).unwrap();
    }
}
