//! Proofs of leadership without openraft: asking the voters themselves.

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

use crate::base::ballots::term_of;
use crate::base::config::Id;
use crate::network::proof_link::ProofLink;
use crate::node::commands::Commands;
use crate::node::error::NodeError;
use crate::node::start::Node;

/// How long a proof waits before it asks nodes again that could not be reached, and looks whether
/// its node still leads.
const PAUSE: Duration = Duration::from_millis(20);

/// Proves that a node leads, one proof at a time, for all that wait for it.
///
/// # Why it is a proof
/// A node leads in term T. After the proof began, a majority of each configuration in force said
/// that it had given no vote in a term above T, and a vote is in that answer from before it is
/// sent. A node of a later term needs a vote of one of them, so it was elected after the proof
/// began: nothing that it issues was returned before. The members are those that the node knew when
/// the proof began. They may be those of one step before, whose majorities meet those of the next.
///
/// A proof says nothing of what has been applied: it is for an owner that acts on what it committed
/// itself, in that term. [`Node::prove_leadership`] is for reading the state machine.
#[derive(Debug)]
pub struct Prover {
    node: Arc<Node>,
    voters: Voters,
    /// The number of the newest query.
    number: u64,
    /// What this node's clock showed at the end of the last proof.
    clock: u64,
    /// Ends while a proof waits. It is made by the first proof, on the runtime of that.
    pause: Option<Pin<Box<Sleep>>>,
}

/// What wall clocks showed during a proof, in nanoseconds of Unix time. The answers took a round
/// trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterClocks {
    /// This node's, at the end of the proof.
    pub own: u64,
    /// Those of the other voters that confirmed it, a majority with this node.
    pub others: Vec<u64>,
}

/// The voters of the membership that was seen last, and the connections to them.
#[derive(Debug, Default)]
struct Voters {
    membership: Option<Option<Id>>,
    /// The voters of each configuration in force: two while the members change.
    configurations: Vec<Vec<u64>>,
    links: BTreeMap<u64, Voter>,
}

#[derive(Debug)]
struct Voter {
    link: ProofLink,
    answer: Answer,
    /// What its wall clock showed in this proof.
    clock: Option<u64>,
}

/// What a voter said in this proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Awaited,
    /// It gave no vote above the term.
    Confirmed,
    /// It cannot be reached; of all together: no majority can answer.
    Unreachable,
}

impl Prover {
    /// A prover for this node. Its connections are on the tokio runtime that it is used on.
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, voters: Voters::default(), number: 0, clock: 0, pause: None }
    }

    /// Proves that the node led after this call began. Returns the term, in which it may act for
    /// what it was asked before the call. One small message to each other voter.
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
            voters.follow(node, &metrics);
            (metrics.state == ServerState::Leader).then_some(metrics.current_term)
        };
        let term = term.ok_or_else(|| node.not_leader())?;
        *number += 1;
        voters.ask(*number);
        let pause = pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        poll_fn(|context| {
            loop {
                let proven = voters.poll(context, node.id(), term, *number);
                if proven.is_ready() {
                    return proven;
                }
                // It may have ended while no proof waited: that does no harm.
                ready!(pause.as_mut().poll(context));
                pause.as_mut().reset(Instant::now() + PAUSE);
                if node.leads_in() != Some(term) {
                    return Poll::Ready(Err(node.not_leader()));
                }
                voters.ask_again(*number);
            }
        })
        .await
        .map_err(|error: NodeError| node.succeeded(error))?;
        *clock = node.clock.now();
        // This node is one of its voters.
        if term_of(node.log.promised().unwrap_or(Ballot::ZERO)) != term {
            return Err(node.not_leader());
        }
        // Read last: a transfer that has begun is seen.
        node.refuse_resigned(term)?;
        Ok(term)
    }

    /// What the wall clocks of the voters showed in the last proof, of as many as it needed.
    pub fn voter_clocks(&self) -> VoterClocks {
        let others = self.voters.links.values().filter_map(|voter| voter.clock);
        VoterClocks { own: self.clock, others: others.collect() }
    }
}

impl Voters {
    /// Takes over the members that the node knows.
    fn follow(&mut self, node: &Node, metrics: &RaftMetrics<Commands>) {
        let membership = &metrics.membership_config;
        if self.membership.as_ref() == Some(membership.log_id()) {
            return;
        }
        self.membership = Some(*membership.log_id());
        let configurations = membership.membership().get_joint_config().iter();
        self.configurations = configurations.map(|ids| ids.iter().copied().collect()).collect();
        let others = membership.voter_ids().filter(|id| *id != node.id());
        let mut before = std::mem::take(&mut self.links);
        for id in others {
            let Some(member) = membership.membership().get_node(&id) else { continue };
            let link = before.remove(&id).map(|voter| voter.link);
            let link = link.unwrap_or_else(|| node.network.proofs(id, &member.raft));
            self.links.insert(id, Voter { link, answer: Answer::Awaited, clock: None });
        }
    }

