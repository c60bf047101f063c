//! The connection to the leader, which all requests share, and its replacement when another node
//! leads.

use std::time::Duration;

use esker_oracle::{Range, Timestamp, TimestampWidth};
use parking_lot::Mutex;

use crate::address::Address;
use crate::answer::{ERROR_TEXT_CHARS_MAX, NextStep, RetryStep, excerpt};
use crate::connection::NodeConnection;
use crate::counters::{Counters, add};
use crate::error::{AttemptError, AttemptErrorKind, Error};
use crate::route::Route;
use crate::sequence_error::SequenceErrorKind;
use crate::sequence_request::{CallProgress, SequenceRequest, SequenceResult};
use crate::transport::Transport;

/// The result of a request that is not to be repeated.
pub(crate) type RequestResult = Result<Range, Error>;

/// A timestamp that was received, in the form of its width.
#[derive(Debug, Clone, Copy)]
struct ReceivedTimestamp {
    timestamp: Timestamp,
    width: TimestampWidth,
}

impl ReceivedTimestamp {
    /// Whether it is above the other one. Timestamps of different widths compare by the
    /// millisecond of the epoch, and then by the index.
    fn is_above(self, other: Self) -> bool {
        match self.width == other.width {
            true => self.timestamp > other.timestamp,
            false => self.timestamp.in_milliseconds() > other.timestamp.in_milliseconds(),
        }
    }
}

/// The leader, as far as the client knows. All requests share its connection.
#[derive(Debug)]
pub(crate) struct Leader {
    state: tokio::sync::Mutex<LeaderState>,
    /// The highest timestamp that was received.
    highest: Mutex<Option<ReceivedTimestamp>>,
    /// The last failure since the last success: see [`Leader::record_failure`].
    last_failure: Mutex<Option<AttemptError>>,
    pub(crate) counters: Counters,
    transport: Transport,
    connect_timeout: Duration,
}

#[derive(Debug)]
struct LeaderState {
    route: Route,
    connection: Option<NodeConnection>,
    /// The number of connections that were opened.
    serial: u64,
    /// The cluster that the builder names, or that of the first node that was reached.
    cluster: Option<String>,
    /// The last node that answered as the leader.
    last_server: Option<Address>,
}

impl Leader {
    /// Creates the search for a leader. A node that is not connected within `connect_timeout` is
    /// given up.
    pub(crate) fn new(
        transport: Transport,
        endpoints: Vec<Address>,
        cluster: Option<String>,
        connect_timeout: Duration,
    ) -> Self {
        let route = Route::new(endpoints);
        let state = LeaderState { route, connection: None, serial: 0, cluster, last_server: None };
        Self {
            state: state.into(),
            highest: Mutex::default(),
            last_failure: Mutex::default(),
            counters: Counters::default(),
            transport,
            connect_timeout,
        }
    }

    pub(crate) fn last_failure(&self) -> Option<AttemptError> {
        self.last_failure.lock().clone()
    }

    /// Asks once for `count` timestamps. `None`: ask again.
    pub(crate) async fn ask(&self, count: u32, width: TimestampWidth) -> Option<RequestResult> {
        let mut connection = match self.connect().await {
            Ok(connection) => connection?,
            Err(error) => return Some(Err(error)),
        };
        // Read before the request is sent: later answers may be above this one.
        let highest = *self.highest.lock();
        add(&self.counters.requests, 1);
        let step = match connection.request_timestamps(count, width).await {
            Ok(NextStep::Return(Ok(range))) => {
                return Some(self.accept(&connection, range, width, highest));
            }
            Ok(NextStep::Return(Err(kind))) => {
                return Some(Err(Error::Refused(connection.failure(kind))));
            }
            Ok(NextStep::Retry(step)) => step,
            Err(kind) => RetryStep::AnotherNode(kind),
        };
        self.prepare_retry(&connection, step).await;
        None
    }

    /// Asks once for numbers of a sequence, and records whether that may have taken numbers. Sends
    /// nothing if the call ended while the connection was made.
    ///
    /// # Errors
    /// The failure, if there was one: ask again.
    pub(crate) async fn ask_sequence(
        &self,
        request: &SequenceRequest,
        progress: &CallProgress,
    ) -> Result<SequenceResult, Option<AttemptError>> {
        let mut connection = match self.connect().await {
            Ok(Some(connection)) => connection,
            Ok(None) => return Err(self.last_failure()),
            Err(error) => return Ok(Err(SequenceErrorKind::Client(error))),
        };
        let Some(before) = progress.begin_attempt() else { return Err(None) };
        add(&self.counters.sequence_requests, 1);
        let step = match connection.request_numbers(request).await {
            Ok(answer) => {
                if !answer.may_have_taken {
                    progress.take_back_attempt(before);
                }
                answer.step
            }
            Err(kind) => NextStep::Retry(RetryStep::AnotherNode(kind)),
        };
        match step {
            NextStep::Return(result) => {
                if result.is_ok() {
                    self.record_success(&connection);
                }
                Ok(result)
            }
            NextStep::Retry(step) => Err(Some(self.prepare_retry(&connection, step).await)),
        }
    }

