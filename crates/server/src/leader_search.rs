//! The search for the leader among the members. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::CallError;

/// The members that are asked in turn, and why none has answered as leader. A member that denies
/// the request is not asked again.
#[derive(Debug)]
pub(crate) struct LeaderSearch {
    members: Vec<String>,
    turn: usize,
    /// The leader that a member named, to probe next.
    named: Option<String>,
    /// The members with a probe that has not ended.
    probed: BTreeSet<String>,
    /// The denials, by their members.
    denials: BTreeMap<String, CallError>,
    /// The last refusal or denial. It says more than that a member cannot be reached.
    refusal: Option<CallError>,
    failure: Option<CallError>,
}

impl LeaderSearch {
    /// Creates a search among these members.
    pub(crate) fn new(members: &[String]) -> Self {
        Self {
            members: members.to_vec(),
            turn: 0,
            named: None,
            probed: BTreeSet::new(),
            denials: BTreeMap::new(),
            refusal: None,
            failure: None,
        }
    }

    /// Begins the probe of the next member, and returns it: the leader that was named, or the next
    /// in turn. `None` if all members are being probed, or have denied the request.
    pub(crate) fn begin_probe(&mut self) -> Option<String> {
        let turn = self.turn;
        self.turn += 1;
        let count = self.members.len();
        let mut in_turn = self.members.iter().cycle().skip(turn % count.max(1)).take(count);
        let is_open = |member: &&String| {
            !self.probed.contains(*member) && !self.denials.contains_key(*member)
        };
        let next = self.named.take().or_else(|| in_turn.find(is_open).cloned());
        next.filter(|next| self.probed.insert(next.clone()))
    }

    /// Ends the probe of this member.
    pub(crate) fn end_probe(&mut self, member: &str) {
        let was_probed = self.probed.remove(member);
        debug_assert!(was_probed, "a probe ends once");
    }

    /// Returns whether a probe of this member has not ended.
    pub(crate) fn is_probed(&self, member: &str) -> bool {
        self.probed.contains(member)
    }

    /// Records that a member could not be reached.
    pub(crate) fn record_failure(&mut self, error: CallError) {
        self.failure = Some(error);
    }

    /// Records that a member refuses the request for now.
    pub(crate) fn record_refusal(&mut self, error: CallError) {
        self.refusal = Some(error);
    }

    /// Records that this member denies the request.
    ///
    /// # Errors
    /// The denial, if all members have denied the request.
    pub(crate) fn record_denial(
        &mut self,
        member: String,
        error: CallError,
    ) -> Result<(), CallError> {
        self.denials.insert(member, error.clone());
        if self.members.iter().all(|member| self.denials.contains_key(member)) {
            return Err(error);
        }
        self.refusal = Some(error);
        Ok(())
    }

    /// Follows a member, whose answer is this error, to the leader that it names.
    ///
    /// # Errors
    /// The denial of that leader: no other member answers as leader.
    pub(crate) fn follow(&mut self, error: CallError, leader: String) -> Result<(), CallError> {
        if let Some(denial) = self.denials.get(&leader) {
            return Err(denial.clone());
        }
        self.failure = Some(error);
        self.named = Some(leader);
        Ok(())
    }

    /// Takes the reason why no member has answered as leader.
    pub(crate) fn take_error(&mut self) -> Option<CallError> {
        self.refusal.take().or_else(|| self.failure.take())
    }
}
