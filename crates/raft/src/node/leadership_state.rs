//! The leadership of a node, and of the nodes that it follows, beside openraft's.

use tokio::sync::Mutex;

use crate::network::leader_contact::LeaderContact;
use crate::node::leadership_log::LeadershipWin;
use crate::node::resigned_term::ResignedTerm;

/// The state of a node as a leader, and its contact with other leaders.
#[derive(Debug)]
pub(super) struct LeadershipState {
    /// The last message of another leader.
    pub(super) contact: LeaderContact,
    /// The last term that this node won.
    pub(super) win: LeadershipWin,
    /// The term in which this node gives its leadership up.
    pub(super) resigned: ResignedTerm,
    /// Held by the transfer that is made.
    pub(super) transfers: Mutex<()>,
}

impl LeadershipState {
    pub(super) fn new(contact: LeaderContact, win: LeadershipWin) -> Self {
        Self { contact, win, resigned: ResignedTerm::default(), transfers: Mutex::new(()) }
    }
}
