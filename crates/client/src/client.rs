//! The handle of a client, and its builder.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_oracle::{Range, Timestamp, TimestampWidth};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::client_thread::{self, ClientState};
use crate::connection::HTTP2;
use crate::counters::{ClientStats, add};
use crate::error::Error;
use crate::leader::Leader;
use crate::queue::Queue;
use crate::sequence_call::{SequenceCalls, SequenceReply};
use crate::sequence_error::{SequenceError, SequenceErrorKind};
use crate::sequence_request::{self, SequenceRequest};
use crate::tls_options::TlsOptions;
use crate::transport::Transport;

/// The most timestamps of a request that a node accepts.
const COUNT_MAX: u32 = 65_536;
const QUEUE_CALLERS: usize = 65_536;
const QUEUE_CALLERS_MAX: usize = 1 << 24;
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest timeout: the end of a longer one may be out of a clock's range.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
const ENDPOINTS_MAX: usize = 64;

const _: () = assert!(QUEUE_CALLERS <= QUEUE_CALLERS_MAX);
const _: () = assert!(
    CONNECT_TIMEOUT.as_millis() * 2 < CALL_TIMEOUT.as_millis(),
    "a call outlasts a node that does not answer"
);

/// Builds a [`Client`].
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    tls: Option<TlsOptions>,
    cluster: Option<String>,
    timeout: Duration,
    connect: Duration,
    queue: usize,
    count_max: u32,
}

impl ClientBuilder {
    /// Adds a node of the cluster: `http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`. One
    /// running node is enough: the client learns of the others. At most 64. The scheme of one
    /// endpoint is that of all nodes; without any it is `http`.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoints.push(endpoint.into());
        self
    }

    /// Sets the options of TLS, for `https://` endpoints. The default is [`TlsOptions::new`].
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Sets the id of the cluster, as `esker cluster status` shows it: nodes of another one are not
    /// asked. The default is that of the first node that is reached. Set it if processes must not
    /// get timestamps of different clusters by a wrong list of endpoints: those have no order.
    pub fn cluster(mut self, id: impl Into<String>) -> Self {
        self.cluster = Some(id.into());
        self
    }

    /// Sets the time that calls without a deadline may take. 5 s: an election takes 0.15 s, and a
    /// node that does not answer is given up after a second. At most a year.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time that connecting to one node may take before another one is tried. 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect = timeout;
        self
    }

    /// Sets the most callers that wait for a request; more get [`Error::Busy`]. Callers of the
    /// requests in flight do not count. 65,536, at most 2^24. A caller takes some 100 bytes. As
    /// many calls for numbers of sequences are in progress at most; one takes a few KiB.
    pub fn queue(mut self, callers: usize) -> Self {
        self.queue = callers;
        self
    }

    /// Sets the most timestamps of a request, and so of a call: at most `--max-timestamps` of the
    /// nodes. 65,536, which is also the highest value.
    pub fn max_timestamps(mut self, count: u32) -> Self {
        self.count_max = count;
        self
    }

    /// Builds the client and starts its thread. It connects with the first call.
    ///
    /// # Errors
    /// [`Error::NoEndpoint`], [`Error::InvalidEndpoint`], [`Error::MixedSchemes`],
    /// [`Error::TlsWithoutHttps`] and [`Error::InvalidOption`] for invalid options;
    /// [`Error::UnusableFile`] and [`Error::NoSystemAuthorities`] for `https://` endpoints; and
    /// [`Error::NoThread`] if the system starts no thread.
    pub fn build(self) -> Result<Client, Error> {
        let Self { endpoints, tls, cluster, timeout, connect, queue, count_max } = self;
        let checks = [
            (endpoints.len() > ENDPOINTS_MAX, "a client has at most 64 endpoints"),
            (timeout.is_zero() || timeout > TIMEOUT_MAX, "a timeout is above 0, at most a year"),
            (connect.is_zero() || connect > TIMEOUT_MAX, "a timeout is above 0, at most a year"),
            (!(1..=QUEUE_CALLERS_MAX).contains(&queue), "a queue has from 1 to 2^24 callers"),
            (!(1..=COUNT_MAX).contains(&count_max), "a request has from 1 to 65,536 timestamps"),
        ];
        if let Some((_, why)) = checks.into_iter().find(|(is_invalid, _)| *is_invalid) {
            return Err(Error::InvalidOption(why));
        }
        let (transport, addresses) = Transport::to_endpoints(endpoints, tls, HTTP2)?;
        let (sequences, queue) = (SequenceCalls::new(queue), Queue::new(queue, count_max));
        let leader = Leader::new(transport, addresses, cluster, connect);
        let state = Arc::new(ClientState { queue, leader, sequences });
        let runtime = client_thread::start(&state)?;
        Ok(Client { handle: Arc::new(ClientHandle { state, timeout, runtime }) })
    }
}

