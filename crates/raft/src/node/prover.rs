//! Proofs of leadership without openraft: a query to each voter.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use esker_consensus::Ballot;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{RaftMetrics, ServerState};
use tokio::time::{Instant, Sleep, sleep};

use crate::base::ballots::ballot_term;
use crate::base::failure::Internal;
use crate::base::type_config::EntryId;
use crate::network::proof_link::ProofLink;
use crate::node::Node;
use crate::node::commands::Commands;
use crate::node::error::NodeError;

/// The interval in which a proof queries unreachable nodes again, and checks that its node still
/// leads.
const REASK_DELAY: Duration = Duration::from_millis(20);

/// A prover that a node leads, one proof at a time, for all requests that wait for it.
///
/// # Why it is a proof
/// A node leads in term T. After the proof began, a majority of each configuration in force
/// answered that it had given no vote in a term above T, and a vote is in that answer from before
/// it is sent. A node of a later term needs a vote of one of them, so it was elected after the
/// proof began: nothing that it issues was returned before. The proof uses the members that the
/// node knew when it began. They may be one step old: their majorities intersect with those of the
/// next step.
///
/// A proof does not cover the applied state: it is for an owner that acts on what it committed
/// itself, in that term. [`Node::ensure_linearizable`] is for reading the state machine.
#[derive(Debug)]
pub struct Prover {
    node: Arc<Node>,
    voters: Voters,
    /// The number of the newest query.
    number: u64,
    /// The time on this node's clock at the end of the last proof.
    clock: u64,
    /// The timer of a proof that waits. The first proof makes it, on its runtime.
    pause: Option<Pin<Box<Sleep>>>,
}

/// The times on wall clocks during a proof, in nanoseconds of Unix time. The answers took a round
/// trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterClocks {
    /// The clock of this node, at the end of the proof.
    pub own: u64,
    /// The clocks of the other voters that confirmed the proof: with this node a majority.
    pub others: Vec<u64>,
}

/// The voters of the current membership, and the connections to them.
#[derive(Debug, Default)]
struct Voters {
    membership: Option<Option<EntryId>>,
    /// The voters of each configuration in force: two while the members change.
    configurations: Vec<Vec<u64>>,
    links: BTreeMap<u64, Voter>,
}

/// Another voter, and its answer in this proof.
#[derive(Debug)]
struct Voter {
    link: ProofLink,
    answer: VoterAnswer,
    /// The time on its wall clock in this proof.
    clock: Option<u64>,
}

/// The answer of a voter in this proof, or of all voters together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VoterAnswer {
    Awaited,
    /// The voter gave no vote above the term.
    Confirmed,
    /// The voter cannot be reached; or no majority can answer.
    Unreachable,
}

