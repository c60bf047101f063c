//! The search for the node that makes a change. No I/O.

use std::collections::{BTreeMap, BTreeSet};

/// The nodes that are asked in turn for what the leader alone does, and the error of each kind that
/// says most. A node that denies the request is not asked again: another try would be denied, too,
/// and may lock an operator out.
///
/// `E` is the error of a call.
#[derive(Debug)]
pub struct LeaderSearch<E> {
    nodes: Vec<String>,
    turn: usize,
    /// The leader that a node named, to probe next.
    named: Option<String>,
    /// The nodes with a probe that has not ended.
    probed: BTreeSet<String>,
    /// The denials, by their nodes.
    denials: BTreeMap<String, E>,
    /// The last refusal or denial. It says more than that a node cannot be reached.
    refusal: Option<E>,
    failure: Option<E>,
}

impl<E: Clone> LeaderSearch<E> {
    /// Creates a search among these nodes.
    pub fn new(nodes: Vec<String>) -> Self {
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
    /// turn. `None` if all nodes are being probed, or have denied the request.
    pub fn begin_probe(&mut self) -> Option<String> {
        let turn = self.turn;
        self.turn += 1;
        let count = self.nodes.len();
        let mut in_turn = self.nodes.iter().cycle().skip(turn % count.max(1)).take(count);
        let is_open =
            |node: &&String| !self.probed.contains(*node) && !self.denials.contains_key(*node);
        let next = self.named.take().or_else(|| in_turn.find(is_open).cloned());
        next.filter(|next| self.probed.insert(next.clone()))
    }

    /// Ends the probe of this node.
    pub fn end_probe(&mut self, node: &str) {
        let was_probed = self.probed.remove(node);
        debug_assert!(was_probed, "a probe ends once");
    }

    /// Returns whether a probe of this node has not ended.
    pub fn is_probed(&self, node: &str) -> bool {
        self.probed.contains(node)
    }

    /// Records that a node could not be reached.
    pub fn record_failure(&mut self, error: E) {
        self.failure = Some(error);
    }

    /// Records that a node refuses the request for now.
    pub fn record_refusal(&mut self, error: E) {
        self.refusal = Some(error);
    }

    /// Records that this node denies the request.
    ///
    /// # Errors
    /// The denial, if all nodes have denied the request.
    pub fn record_denial(&mut self, node: String, error: E) -> Result<(), E> {
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
    /// The denial of that leader: no other node does what was asked for.
    pub fn follow(&mut self, error: E, leader: String) -> Result<(), E> {
        if let Some(denial) = self.denials.get(&leader) {
            return Err(denial.clone());
        }
        self.failure = Some(error);
        self.named = Some(leader);
        Ok(())
    }

    /// Takes the reason why no node has answered as leader.
    pub fn take_error(&mut self) -> Option<E> {
        self.refusal.take().or_else(|| self.failure.take())
    }
}