/// A client of the timestamp service. Clones share its connection and its requests; use one client
/// in a process.
///
/// Concurrent callers share requests: callers that wait while others are in flight are answered by
/// the next request, without a timer. A timestamp comes from a request that was sent after its call
/// began, so a call that begins after another one returned gets a higher timestamp, with any
/// client. No timestamp is kept for later.
///
/// The same calls return timestamps of 64 bits: [`Client::timestamp_u64`]. Those and the ones of 16
/// bytes are in one order. Callers of each share requests among themselves.
///
/// Connections and timers run on one thread of the client, which ends with the last clone. So calls
/// can be awaited on any executor, and end by their deadlines on each.
///
/// The client follows the leader, through elections too, until the deadline of the call. A request
/// whose answer was lost is repeated: the service may skip timestamps, and issues none twice.
///
/// # Cancel safety
/// A call may be dropped at any moment. Its timestamps are lost then, and no caller gets them.
#[derive(Debug, Clone)]
pub struct Client {
    handle: Arc<ClientHandle>,
}

/// The handle that clones of a client share. Its end ends the thread.
#[derive(Debug)]
struct ClientHandle {
    state: Arc<ClientState>,
    timeout: Duration,
    /// The runtime of the client's thread.
    runtime: Handle,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.state.queue.close();
    }
}

