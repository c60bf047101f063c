//! Clients: each asks one node after the other, and records the answers.

use std::sync::Arc;

use esker_oracle::history::Call;
use esker_oracle::{OracleError, Range, TimestampWidth};
use esker_testkit::SplitMix64;
use parking_lot::Mutex;

use crate::machine::NodeProcess;

/// The times for which a client waits for an answer, in milliseconds. A client that gives up soon
/// asks nodes again that could not answer a moment ago.
const CALL_TIMEOUTS_MS: [u64; 4] = [15, 40, 150, 1_500];

/// The answer to a call, with the number of the call.
type Answer = (u64, Result<Range, OracleError>);

/// A client that waits, or pauses.
#[derive(Debug)]
struct Client {
    /// The node that answered last.
    leader: u64,
    /// The time of the next call, while no call is under way.
    asks_at: u64,
    call: Option<PendingCall>,
}

/// A call that a client waits for.
#[derive(Debug)]
struct PendingCall {
    number: u64,
    node: u64,
    /// The number of the event, and the time when the client gives up.
    called: u64,
    until: u64,
}

/// The clients of a run, and their history.
#[derive(Debug)]
pub(crate) struct Clients {
    clients: Vec<Client>,
    random: SplitMix64,
    answers: Arc<Mutex<Vec<Answer>>>,
    /// The numbers of calls, and of events: a call that begins after another has returned has a
    /// higher one.
    next: u64,
    events: u64,
    /// The longest pause between two calls of a client, in milliseconds.
    pub(crate) pause: u64,
    pub(crate) history: Vec<Call>,
    pub(crate) refused: u64,
    /// The time of the last answer with timestamps.
    pub(crate) answered_at: u64,
}

impl Clients {
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        let client = |_| Client { leader: 1, asks_at: 0, call: None };
        Self {
            clients: (0..count).map(client).collect(),
            random: SplitMix64::new(seed),
            answers: Arc::default(),
            next: 0,
            events: 0,
            pause: 20,
            history: Vec::new(),
            refused: 0,
            answered_at: 0,
        }
    }

    /// Starts the calls that are due to this process. Returns whether there was one.
    ///
    /// `nodes` is the number of nodes.
    pub(crate) fn ask(&mut self, running: &NodeProcess, now: u64, nodes: u64) -> bool {
        let before = self.next;
        for client in &mut self.clients {
            if client.call.as_ref().is_some_and(|call| now > call.until) {
                client.call = None;
                client.leader = 1 + self.random.below(nodes);
            }
            if client.call.is_some()
                || client.asks_at > now
                || client.leader != running.incarnation.node
            {
                continue;
            }
            let (number, count) = (self.next, 1 + self.random.below(3) as u32);
            let width = match self.random.percent(40) {
                true => TimestampWidth::Bits64,
                false => TimestampWidth::Bits128,
            };
            let asked = running.spawn(&self.answers, |serving| async move {
                (number, serving.oracle.timestamps_of_width(count, width).await)
            });
            if asked {
                self.next += 1;
                self.events += 1;
                let node = running.incarnation.node;
                let until = now + self.random.pick(&CALL_TIMEOUTS_MS);
                client.call = Some(PendingCall { number, node, called: self.events, until });
            } else {
                client.leader = 1 + self.random.below(nodes);
                client.asks_at = now + 1 + self.random.below(10);
            }
        }
        self.next > before
    }

    /// Points the clients of a node that does not run to another node.
    pub(crate) fn turn_away(&mut self, node: u64, now: u64, nodes: u64) {
        for client in &mut self.clients {
            if client.call.is_none() && client.leader == node {
                client.leader = 1 + self.random.below(nodes);
                client.asks_at = client.asks_at.max(now + 1 + self.random.below(10));
            }
        }
    }

    /// Takes the answers of the process that ran last. An answer that no client waits for is lost.
    pub(crate) fn take(&mut self, now: u64, nodes: u64) -> usize {
        let answers = std::mem::take(&mut *self.answers.lock());
        self.events += 1;
        let taken = answers.len();
        for (number, answer) in answers {
            let mut clients = self.clients.iter_mut();
            let is_asked = |client: &&mut Client| {
                client.call.as_ref().is_some_and(|call| call.number == number)
            };
            let Some(client) = clients.find(is_asked) else { continue };
            let Some(call) = client.call.take() else { continue };
            match answer {
                Ok(range) => {
                    self.answered_at = now;
                    let returned = self.events;
                    self.history.push(Call { called: call.called, returned, range });
                    client.asks_at = now + self.random.below(self.pause);
                    // One that led a moment ago may still take itself for the leader.
                    client.leader = match self.random.percent(10) {
                        true => 1 + self.random.below(nodes),
                        false => call.node,
                    };
                }
                Err(_) => {
                    self.refused += 1;
                    client.leader = 1 + self.random.below(nodes);
                    client.asks_at = now + 1 + self.random.below(20);
                }
            }
        }
        taken
    }
}