    /// Sends the query to all that can be reached.
    fn ask(&mut self, number: u64) {
        for voter in self.links.values_mut() {
            voter.link.ask(number);
            voter.answer = Answer::Awaited;
            voter.clock = None;
        }
    }

    /// Whether a majority of each configuration has given no vote above the term.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        own: u64,
        term: u64,
        number: u64,
    ) -> Poll<Result<(), NodeError>> {
        loop {
            for voter in self.links.values_mut().filter(|voter| voter.answer == Answer::Awaited) {
                match voter.link.poll(context, number) {
                    Poll::Pending => {}
                    Poll::Ready(Some(voted)) if voted.term <= term => {
                        voter.answer = Answer::Confirmed;
                        voter.clock = Some(voted.clock);
                    }
                    // An election has begun: those that do not answer decide nothing.
                    Poll::Ready(Some(_)) => return Poll::Ready(Err(NodeError::NoQuorum)),
                    Poll::Ready(None) => voter.answer = Answer::Unreachable,
                }
            }
            match self.quorum(own) {
                Answer::Awaited => return Poll::Pending,
                Answer::Confirmed => return Poll::Ready(Ok(())),
                Answer::Unreachable if self.retry(number) => {}
                Answer::Unreachable => return Poll::Ready(Err(NodeError::NoQuorum)),
            }
        }
    }

    /// Tries those again that were left alone, once in a proof.
    fn retry(&mut self, number: u64) -> bool {
        let mut retries = false;
        for voter in self.links.values_mut() {
            if voter.link.retry(number) {
                voter.answer = Answer::Awaited;
                retries = true;
            }
        }
        retries
    }

    /// Asks those again that cannot be reached, after a pause, while others are waited for.
    fn ask_again(&mut self, number: u64) {
        for voter in self.links.values_mut() {
            if voter.answer == Answer::Unreachable && voter.link.ask_again(number) {
                voter.answer = Answer::Awaited;
            }
        }
    }

    /// What the voters say together. The caller asks this node.
    fn quorum(&self, own: u64) -> Answer {
        quorum(&self.configurations, |id| match self.links.get(&id) {
            _ if id == own => Answer::Confirmed,
            Some(voter) => voter.answer,
            None => Answer::Unreachable,
        })
    }
}

/// What a majority of each configuration says.
fn quorum(configurations: &[Vec<u64>], answer: impl Fn(u64) -> Answer) -> Answer {
    let mut all = Answer::Confirmed;
    for configuration in configurations {
        let majority = configuration.len() / 2 + 1;
        let count = |wanted| configuration.iter().filter(|id| answer(**id) == wanted).count();
        let confirmed = count(Answer::Confirmed);
        if confirmed + count(Answer::Awaited) < majority {
            return Answer::Unreachable;
        }
        if confirmed < majority {
            all = Answer::Awaited;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(configurations: &[&[u64]], confirmed: &[u64], denied: &[u64]) -> Answer {
        let configurations: Vec<_> = configurations.iter().map(|ids| ids.to_vec()).collect();
        quorum(&configurations, |id| match (confirmed.contains(&id), denied.contains(&id)) {
            (true, _) => Answer::Confirmed,
            (_, true) => Answer::Unreachable,
            _ => Answer::Awaited,
        })
    }

    #[test]
    fn a_majority_decides() {
        assert_eq!(said(&[&[1]], &[1], &[]), Answer::Confirmed);
        assert_eq!(said(&[&[1, 2]], &[1], &[]), Answer::Awaited);
        assert_eq!(said(&[&[1, 2]], &[1], &[2]), Answer::Unreachable);
        assert_eq!(said(&[&[1, 2, 3]], &[1], &[2]), Answer::Awaited);
        assert_eq!(said(&[&[1, 2, 3]], &[1, 3], &[2]), Answer::Confirmed);
        assert_eq!(said(&[&[1, 2, 3]], &[1], &[2, 3]), Answer::Unreachable);
        assert_eq!(said(&[&[1, 2, 3, 4]], &[1, 2], &[3]), Answer::Awaited);
        // A leader that has no vote.
        assert_eq!(said(&[&[2, 3, 4]], &[1, 2], &[3]), Answer::Awaited);
    }

    #[test]
    fn each_of_two_configurations_has_to_agree() {
        let joint: &[&[u64]] = &[&[1, 2, 3], &[1, 4, 5]];
        assert_eq!(said(joint, &[1, 2], &[]), Answer::Awaited);
        assert_eq!(said(joint, &[1, 2, 3], &[4, 5]), Answer::Unreachable);
        assert_eq!(said(joint, &[1, 2, 5], &[3, 4]), Answer::Confirmed);
    }
}