    /// Prepares the next attempt, and returns the failure of the last one.
    async fn prepare_retry(&self, connection: &NodeConnection, step: RetryStep) -> AttemptError {
        let (kind, leader) = match step {
            RetryStep::Leader(leader) => (AttemptErrorKind::NotLeader, Some(leader)),
            RetryStep::AnotherNode(kind) => (kind, None),
            RetryStep::SameNode(after) => {
                let failure = connection.failure(AttemptErrorKind::Overloaded);
                self.record_failure(failure.clone());
                let delay = {
                    let route = &mut self.state.lock().await.route;
                    route.record_failure(connection.address.clone());
                    route.delay()
                };
                tokio::time::sleep(after + delay).await;
                return failure;
            }
        };
        let failure = connection.failure(kind);
        self.record_failure(failure.clone());
        self.disconnect(connection, leader).await;
        failure
    }

    /// Accepts timestamps above `highest`, the highest one when their request was sent.
    fn accept(
        &self,
        connection: &NodeConnection,
        range: Range,
        width: TimestampWidth,
        highest: Option<ReceivedTimestamp>,
    ) -> RequestResult {
        let Some(last) = range.last() else {
            return Err(Error::internal("a range was checked when it was received"));
        };
        let [first, last] =
            [range.first, last].map(|timestamp| ReceivedTimestamp { timestamp, width });
        {
            let mut now = self.highest.lock();
            let fell = highest.is_some_and(|it| now.is_none_or(|now| it.is_above(now)));
            debug_assert!(!fell, "the highest timestamp never falls");
            if let Some(highest) = highest.filter(|highest| !first.is_above(*highest)) {
                let address = connection.address.to_string();
                let (got, highest) = (range.first, highest.timestamp);
                return Err(Error::NotMonotonic { address, got, highest });
            }
            if now.is_none_or(|now| last.is_above(now)) {
                *now = Some(last);
            }
        }
        add(&self.counters.batches, 1);
        add(&self.counters.timestamps, range.count.into());
        self.record_success(connection);
        Ok(range)
    }

    /// Records that a node answered as the leader.
    fn record_success(&self, connection: &NodeConnection) {
        *self.last_failure.lock() = None;
        // The request that has the lock may be connecting: this answer does not wait for it.
        let Ok(mut state) = self.state.try_lock() else { return };
        state.route.record_success();
        if state.last_server.as_ref() != Some(&connection.address) {
            let is_change = state.last_server.replace(connection.address.clone()).is_some();
            add(&self.counters.leader_changes, is_change.into());
        }
    }

    /// Records the failure of an attempt, if it says more than the last one.
    fn record_failure(&self, failure: AttemptError) {
        add(&self.counters.retries, 1);
        let mut last = self.last_failure.lock();
        if failure.replaces(last.as_ref()) {
            *last = Some(failure);
        }
    }

    /// Gives up the connection to a node that does not serve. It may have named the leader.
    async fn disconnect(&self, connection: &NodeConnection, leader: Option<Address>) {
        let mut state = self.state.lock().await;
        // Not the one that another request has opened since.
        if state.connection.as_ref().is_some_and(|kept| kept.serial == connection.serial) {
            state.connection = None;
            match leader {
                Some(leader) => state.route.follow_hint(&connection.address, leader),
                None => state.route.record_failure(connection.address.clone()),
            }
        }
    }

    /// Returns the connection, or tries once to make one. `None`: try again.
    async fn connect(&self) -> Result<Option<NodeConnection>, Error> {
        // Held while connecting: other requests wait for the same connection.
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            if !connection.is_closed() {
                return Ok(Some(connection.clone()));
            }
            // No request failed: nodes close idle connections.
            let address = connection.address.clone();
            state.connection = None;
            state.route.ask_next(address);
        }
        let delay = state.route.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let Some(address) = state.route.next() else {
            return Err(Error::internal("a client has an endpoint to ask"));
        };
        match state.open(address.clone(), self).await {
            Ok(connection) => Ok(connection),
            Err(kind) => {
                state.route.record_failure(address.clone());
                self.record_failure(AttemptError { address: address.to_string(), kind });
                Ok(None)
            }
        }
    }
}

impl LeaderState {
    /// Connects to this node. `None` if it names another one as leader, which is asked next.
    async fn open(
        &mut self,
        address: Address,
        leader: &Leader,
    ) -> Result<Option<NodeConnection>, AttemptErrorKind> {
        self.serial += 1;
        let (transport, serial) = (leader.transport.clone(), self.serial);
        let opened = NodeConnection::open(transport, address, serial, leader.connect_timeout);
        let (connection, members) = opened.await?;
        add(&leader.counters.connections, 1);
        if !members.cluster.is_empty() {
            let cluster = self.cluster.get_or_insert_with(|| members.cluster.clone());
            if *cluster != members.cluster {
                let id = excerpt(members.cluster.as_bytes(), ERROR_TEXT_CHARS_MAX);
                return Err(AttemptErrorKind::OtherCluster(id));
            }
        }
        self.route.set_members(members.all);
        if let Some(leader) = members.leader.filter(|leader| *leader != connection.address)
            && self.route.follow_member_list(leader)
        {
            return Ok(None);
        }
        self.connection = Some(connection.clone());
        Ok(Some(connection))
    }
}