impl Prover {
    /// Creates a prover for this node. Its connections are on the tokio runtime that it is used on.
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, voters: Voters::default(), number: 0, clock: 0, pause: None }
    }

    /// Proves that the node led after this call began. Returns the term, in which the node may act
    /// for requests that came before the call. Sends one small message to each other voter.
    ///
    /// Waits for as long as a majority may still answer, and this node leads: the caller has a
    /// deadline.
    ///
    /// # Cancel safety
    /// Nothing is lost: the next proof asks again.
    ///
    /// # Errors
    /// [`NodeError::NotLeader`]; [`NodeError::NoQuorum`] when too few voters confirm it;
    /// [`NodeError::LeadershipTransfer`] from the moment at which a transfer begins, for the rest
    /// of the term.
    pub async fn prove(&mut self) -> Result<u64, NodeError> {
        let Self { node, voters, number, clock, pause } = self;
        let term = {
            let metrics = node.raft.metrics();
            let metrics = metrics.borrow_watched();
            let leads = metrics.state == ServerState::Leader;
            if leads {
                voters.follow(node, &metrics).map_err(|error| node.fail(error))?;
            }
            leads.then_some(metrics.current_term)
        };
        let term = term.ok_or_else(|| node.not_leader())?;
        if voters.configurations.is_empty() {
            return Err(node.fail(Internal::new("a leader has voters")));
        }
        *number += 1;
        voters.ask(*number);
        let pause = pause.get_or_insert_with(|| Box::pin(sleep(REASK_DELAY)));
        poll_fn(|context| {
            loop {
                let proven = voters.poll(context, node.id(), term, *number);
                if proven.is_ready() {
                    return proven;
                }
                // It may have ended while no proof waited: that does no harm.
                ready!(pause.as_mut().poll(context));
                pause.as_mut().reset(Instant::now() + REASK_DELAY);
                if node.leads_in() != Some(term) {
                    return Poll::Ready(Err(node.not_leader()));
                }
                voters.ask_again(*number);
            }
        })
        .await
        .map_err(|error: NodeError| node.or_successor(error))?;
        *clock = node.clock.now();
        // This node is one of its voters.
        if ballot_term(node.log().promised().unwrap_or(Ballot::ZERO)) != term {
            return Err(node.not_leader());
        }
        // Read last: a transfer that has begun is seen.
        node.check_not_resigned(term)?;
        Ok(term)
    }

    /// The clocks of the voters in the last proof, of as many as it needed.
    pub fn voter_clocks(&self) -> VoterClocks {
        let others = self.voters.links.values().filter_map(|voter| voter.clock);
        VoterClocks { own: self.clock, others: others.collect() }
    }
}

impl Voters {
    /// Updates the voters to the members that the node knows.
    fn follow(&mut self, node: &Node, metrics: &RaftMetrics<Commands>) -> Result<(), Internal> {
        let membership = &metrics.membership_config;
        if self.membership.as_ref() == Some(membership.log_id()) {
            return Ok(());
        }
        self.membership = None;
        let configurations = membership.membership().get_joint_config().iter();
        self.configurations = configurations.map(|ids| ids.iter().copied().collect()).collect();
        let others = membership.voter_ids().filter(|id| *id != node.id());
        let mut before = std::mem::take(&mut self.links);
        for id in others {
            let Some(member) = membership.membership().get_node(&id) else {
                return Err(Internal::new("each voter is a member"));
            };
            let link = before.remove(&id).map(|voter| voter.link);
            let link = link.unwrap_or_else(|| node.network.proof_link(id, &member.raft));
            self.links.insert(id, Voter { link, answer: VoterAnswer::Awaited, clock: None });
        }
        self.membership = Some(*membership.log_id());
        Ok(())
    }

    /// Sends the query to all voters that can be reached.
    fn ask(&mut self, number: u64) {
        for voter in self.links.values_mut() {
            voter.link.ask(number);
            voter.answer = VoterAnswer::Awaited;
            voter.clock = None;
        }
    }

