//! Clients that record every call, and the check of what they got.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_oracle::history::{Call, check};
use esker_oracle::{Range, Timestamp};
use esker_server::ask;
use tokio::task::JoinHandle;

use crate::nodes::LONG;

const CLIENTS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(2);

pub struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Vec<Call>>>,
}

impl Clients {
    /// Half of them follow the leader, the others ask all nodes in turn: while a leader is stopped,
    /// they are on both sides.
    pub fn of(addresses: &[String]) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        let tasks = (0..CLIENTS).map(|number| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let addresses = addresses.to_vec();
            tokio::spawn(async move {
                let mut calls = Vec::new();
                let mut turn = number;
                let mut address = addresses[turn % addresses.len()].clone();
                let now = || begun.elapsed().as_nanos() as u64;
                let count = if number % 4 == 0 { 100 } else { 1 };
                while !stop.load(SeqCst) {
                    let called = now();
                    let path = format!("/timestamp?n={count}");
                    let answer = ask(&address, &path, None, PATIENCE).await;
                    let returned = now();
                    turn += 1;
                    let next = addresses[turn % addresses.len()].clone();
                    match answer {
                        Ok(answer) if answer.status == 200 => {
                            let range = range(&answer.body, count);
                            calls.push(Call { called, returned, range });
                            answered.fetch_add(1, SeqCst);
                            if number % 2 == 1 {
                                address = next;
                            }
                        }
                        Ok(answer) => {
                            let leader = answer.leader().map(ToOwned::to_owned);
                            address = leader.filter(|_| number % 2 == 0).unwrap_or(next);
                        }
                        Err(_) => address = next,
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                calls
            })
        });
        let tasks = tasks.collect();
        Self { stop, answered, tasks }
    }

    /// Waits until so many more calls were answered.
    pub async fn progress(&self, more: u64) {
        let (deadline, end) = (Instant::now() + LONG, self.answered.load(SeqCst) + more);
        while self.answered.load(SeqCst) < end {
            assert!(Instant::now() < deadline, "no timestamps");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops them, and checks what they got.
    pub async fn check(self) {
        self.stop.store(true, SeqCst);
        let mut calls = Vec::new();
        for task in self.tasks {
            calls.extend(task.await.unwrap());
        }
        check(&calls).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// All timestamps of an answer: of one epoch, with consecutive indexes.
fn range(body: &[u8], count: u32) -> Range {
    let at = |chunk: &[u8]| Timestamp::from_bytes(chunk.try_into().unwrap());
    let range = Range { first: at(&body[..16]), count };
    let all: Vec<_> = body.chunks(16).map(at).collect();
    assert!(all.iter().copied().eq(range.timestamps()), "{all:?}");
    range
}