impl Client {
    /// Creates a builder with the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            endpoints: Vec::new(),
            tls: None,
            cluster: None,
            timeout: CALL_TIMEOUT,
            connect: CONNECT_TIMEOUT,
            queue: QUEUE_CALLERS,
            count_max: COUNT_MAX,
        }
    }

    /// Returns a timestamp, within the client's timeout.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment: its timestamp is lost then.
    ///
    /// # Errors
    /// [`Error::Deadline`], with the last failure, if there is no timestamp in time. At once:
    /// [`Error::Busy`], [`Error::Refused`], [`Error::NotMonotonic`], [`Error::Closed`] and
    /// [`Error::Internal`].
    pub async fn timestamp(&self) -> Result<Timestamp, Error> {
        Ok(self.timestamps(1).await?.first)
    }

    /// Returns `count` timestamps of one epoch, with consecutive indexes, within the client's
    /// timeout.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment: its timestamps are lost then.
    ///
    /// # Errors
    /// The errors of [`Client::timestamp`], and [`Error::Count`].
    pub async fn timestamps(&self, count: u32) -> Result<Range, Error> {
        self.call(count, TimestampWidth::Bits128, self.deadline()).await
    }

    /// Returns `count` timestamps of one epoch, with consecutive indexes, by this deadline. The
    /// call ends some milliseconds after it at the latest. If the deadline has passed already, the
    /// call fails at once, and nothing is sent.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment: its timestamps are lost then.
    ///
    /// # Errors
    /// The errors of [`Client::timestamp`], and [`Error::Count`].
    pub async fn timestamps_by(&self, count: u32, deadline: Instant) -> Result<Range, Error> {
        self.call_by(count, TimestampWidth::Bits128, deadline).await
    }

    /// Returns a timestamp of 64 bits, within the client's timeout: the epoch's millisecond of Unix
    /// time above 18 bits of index, as [`Timestamp::to_u64`] has it. It is below 2^63, so it fits a
    /// signed integer, too. [`Timestamp::from_u64`] returns its time and its index.
    ///
    /// It costs as much as one of 16 bytes does. An epoch has 262,143 of them; after these, a call
    /// waits for the next one, which takes some milliseconds.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment: its timestamp is lost then.
    ///
    /// # Errors
    /// The errors of [`Client::timestamp`]. Nodes of a version without timestamps of 64 bits refuse
    /// the request: [`Error::Refused`].
    pub async fn timestamp_u64(&self) -> Result<u64, Error> {
        Ok(*self.timestamps_u64(1).await?.start())
    }

    /// Returns `count` consecutive timestamps of 64 bits, within the client's timeout.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment: its timestamps are lost then.
    ///
    /// # Errors
    /// The errors of [`Client::timestamp_u64`], and [`Error::Count`].
    pub async fn timestamps_u64(&self, count: u32) -> Result<RangeInclusive<u64>, Error> {
        self.in_64_bits(self.call(count, TimestampWidth::Bits64, self.deadline()).await?)
    }

    /// Returns `count` consecutive timestamps of 64 bits by this deadline, as
    /// [`Client::timestamps_by`] does.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment: its timestamps are lost then.
    ///
    /// # Errors
    /// The errors of [`Client::timestamp_u64`], and [`Error::Count`].
    pub async fn timestamps_u64_by(
        &self,
        count: u32,
        deadline: Instant,
    ) -> Result<RangeInclusive<u64>, Error> {
        self.in_64_bits(self.call_by(count, TimestampWidth::Bits64, deadline).await?)
    }

    /// Takes the next `count` numbers of a sequence, within the client's timeout.
    ///
    /// The numbers belong to the key: a timestamp of this cluster, one for each request. The same
    /// name, count and key return the same numbers again, also from another client. Without a key
    /// the call takes a new one, and all of its attempts have that: they take numbers once.
    ///
    /// To be sure that no number is lost, take a timestamp, store it where the numbers are needed,
    /// and give it here; and after a crash, give it again. The cluster keeps the answers with the
    /// 131,072 highest keys: for 20 minutes at 100 requests a second.
    ///
    /// # Durability
    /// The numbers were durable on a majority of the nodes before they were sent.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment. Its numbers may be taken then: without a key they are
    /// lost, which is a gap in what the application uses; with one the same call returns them.
    ///
    /// # Errors
    /// [`SequenceError`]. It has the key, and says whether numbers may have been taken.
    ///
    /// # Cost
    /// A round trip to the leader, and an entry of the cluster's log on the disks of a majority.
    /// Calls do not share requests; the nodes share syncs. At most 128 requests are in flight, and
    /// the others wait. Without a key there is a timestamp before, whose request is shared.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: esker_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let key = client.timestamp().await?; // store it with the order, before the next line
    /// let numbers = client.sequence_next("invoices", 1, Some(key)).await?;
    /// println!("invoice {}", numbers.start());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn sequence_next(
        &self,
        name: &str,
        count: u32,
        key: Option<Timestamp>,
    ) -> Result<RangeInclusive<u64>, SequenceError> {
        self.sequence_next_by(name, count, key, self.deadline()).await
    }

    /// Takes the next `count` numbers of a sequence by this deadline, as [`Client::sequence_next`]
    /// does. If the deadline has passed already, the call fails at once, and nothing is sent.
    ///
    /// # Durability
    /// The numbers were durable on a majority of the nodes before they were sent.
    ///
    /// # Cancel safety
    /// The call may be dropped at any moment, as that of [`Client::sequence_next`].
    ///
    /// # Errors
    /// [`SequenceError`].
    pub async fn sequence_next_by(
        &self,
        name: &str,
        count: u32,
        key: Option<Timestamp>,
        deadline: Instant,
    ) -> Result<RangeInclusive<u64>, SequenceError> {
        let taken = match sequence_request::check(name, count) {
            Ok(()) => match key {
                Some(key) => self.take_numbers(name, count, key, deadline).await,
                // A failure is counted there.
                None => match self.call_by(1, TimestampWidth::Bits128, deadline).await {
                    Ok(range) => self.take_numbers(name, count, range.first, deadline).await,
                    Err(error) => return Err(SequenceError::without_key(error)),
                },
            },
            Err(kind) => Err(SequenceError::unsent(kind, key)),
        };
        taken.inspect_err(|_| add(&self.handle.state.leader.counters.failures, 1))
    }

    /// Takes numbers on the client's thread. Name and count were checked.
    async fn take_numbers(
        &self,
        name: &str,
        count: u32,
        key: Timestamp,
        deadline: Instant,
    ) -> SequenceReply {
        let unsent = |kind| SequenceError::unsent(kind, Some(key));
        if Instant::now() >= deadline {
            return Err(unsent(SequenceErrorKind::Deadline { last: None }));
        }
        let state = Arc::clone(&self.handle.state);
        let admitted = state.sequences.admit();
        let permit = admitted.map_err(|error| unsent(SequenceErrorKind::Client(error)))?;
        let request = SequenceRequest::new(name, count, key);
        let closed = request.error(SequenceErrorKind::Client(Error::Closed), true);
        let (reply, replied) = oneshot::channel();
        self.handle.runtime.spawn(async move {
            let ClientState { leader, sequences, .. } = &*state;
            sequences.run(leader, &request, deadline, reply).await;
            drop(permit);
        });
        replied.await.unwrap_or(Err(closed))
    }

    /// Returns the timestamps of a range in 64 bits.
    fn in_64_bits(&self, range: Range) -> Result<RangeInclusive<u64>, Error> {
        let ends = range.first.to_u64().zip(range.last().and_then(Timestamp::to_u64));
        let (first, last) = ends.ok_or_else(|| {
            self.handle.state.queue.fail("answers of 64 bits have no index of more bits")
        })?;
        Ok(first..=last)
    }

    /// Returns the deadline of a call that begins now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.handle.timeout
    }

    async fn call_by(
        &self,
        count: u32,
        width: TimestampWidth,
        deadline: Instant,
    ) -> Result<Range, Error> {
        if Instant::now() >= deadline {
            let ClientState { leader, .. } = &*self.handle.state;
            add(&leader.counters.failures, 1);
            return Err(Error::Deadline { last: leader.last_failure() });
        }
        self.call(count, width, deadline).await
    }

    async fn call(
        &self,
        count: u32,
        width: TimestampWidth,
        deadline: Instant,
    ) -> Result<Range, Error> {
        let ClientState { queue, leader, .. } = &*self.handle.state;
        let most = queue.count_max;
        let called = match (1..=most).contains(&count) {
            true => Call::new(queue, count, width, deadline).await,
            false => Err(Error::Count { count, most }),
        };
        called.map_err(|error| {
            add(&leader.counters.failures, 1);
            match error {
                Error::Deadline { last: None } => Error::Deadline { last: leader.last_failure() },
                error => error,
            }
        })
    }

    /// Returns the counters of the client.
    pub fn stats(&self) -> ClientStats {
        self.handle.state.leader.counters.snapshot()
    }
}
