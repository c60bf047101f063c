//! The types of openraft that the stores work with.

use openraft::entry::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::leader_id_std::CommittedLeaderId;
use openraft::{Entry, LogId, RaftTypeConfig, Vote};

pub(crate) type RaftLeaderId = LeaderId<u64, u64>;
pub(crate) type CommittedLeader = CommittedLeaderId<u64>;
pub(crate) type EntryId = LogId<CommittedLeader>;
pub(crate) type RaftVote = Vote<RaftLeaderId>;
/// The payload of an entry: blank, a command or a membership.
pub type StoredPayload<C> =
    EntryPayload<<C as RaftTypeConfig>::D, u64, <C as RaftTypeConfig>::Node>;

/// A type configuration of openraft that the stores work with. It is implemented for all of them.
///
/// Commands are stored as `postcard` encodes them, and memberships as JSON.
///
/// # Examples
/// ```
/// use esker_raft::openraft;
///
/// openraft::declare_raft_types!(
///     /// A counter.
///     pub Counter:
///         D = u64,
///         R = u64,
///         NodeId = u64,
///         LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
/// );
/// fn is_stored<C: esker_raft::StoredConfig>() {}
/// is_stored::<Counter>();
/// ```
pub trait StoredConfig:
    RaftTypeConfig<
        NodeId = u64,
        Term = u64,
        LeaderId = RaftLeaderId,
        Vote = RaftVote,
        Payload = StoredPayload<Self>,
        Entry = Entry<CommittedLeader, StoredPayload<Self>>,
    >
{
}

impl<C> StoredConfig for C where
    C: RaftTypeConfig<
            NodeId = u64,
            Term = u64,
            LeaderId = RaftLeaderId,
            Vote = RaftVote,
            Payload = StoredPayload<Self>,
            Entry = Entry<CommittedLeader, StoredPayload<Self>>,
        >
{
}
