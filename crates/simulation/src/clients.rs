//! Clients: each asks one node after the other, and writes down what it got.

use std::sync::Arc;

use esker_oracle::history::Call;
use esker_oracle::{OracleError, Range};
use esker_testkit::SplitMix64;
use parking_lot::Mutex;

use crate::machine::Running;

/// How long a client waits for an answer, in milliseconds. One that gives up soon asks nodes again
/// that could not answer a moment ago.
const PATIENCE: [u64; 4] = [15, 40, 150, 1_500];

/// What came back of one call: its number and the answer.
type Answer = (u64, Result<Range, OracleError>);

/// A client that waits, or pauses.
#[derive(Debug)]
struct Client {
    /// The node that answered last.
    leader: u64,
    /// When it asks again, while no call is under way.
    asks_at: u64,
    call: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    number: u64,
    node: u64,
    /// The number of the event, and when the client gives up.
    called: u64,
    until: u64,
}

/// All clients, and their history.
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
    /// When the last answer came with timestamps.
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

    /// Those whose turn it is ask this process, if it is theirs. Returns whether one did.
    ///
    /// `nodes` is the number of nodes.
    pub(crate) fn ask(&mut self, running: &Running, now: u64, nodes: u64) -> bool {
        let before = self.next;
        for client in &mut self.clients {
            if client.call.as_ref().is_some_and(|call| now > call.until) {
                client.call = None;
                client.leader = 1 + self.random.below(nodes);
            }
            if client.call.is_some() || client.asks_at > now || client.leader != running.life.node {
                continue;
            }
            let (number, count) = (self.next, 1 + self.random.below(3) as u32);
            let asked = running.spawn(&self.answers, |serving| async move {
                (number, serving.oracle.timestamps(count).await)
            });
            if asked {
                self.next += 1;
                self.events += 1;
                let node = running.life.node;
                let until = now + self.random.pick(&PATIENCE);
                client.call = Some(Asked { number, node, called: self.events, until });
            } else {
                client.leader = 1 + self.random.below(nodes);
                client.asks_at = now + 1 + self.random.below(10);
            }
        }
        self.next > before
    }

    /// Those whose node is not there ask another one.
    pub(crate) fn turn_away(&mut self, node: u64, now: u64, nodes: u64) {
        for client in &mut self.clients {
            if client.call.is_none() && client.leader == node {
                client.leader = 1 + self.random.below(nodes);
                client.asks_at = client.asks_at.max(now + 1 + self.random.below(10));
            }
        }
    }

    /// Takes the answers of the process that ran last. Those that no client waits for are lost.
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
