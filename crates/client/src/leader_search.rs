//! The search for the leader that makes a change. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::CallError;

/// The nodes that are asked for a change in turn, and why none has made it. A node that denies it
/// is not asked again: another try would be denied, too, and may lock an operator out.
#[derive(Debug)]
pub(crate) struct LeaderSearch {
    nodes: Vec<String>,
    turn: usize,
    /// The leader that a node named, to probe next.
    named: Option<String>,
    /// The nodes with a probe that has not ended.
    probed: BTreeSet<String>,
    /// The denials, by their nodes.
    denials: BTreeMap<String, CallError>,
    /// The last refusal or denial. It says more than that a node cannot be reached.
    refusal: Option<CallError>,
    failure: Option<CallError>,
}

impl LeaderSearch {
    /// Creates a search among these nodes, of which there is at least one.
    pub(crate) fn new<'a>(nodes: impl Iterator<Item = &'a String>) -> Self {
        let nodes: Vec<_> = nodes.cloned().collect();
        debug_assert!(!nodes.is_empty(), "a caller has an endpoint");
        Self {
            nodes,
            turn: 0,
            named: None,
            probed: BTreeSet::new(),
            denials: BTreeMap::new(),
            refusal: None,
            failure: None,
        }
    }

    /// Begins the probe of the next node, and returns it: the leader that was named, or the next in
    /// turn. `None` if all nodes are being probed, or have denied the change.
    pub(crate) fn begin_probe(&mut self) -> Option<String> {
        let turn = self.turn;
        self.turn += 1;
        let count = self.nodes.len();
        let mut in_turn = self.nodes.iter().cycle().skip(turn % count.max(1)).take(count);
        let is_open =
            |node: &&String| !self.probed.contains(*node) && !self.denials.contains_key(*node);
        let next = self.named.take().or_else(|| in_turn.find(is_open).cloned());
        let next = next.filter(|next| self.probed.insert(next.clone()));
        debug_assert!(!self.probed.is_empty(), "a search that continues has a node to wait for");
        next
    }

    /// Ends the probe of this node.
    pub(crate) fn end_probe(&mut self, node: &str) {
        let was_probed = self.probed.remove(node);
        debug_assert!(was_probed, "a probe ends once");
    }

    /// Returns whether a probe of this node has not ended.
    pub(crate) fn is_probed(&self, node: &str) -> bool {
        self.probed.contains(node)
    }

    /// Records that a node could not be reached.
    pub(crate) fn record_failure(&mut self, error: CallError) {
        self.failure = Some(error);
    }

    /// Records that a node refuses the change for now.
    pub(crate) fn record_refusal(&mut self, error: CallError) {
        self.refusal = Some(error);
    }

    /// Records that this node denies the change.
    ///
    /// # Errors
    /// The denial, if all nodes have denied the change.
    pub(crate) fn record_denial(
        &mut self,
        node: String,
        error: CallError,
    ) -> Result<(), CallError> {
        self.denials.insert(node, error.clone());
        if self.nodes.iter().all(|node| self.denials.contains_key(node)) {
            return Err(error);
        }
        self.refusal = Some(error);
        Ok(())
    }

    /// Follows a node, whose answer is this error, to the leader that it names.
    ///
    /// # Errors
    /// The denial of that leader: no other node makes the change.
    pub(crate) fn follow(&mut self, error: CallError, leader: String) -> Result<(), CallError> {
        if let Some(denial) = self.denials.get(&leader) {
            return Err(denial.clone());
        }
        self.failure = Some(error);
        self.named = Some(leader);
        Ok(())
    }

    /// Takes the reason why no node has made the change.
    pub(crate) fn take_error(&mut self) -> Option<CallError> {
        self.refusal.take().or_else(|| self.failure.take())
    }
}
