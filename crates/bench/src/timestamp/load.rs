//! Connections that ask, each for one answer after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_client::NodeCaller;
use esker_server::Members;
use parking_lot::Mutex;

use crate::timestamp::answer_format::AnswerFormat;
use crate::timestamp::http1;
use crate::timestamp::multiplexed::{Connection, Dialer};
use crate::timestamp::tally::{AnswerHead, CallBudget, Tally, Times};
use crate::timestamp::timestamp_arguments::{Protocol, TsBenchArguments};
use esker_command::endpoints::call_failure;
use esker_command::exit::{Failure, Outcome};

/// A request without an answer for so long has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A node that takes no connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections of paced requests.
const PACED_CONNECTIONS: u32 = 50;
/// The time between two attempts to reach a node.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(2);

/// The address of the leader, as one of these members knows it.
pub async fn find_leader(caller: &NodeCaller, patience: Duration) -> Outcome<String> {
    let deadline = Instant::now() + patience;
    let mut why = "no node was named".to_owned();
    loop {
        for member in caller.endpoints() {
            match caller.get(member, "/members", Duration::from_secs(1)).await {
                Ok(answer) => match serde_json::from_slice::<Members>(&answer.body) {
                    Ok(Members { leader: Some(leader), .. }) => return Ok(leader.addr),
                    Ok(_) => why = format!("{member} knows no leader"),
                    Err(_) => why = format!("{member} is no node of a cluster"),
                },
                Err(error) => why = call_failure(&error).message().to_owned(),
            }
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(why));
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// The load: its options and its state, which all connections share.
pub struct Load {
    protocol: Protocol,
    dialer: Dialer,
    connections: u32,
    streams: u32,
    n: u32,
    format: AnswerFormat,
    path: String,
    members: NodeCaller,
    leader: Mutex<String>,
    /// The time between two requests of one caller.
    period: Option<Duration>,
    /// The zero of the times in the history.
    pub begun: Instant,
    /// When the first request is due.
    from: Instant,
    /// When the last request was sent that was answered, of paced ones.
    last_success: Mutex<Option<Instant>>,
    budget: CallBudget,
    stop: AtomicBool,
}

impl Load {
    /// Creates the load of these members.
    pub fn new(
        arguments: &TsBenchArguments,
        dialer: Dialer,
        members: NodeCaller,
        leader: String,
    ) -> Self {
        let streams = arguments.streams();
        let callers = f64::from(arguments.connections) * f64::from(streams);
        let period = arguments.rate.map(|rate| Duration::from_secs_f64(callers / f64::from(rate)));
        Self {
            protocol: arguments.protocol,
            dialer,
            connections: arguments.connections,
            streams,
            n: arguments.n,
            format: arguments.format(),
            path: arguments.format().path(arguments.n),
            members,
            leader: Mutex::new(leader),
            period,
            begun: Instant::now(),
            from: Instant::now(),
            last_success: Mutex::new(None),
            budget: CallBudget::of_memory(),
            stop: AtomicBool::new(false),
        }
    }

    /// Requests of one timestamp each over HTTP/1.1, so many a second.
    pub fn paced(
        members: NodeCaller,
        leader: String,
        format: AnswerFormat,
        rate: u32,
        begun: Instant,
        budget: &CallBudget,
    ) -> Self {
        Self {
            protocol: Protocol::H1,
            dialer: Dialer::http2(),
            connections: PACED_CONNECTIONS,
            streams: 1,
            n: 1,
            format,
            path: format.path(1),
            members,
            leader: Mutex::new(leader),
            period: Some(Duration::from_secs_f64(
                f64::from(PACED_CONNECTIONS) / f64::from(rate.max(1)),
            )),
            begun,
            from: Instant::now(),
            last_success: Mutex::new(None),
            budget: budget.clone(),
            stop: AtomicBool::new(false),
        }
    }

    /// Fails if the leader takes no connection. Those that take one request at a time show it
    /// themselves.
    pub async fn probe(&self, patience: Duration) -> Outcome {
        if !matches!(self.protocol, Protocol::H2c | Protocol::H3) {
            return Ok(());
        }
        let leader = self.leader.lock().clone();
        let opened = self.dialer.open(&leader, &self.path);
        let why = match tokio::time::timeout(patience.min(REQUEST_TIMEOUT), opened).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".into(),
        };
        let advice = match self.protocol {
            Protocol::H3 => {
                "; does it run with --http3=off, and does it need --ca or --client-cert?"
            }
            _ => "",
        };
        let protocol = self.protocol.name();
        Err(Failure::failed(format!("no {protocol} connection to {leader}: {why}{advice}")))
    }

    /// Waits until a request that was sent after this was answered; whether one was, in time.
    pub async fn answered_since(&self, from: Instant, patience: Duration) -> bool {
        while from.elapsed() < patience {
            if self.last_success.lock().is_some_and(|called| called >= from) {
                return true;
            }
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
        false
    }

    /// Asks for so long, and returns what was seen and how long it took.
    pub async fn run(self, time: Duration) -> Outcome<(Tally, Duration)> {
        let load = Arc::new(self);
        let begun = load.begun;
        let tasks = Self::start(&load);
        tokio::time::sleep(time).await;
        let until_stop = begun.elapsed();
        let tally = load.end(tasks).await?;
        // Paced callers wait for their next turn, and send nothing then.
        Ok((tally, if load.period.is_some() { until_stop } else { begun.elapsed() }))
    }

    /// Starts the callers.
    pub fn start(load: &Arc<Self>) -> Vec<tokio::task::JoinHandle<Tally>> {
        let tally = || Tally::new(&load.budget);
        let mut tasks = Vec::new();
        for connection in 0..load.connections {
            match load.protocol {
                Protocol::H2c | Protocol::H3 => {
                    let shared = Arc::default();
                    for stream in 0..load.streams {
                        let caller = Caller::new(load, connection * load.streams + stream, tally());
                        tasks.push(tokio::spawn(caller.over_shared(Arc::clone(&shared))));
                    }
                }
                _ => {
                    let caller = Caller::new(load, connection, tally());
                    tasks.push(tokio::spawn(caller.over_http1()));
                }
            }
        }
        tasks
    }

    /// Stops the callers, and returns what all of them saw.
    pub async fn end(&self, tasks: Vec<tokio::task::JoinHandle<Tally>>) -> Outcome<Tally> {
        self.stop.store(true, Relaxed);
        let mut all = Tally::new(&self.budget);
        for task in tasks {
            match task.await {
                Ok(tally) => all.merge(tally),
                Err(error) => return Err(Failure::failed(error.to_string())),
            }
        }
        Ok(all)
    }

    /// Whether the callers should stop.
    fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// A caller, with one request at a time.
struct Caller {
    load: Arc<Load>,
    tally: Tally,
    /// The member to ask next when a node cannot be reached.
    turn: usize,
    due: Instant,
}

/// The connection that the streams of it share, and its number.
type Shared = Arc<tokio::sync::Mutex<(u64, Option<Connection>)>>;

impl Caller {
    fn new(load: &Arc<Load>, number: u32, tally: Tally) -> Self {
        // Paced callers do not ask all at once.
        let callers = load.connections * load.streams;
        let offset = load.period.unwrap_or_default() * number / callers.max(1);
        let due = load.from + offset;
        Self { load: Arc::clone(load), tally, turn: number as usize, due }
    }

    /// Waits until the next request is due.
    async fn pace(&mut self) {
        match self.load.period {
            Some(period) => {
                tokio::time::sleep_until(self.due.into()).await;
                self.due = (self.due + period)
                    .max(Instant::now().checked_sub(period * 100).unwrap_or(self.due));
            }
            None => self.due = Instant::now(),
        }
    }

    async fn over_http1(mut self) -> Tally {
        let mut connection = None;
        while !self.load.is_over() {
            self.pace().await;
            let due = self.load.period.map_or(self.due, |period| self.due - period);
            let mut again = true;
            while again && !self.load.is_over() {
                let address = self.load.leader.lock().clone();
                let Some(open) = &mut connection else {
                    let opened =
                        http1::Connection::open(&self.load.members, &address, &self.load.path);
                    match tokio::time::timeout(CONNECT_TIMEOUT, opened).await {
                        Ok(Ok(opened)) => connection = Some(opened),
                        _ => self.failed("connect", None).await,
                    }
                    continue;
                };
                let called = Instant::now();
                let exchanged = tokio::time::timeout(REQUEST_TIMEOUT, open.exchange()).await;
                let returned = Instant::now();
                let times = Times { begun: self.load.begun, due, called, returned };
                let (class, leader) = match exchanged {
                    Ok(Ok((answered, body))) => {
                        let body = open.body(body);
                        match self.seen(&answered, body, times) {
                            None => {
                                again = false;
                                continue;
                            }
                            Some(class) => (class, answered.leader),
                        }
                    }
                    Ok(Err(_)) => ("closed".into(), None),
                    Err(_) => ("timeout".into(), None),
                };
                connection = None;
                self.failed(&class, leader).await;
            }
        }
        self.tally
    }

    async fn over_shared(mut self, shared: Shared) -> Tally {
        let mut own = (0, None);
        while !self.load.is_over() {
            self.pace().await;
            let due = self.load.period.map_or(self.due, |period| self.due - period);
            let mut again = true;
            while again && !self.load.is_over() {
                let Some(open) = &mut own.1 else {
                    own = self.connected(&shared, own.0).await;
                    continue;
                };
                let called = Instant::now();
                let exchanged = tokio::time::timeout(REQUEST_TIMEOUT, open.exchange()).await;
                let returned = Instant::now();
                let times = Times { begun: self.load.begun, due, called, returned };
                let (class, leader) = match exchanged {
                    Ok(Ok((answered, body))) => match self.seen(&answered, &body, times) {
                        None => {
                            again = false;
                            continue;
                        }
                        Some(class) => (class, answered.leader),
                    },
                    Ok(Err(_)) => ("closed".into(), None),
                    Err(_) => ("timeout".into(), None),
                };
                own.1 = None;
                self.failed(&class, leader).await;
            }
        }
        self.tally
    }

    /// The shared connection: a new one, if the one of this number failed.
    async fn connected(&mut self, shared: &Shared, failed: u64) -> (u64, Option<Connection>) {
        let mut shared = shared.lock().await;
        if (shared.1.is_none() || shared.0 == failed) && !self.load.is_over() {
            let address = self.load.leader.lock().clone();
            let opened = self.load.dialer.open(&address, &self.load.path);
            match tokio::time::timeout(CONNECT_TIMEOUT, opened).await {
                Ok(Ok(opened)) => *shared = (shared.0 + 1, Some(opened)),
                _ => {
                    shared.1 = None;
                    self.failed("connect", None).await;
                }
            }
        }
        (shared.0, shared.1.clone())
    }

    /// Records an answer; what is wrong with it, if it has no timestamps.
    fn seen(&mut self, answered: &AnswerHead, body: &[u8], times: Times) -> Option<String> {
        if answered.status != 200 {
            return Some(answered.status.to_string());
        }
        match self.load.format.parse(body, self.load.n) {
            Some(range) => {
                self.tally.add(times, range);
                if self.load.period.is_some() {
                    let mut last = self.load.last_success.lock();
                    *last = (*last).max(Some(times.called));
                }
                None
            }
            None => Some("bad_body".into()),
        }
    }

    /// Counts a failure, and chooses whom to ask next.
    async fn failed(&mut self, class: &str, leader: Option<String>) {
        self.tally.fail(class);
        let is_named = leader.is_some();
        let next = leader.or_else(|| {
            self.turn += 1;
            let members = self.load.members.endpoints();
            members.get(self.turn % members.len().max(1)).cloned()
        });
        if let Some(next) = next {
            *self.load.leader.lock() = next;
        }
        if !is_named {
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
    }
}