    /// Polls whether a majority of each configuration has given no vote above the term.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        own: u64,
        term: u64,
        number: u64,
    ) -> Poll<Result<(), NodeError>> {
        loop {
            for voter in
                self.links.values_mut().filter(|voter| voter.answer == VoterAnswer::Awaited)
            {
                match voter.link.poll(context, number) {
                    Poll::Pending => {}
                    Poll::Ready(Some(voted)) if voted.term <= term => {
                        voter.answer = VoterAnswer::Confirmed;
                        voter.clock = Some(voted.clock);
                    }
                    // An election has begun: the voters that have not answered decide nothing.
                    Poll::Ready(Some(_)) => return Poll::Ready(Err(NodeError::NoQuorum)),
                    Poll::Ready(None) => voter.answer = VoterAnswer::Unreachable,
                }
            }
            match self.quorum(own) {
                VoterAnswer::Awaited => return Poll::Pending,
                VoterAnswer::Confirmed => return Poll::Ready(Ok(())),
                VoterAnswer::Unreachable if self.retry(number) => {}
                VoterAnswer::Unreachable => return Poll::Ready(Err(NodeError::NoQuorum)),
            }
        }
    }

    /// Connects to the unreachable voters again, once in a proof.
    fn retry(&mut self, number: u64) -> bool {
        let mut retries = false;
        for voter in self.links.values_mut() {
            if voter.link.retry(number) {
                voter.answer = VoterAnswer::Awaited;
                retries = true;
            }
        }
        retries
    }

    /// Queries the unreachable voters again, after a delay, while the proof waits for others.
    fn ask_again(&mut self, number: u64) {
        for voter in self.links.values_mut() {
            if voter.answer == VoterAnswer::Unreachable && voter.link.ask_again(number) {
                voter.answer = VoterAnswer::Awaited;
            }
        }
    }

    /// The answer of the voters together. This node confirms; the caller checks its vote.
    fn quorum(&self, own: u64) -> VoterAnswer {
        quorum(&self.configurations, |id| match self.links.get(&id) {
            _ if id == own => VoterAnswer::Confirmed,
            Some(voter) => voter.answer,
            None => VoterAnswer::Unreachable,
        })
    }
}

/// The answer of a majority of each configuration.
fn quorum(configurations: &[Vec<u64>], answer: impl Fn(u64) -> VoterAnswer) -> VoterAnswer {
    debug_assert!(!configurations.is_empty(), "a proof without voters");
    let mut all = VoterAnswer::Confirmed;
    for configuration in configurations {
        let majority = configuration.len() / 2 + 1;
        let count = |wanted| configuration.iter().filter(|id| answer(**id) == wanted).count();
        let confirmed = count(VoterAnswer::Confirmed);
        if confirmed + count(VoterAnswer::Awaited) < majority {
            return VoterAnswer::Unreachable;
        }
        if confirmed < majority {
            all = VoterAnswer::Awaited;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(configurations: &[&[u64]], confirmed: &[u64], denied: &[u64]) -> VoterAnswer {
        let configurations: Vec<_> = configurations.iter().map(|ids| ids.to_vec()).collect();
        quorum(&configurations, |id| match (confirmed.contains(&id), denied.contains(&id)) {
            (true, _) => VoterAnswer::Confirmed,
            (_, true) => VoterAnswer::Unreachable,
            _ => VoterAnswer::Awaited,
        })
    }

    #[test]
    fn a_majority_decides() {
        assert_eq!(said(&[&[1]], &[1], &[]), VoterAnswer::Confirmed);
        assert_eq!(said(&[&[1, 2]], &[1], &[]), VoterAnswer::Awaited);
        assert_eq!(said(&[&[1, 2]], &[1], &[2]), VoterAnswer::Unreachable);
        assert_eq!(said(&[&[1, 2, 3]], &[1], &[2]), VoterAnswer::Awaited);
        assert_eq!(said(&[&[1, 2, 3]], &[1, 3], &[2]), VoterAnswer::Confirmed);
        assert_eq!(said(&[&[1, 2, 3]], &[1], &[2, 3]), VoterAnswer::Unreachable);
        assert_eq!(said(&[&[1, 2, 3, 4]], &[1, 2], &[3]), VoterAnswer::Awaited);
        // A leader that has no vote.
        assert_eq!(said(&[&[2, 3, 4]], &[1, 2], &[3]), VoterAnswer::Awaited);
    }

    #[test]
    fn each_of_two_configurations_has_to_agree() {
        let joint: &[&[u64]] = &[&[1, 2, 3], &[1, 4, 5]];
        assert_eq!(said(joint, &[1, 2], &[]), VoterAnswer::Awaited);
        assert_eq!(said(joint, &[1, 2, 3], &[4, 5]), VoterAnswer::Unreachable);
        assert_eq!(said(joint, &[1, 2, 5], &[3, 4]), VoterAnswer::Confirmed);
    }
}
