//! Callers of a sequence: each sends its request again, under one key, until it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_oracle::{SequenceError, SequenceName, Timestamp};
use esker_testkit::SplitMix64;
use parking_lot::Mutex;

use crate::machine::{NodeProcess, ServingNode};

/// The times for which a caller waits for an answer, in milliseconds. One that gives up soon sends
/// requests again that are carried out meanwhile.
const CALL_TIMEOUTS_MS: [u64; 4] = [5, 15, 60, 1_500];
/// The first number.
const FIRST_NUMBER: u64 = 41;

/// The answer of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SequenceAnswer {
    /// A key for the next request.
    Key(Timestamp),
    /// The first number of the request.
    Numbers(u64),
    /// There is no sequence yet.
    Missing,
    /// The sequence is there.
    Created,
    /// Another node may answer.
    Refused,
    /// No such answer may come.
    Fault(SequenceError),
}

/// A request, the same in each try.
#[derive(Debug, Clone, Copy)]
struct NumberRequest {
    key: Timestamp,
    count: u32,
}

#[derive(Debug)]
struct Caller {
    /// The node that is asked next.
    node: u64,
    asks_at: u64,
    /// Set if the sequence has to be created first.
    creates: bool,
    request: Option<NumberRequest>,
    /// The number of the call that it waits for, and the time when it gives up.
    call: Option<(u64, u64)>,
}

/// The callers of a run, and the numbers that they took.
#[derive(Debug)]
pub(crate) struct SequenceCallers {
    callers: Vec<Caller>,
    random: SplitMix64,
    answers: Arc<Mutex<Vec<(u64, SequenceAnswer)>>>,
    next_call: u64,
    is_stopping: bool,
    /// First number and count of each request that was answered, by its key.
    taken: BTreeMap<Timestamp, (u64, u32)>,
    fault: Option<String>,
}

impl SequenceCallers {
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        let caller = |_| Caller { node: 1, asks_at: 0, creates: false, request: None, call: None };
        Self {
            callers: (0..count).map(caller).collect(),
            random: SplitMix64::new(seed),
            answers: Arc::default(),
            next_call: 0,
            is_stopping: false,
            taken: BTreeMap::new(),
            fault: None,
        }
    }

    /// The number of requests that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.taken.len() as u64
    }

    /// Begins no more requests.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Starts the calls that are due to this process. Returns whether there was one.
    pub(crate) fn ask(&mut self, running: &NodeProcess, now: u64, nodes: u64) -> bool {
        let before = self.next_call;
        for caller in &mut self.callers {
            if caller.call.is_some_and(|(_, until)| now > until) {
                caller.call = None;
                caller.node = 1 + self.random.below(nodes);
            }
            let is_done = self.is_stopping && caller.request.is_none();
            let is_asked = running.incarnation.node == caller.node && caller.asks_at <= now;
            if caller.call.is_some() || is_done || !is_asked {
                continue;
            }
            let (number, creates, request) = (self.next_call, caller.creates, caller.request);
            let asked = running.spawn(&self.answers, |serving| async move {
                (number, ask_node(&serving, creates, request).await)
            });
            if asked {
                self.next_call += 1;
                caller.call = Some((number, now + self.random.pick(&CALL_TIMEOUTS_MS)));
            } else {
                caller.node = 1 + self.random.below(nodes);
                caller.asks_at = now + 1 + self.random.below(10);
            }
        }
        self.next_call > before
    }

    /// Points the callers of a node that does not run to another node.
    pub(crate) fn turn_away(&mut self, node: u64, now: u64, nodes: u64) {
        for caller in &mut self.callers {
            if caller.node == node && caller.call.is_none_or(|(_, until)| now > until) {
                caller.call = None;
                caller.node = 1 + self.random.below(nodes);
                caller.asks_at = caller.asks_at.max(now + 1 + self.random.below(10));
            }
        }
    }

    /// Takes the answers of the process that ran last. An answer that no caller waits for is lost.
    pub(crate) fn take(&mut self, now: u64, nodes: u64) {
        let answers = std::mem::take(&mut *self.answers.lock());
        for (number, answer) in answers {
            let is_asked = |caller: &&mut Caller| caller.call.is_some_and(|(own, _)| own == number);
            let Some(caller) = self.callers.iter_mut().find(is_asked) else { continue };
            caller.call = None;
            caller.asks_at = now + 1 + self.random.below(20);
            match answer {
                SequenceAnswer::Key(key) => {
                    let count = 1 + self.random.below(3) as u32;
                    caller.request = Some(NumberRequest { key, count });
                }
                SequenceAnswer::Missing => caller.creates = true,
                SequenceAnswer::Created => caller.creates = false,
                SequenceAnswer::Refused => caller.node = 1 + self.random.below(nodes),
                SequenceAnswer::Fault(error) => {
                    self.fault.get_or_insert(format!("{:?}: {error}", caller.request));
                }
                SequenceAnswer::Numbers(first) => {
                    let Some(NumberRequest { key, count }) = caller.request else { continue };
                    let before = self.taken.insert(key, (first, count));
                    if before.is_some_and(|before| before != (first, count)) {
                        self.fault.get_or_insert(format!("{key}: {before:?}, then {first}"));
                    }
                    // Some ask again after the answer, of another node.
                    if self.is_stopping || self.random.percent(75) {
                        caller.request = None;
                    } else {
                        caller.node = 1 + self.random.below(nodes);
                    }
                }
            }
        }
    }

    /// Checks that all requests were answered, with each number once and no gap.
    ///
    /// # Errors
    /// The gap or the repeat, or the request that has no answer.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if let Some(caller) = self.callers.iter().find(|caller| caller.request.is_some()) {
            return Err(format!("no answer to {caller:?}"));
        }
        let mut taken: Vec<_> = self.taken.iter().collect();
        taken.sort_unstable_by_key(|(_, (first, _))| *first);
        let mut next = FIRST_NUMBER;
        for (key, (first, count)) in taken {
            if *first != next {
                return Err(format!("{key} has {count} numbers from {first}, and not from {next}"));
            }
            next += u64::from(*count);
        }
        Ok(())
    }
}

/// Asks a node to create the sequence, for a key, or for the numbers of a request.
async fn ask_node(
    serving: &ServingNode,
    creates: bool,
    request: Option<NumberRequest>,
) -> SequenceAnswer {
    let sequences = serving.oracle.sequences();
    let Ok(name) = "invoices".parse::<SequenceName>() else { return SequenceAnswer::Refused };
    let Some(NumberRequest { key, count }) = request else {
        return match serving.oracle.timestamps(1).await {
            Ok(range) => SequenceAnswer::Key(range.first),
            Err(_) => SequenceAnswer::Refused,
        };
    };
    let answer = match creates {
        true => sequences.create(&name, FIRST_NUMBER).await.map(|()| SequenceAnswer::Created),
        false => sequences.next(&name, count, key).await.map(SequenceAnswer::Numbers),
    };
    answer.unwrap_or_else(|error| match error {
        SequenceError::NoSequence => SequenceAnswer::Missing,
        SequenceError::Exists => SequenceAnswer::Created,
        SequenceError::Unavailable(_) | SequenceError::Busy => SequenceAnswer::Refused,
        error => SequenceAnswer::Fault(error),
    })
}
