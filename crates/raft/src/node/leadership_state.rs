//! The leadership of a node, and of the nodes that it follows, beside openraft's.

use tokio::sync::Mutex;

use crate::network::leader_contact::LeaderContact;
use crate::node::leadership_log::LeaderSince;
use crate::node::resigned_term::ResignedTerm;

/// The state of a node as a leader, and its contact with other leaders.
#[derive(Debug)]
pub(super) struct LeadershipState {
    /// The last message of another leader.
    pub(super) contact: LeaderContact,
    /// The last leader that this node knew: itself, where it won.
    pub(super) since: LeaderSince,
    /// The term in which this node gives its leadership up.
    pub(super) resigned: ResignedTerm,
    /// Held by the transfer that is made.
    pub(super) transfers: Mutex<()>,
}

impl LeadershipState {
    pub(super) fn new(contact: LeaderContact, since: LeaderSince) -> Self {
        Self { contact, since, resigned: ResignedTerm::default(), transfers: Mutex::new(()) }
    }
}
