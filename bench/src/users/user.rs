//! A user: a connection that asks for one timestamp after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_bench::records::payload::mix;
use esker_oracle::history::Call;
use esker_oracle::{Range, Timestamp};
use tokio::time::{sleep, sleep_until};

use crate::users::connection::{Answer, Connection, Protocol};
use crate::users::stages::Plan;
use crate::users::tally::Tally;

/// The time after a failure, so that users do not spin while no node answers.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// The load: its options and its state, which all users share.
#[derive(Debug)]
pub struct Load {
    pub protocol: Protocol,
    pub plan: Plan,
    /// The mean time between an answer and the next request.
    pub think: Duration,
    /// The nodes, the leader first.
    pub nodes: Vec<String>,
    pub begun: Instant,
    pub tally: Tally,
}

/// A user, and the node that it asks.
pub struct User {
    load: Arc<Load>,
    number: u32,
    requests: u64,
    node: String,
    failures: usize,
    connection: Option<Connection>,
}

impl User {
    pub fn new(load: &Arc<Load>, number: u32) -> Self {
        let node = load.nodes.first().cloned().unwrap_or_default();
        Self { load: Arc::clone(load), number, requests: 0, node, failures: 0, connection: None }
    }

    /// Asks as long as the plan has this user, and ends with the answer to its last request.
    /// Returns whether one of its requests got a timestamp.
    pub async fn run(mut self) -> bool {
        let mut is_served = false;
        let (begin, end) = self.load.plan.presence(self.number);
        let end = self.load.begun + end;
        sleep_until((self.load.begun + begin).into()).await;
        while Instant::now() < end {
            let asked = self.ask().await;
            is_served |= asked.is_ok();
            if let Err(class) = asked {
                let stage = self.load.plan.stage_at(self.load.begun.elapsed());
                self.load.tally.failed(self.number, stage, class);
                sleep(AFTER_FAILURE).await;
            }
            if !self.load.think.is_zero() {
                let next = Instant::now() + self.think();
                sleep_until(next.min(end).into()).await;
            }
        }
        is_served
    }

    /// A pause between half and one and a half of the mean, so that users do not ask in step.
    fn think(&mut self) -> Duration {
        self.requests += 1;
        let share = (mix((u64::from(self.number) << 32) ^ self.requests) >> 40) as f64
            / (1_u64 << 24) as f64;
        self.load.think.mul_f64(0.5 + share)
    }

    /// Asks for a timestamp. A failure has a class.
    async fn ask(&mut self) -> Result<(), String> {
        let mut connection = match self.connection.take() {
            Some(open) => open,
            None => match Connection::open(self.load.protocol, &self.node).await {
                Ok(opened) => opened,
                Err(class) => {
                    self.choose(None);
                    return Err(class);
                }
            },
        };
        let called = self.load.begun.elapsed();
        match connection.get("/timestamp").await {
            Ok(answer) if answer.status == 200 => {
                let returned = self.load.begun.elapsed();
                let first = timestamp(&answer).ok_or("not a timestamp")?;
                let range = Range { first, count: 1 };
                let stage = self.load.plan.stage_at(returned);
                let [called, returned] = [called, returned].map(|time| time.as_nanos() as u64);
                let call = Call { called, returned, range };
                self.load.tally.answered(self.number, stage, call);
                self.connection = Some(connection);
                Ok(())
            }
            Ok(answer) => {
                // Only a node that does not lead is worth leaving.
                match answer.leader {
                    Some(leader) => self.choose(Some(leader)),
                    None => self.connection = Some(connection),
                }
                Err(format!("status {}", answer.status))
            }
            Err(class) => {
                self.choose(None);
                Err(class)
            }
        }
    }

    /// Asks the leader from now on, or another node if the leader is not known.
    fn choose(&mut self, leader: Option<String>) {
        self.failures += 1;
        let nodes = &self.load.nodes;
        let another = || nodes.get(self.failures % nodes.len().max(1)).cloned();
        self.node = leader.or_else(another).unwrap_or_default();
    }
}

fn timestamp(answer: &Answer) -> Option<Timestamp> {
    Some(Timestamp::from_bytes(<[u8; 16]>::try_from(&*answer.body).ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::users::stages::Scenario;
    use crate::users::tally::StageTally;

    /// A node that answers every request with this head and the next index of epoch 7.
    async fn node(head: String, body: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let next = Arc::new(AtomicU64::new(1));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (head, next) = (head.clone(), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut request = [0; 1024];
                    while stream.read(&mut request).await.is_ok_and(|len| len > 0) {
                        let index = next.fetch_add(1, Relaxed);
                        let bytes = Timestamp { epoch: 7, index }.to_bytes();
                        let head = format!("HTTP/1.1 {head}\r\ncontent-length: {body}\r\n\r\n");
                        stream.write_all(head.as_bytes()).await.unwrap();
                        stream.write_all(&bytes[..body]).await.unwrap();
                    }
                });
            }
        });
        address
    }

    /// Runs four users of these nodes for a quarter of a second.
    async fn run(nodes: Vec<String>) -> StageTally {
        let plan = Plan::new(Scenario::Few, 4, 0.002);
        let load = Arc::new(Load {
            protocol: Protocol::H1,
            tally: Tally::new(plan.stages.len(), 1000),
            plan,
            think: Duration::from_millis(2),
            nodes,
            begun: Instant::now(),
        });
        let users: Vec<_> = (0..4).map(|user| tokio::spawn(User::new(&load, user).run())).collect();
        let mut served = 0;
        for user in users {
            served += u32::from(user.await.unwrap());
        }
        let load = Arc::into_inner(load).unwrap();
        let mut all = StageTally::new();
        (0..3).for_each(|stage| all.merge(&load.tally.stage(stage)));
        let checked = load.tally.check();
        assert_eq!((checked.calls, checked.violation), (all.answered(), None));
        assert_eq!(served, if all.answered() == 0 { 0 } else { 4 });
        all
    }

    #[tokio::test]
    async fn users_follow_the_leader() {
        let leader = node("200 OK".into(), 16).await;
        let former = node(format!("409 Conflict\r\nesker-leader: {leader}"), 0).await;
        let seen = run(vec![former]).await;
        assert_eq!(seen.failed, BTreeMap::from([("status 409".into(), 4)]));
        assert!(seen.answered() > 4, "{seen:?}");
    }

    #[tokio::test]
    async fn every_answer_without_a_timestamp_is_a_failure_of_its_class() {
        let cases =
            [("503 Service Unavailable", 0, "status 503"), ("200 OK", 15, "not a timestamp")];
        for (head, body, class) in cases {
            let seen = run(vec![node(head.into(), body).await]).await;
            assert_eq!(seen.answered(), 0);
            assert!(seen.failed[class] >= 4, "{seen:?}");
            assert_eq!(seen.failed.len(), 1, "{seen:?}");
        }
    }

    #[tokio::test]
    async fn after_a_refused_connection_a_user_asks_another_node() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = listener.local_addr().unwrap().to_string();
        drop(listener);
        let seen = run(vec![closed, node("200 OK".into(), 16).await]).await;
        let refused = "connect: Connection refused (os error 111)";
        assert_eq!(seen.failed, BTreeMap::from([(refused.into(), 4)]));
        assert!(seen.answered() > 4, "{seen:?}");
    }
}
