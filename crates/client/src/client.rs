//! The handle of a client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_oracle::{Range, Timestamp};

use crate::address::Address;
use crate::call::Call;
use crate::counters::{ClientStats, add};
use crate::error::Error;
use crate::leader::Leader;
use crate::queue::Queue;
use crate::requests::{self, Shared};

/// The most timestamps of a request that a node takes.
const COUNT_MAX: u32 = 65_536;
const QUEUE: usize = 65_536;
const QUEUE_MAX: usize = 1 << 24;
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(1);
/// Longer waits have no end that a clock can name.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
const ENDPOINTS_MAX: usize = 64;

/// Builds a [`Client`].
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    cluster: Option<String>,
    timeout: Duration,
    connect: Duration,
    queue: usize,
    count_max: u32,
}

impl ClientBuilder {
    /// Adds a node of the cluster: `http://HOST:PORT`, or `HOST:PORT`. One that is up is enough:
    /// the client learns of the others. At most 64.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoints.push(endpoint.into());
        self
    }

    /// The id of the cluster, as `esker cluster status` shows it: nodes of another one are not
    /// asked. Without it, that of the first node that is reached. Name it if processes must not get
    /// timestamps of different clusters by a wrong list of endpoints: those have no order.
    pub fn cluster(mut self, id: impl Into<String>) -> Self {
        self.cluster = Some(id.into());
        self
    }

    /// The deadline of calls that have none of their own, from their beginning. 5 s: an election
    /// takes 0.15 s, and it takes a second to give up a node that does not answer. At most a year.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long connecting to one node may take before another one is tried. 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect = timeout;
        self
    }

    /// The most callers that wait for a request, those that share the requests in flight not
    /// counted; more get [`Error::Busy`]. 65,536, at most 2^24. A caller takes some 100 bytes.
    pub fn queue(mut self, callers: usize) -> Self {
        self.queue = callers;
        self
    }

    /// The most timestamps of a request, and so of a call: not above `--max-timestamps` of the
    /// nodes. 65,536, which is also the most.
    pub fn max_timestamps(mut self, count: u32) -> Self {
        self.count_max = count;
        self
    }

    /// Builds the client and starts its thread. It connects with the first call.
    ///
    /// # Errors
    /// [`Error::NoEndpoint`], [`Error::Endpoint`] and [`Error::Option`] for what cannot be, and
    /// [`Error::NoThread`] if the system gives no thread.
    pub fn build(self) -> Result<Client, Error> {
        let Self { endpoints, cluster, timeout, connect, queue, count_max } = self;
        let wrong = [
            (endpoints.len() > ENDPOINTS_MAX, "a client has at most 64 endpoints"),
            (timeout.is_zero() || timeout > TIMEOUT_MAX, "a timeout is above 0, at most a year"),
            (connect.is_zero() || connect > TIMEOUT_MAX, "a timeout is above 0, at most a year"),
            (!(1..=QUEUE_MAX).contains(&queue), "a queue has from 1 to 2^24 callers"),
            (!(1..=COUNT_MAX).contains(&count_max), "a request has from 1 to 65,536 timestamps"),
        ];
        if let Some((_, why)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(Error::Option(why));
        }
        let mut addresses = Vec::new();
        for endpoint in endpoints {
            let Some(address) = Address::of_endpoint(&endpoint) else {
                return Err(Error::Endpoint(endpoint));
            };
            addresses.push(address);
        }
        if addresses.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let (queue, leader) =
            (Queue::new(queue, count_max), Leader::new(addresses, cluster, connect));
        let shared = Arc::new(Shared { queue, leader });
        requests::start(&shared).map_err(|error| Error::NoThread(Arc::new(error)))?;
        Ok(Client { handle: Arc::new(Handle { shared, timeout }) })
    }
}

/// A client of the timestamp service. Clones share its connection and its requests; use one client
/// in a process.
///
/// Concurrent callers share requests: those that wait while others are in flight are answered by
/// the next one, without a timer. A timestamp comes from a request that was sent after its call
/// began, so a call that begins after another one returned gets a higher timestamp, from whichever
/// client. No timestamp is kept for later.
///
/// Connections and timers are on one thread of the client, which ends with the last clone. So calls
/// can be awaited on any executor, and end by their deadlines on each.
///
/// The client follows the leader, through elections too, until the deadline of the call. A request
/// whose answer was lost is repeated: the service may skip timestamps, and issues none twice.
///
/// # Cancel safety
/// A call may be dropped at any moment. Its timestamps are lost then, and no caller gets them.
#[derive(Debug, Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    timeout: Duration,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

impl Client {
    /// A builder with the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            endpoints: Vec::new(),
            cluster: None,
            timeout: TIMEOUT,
            connect: CONNECT,
            queue: QUEUE,
            count_max: COUNT_MAX,
        }
    }

    /// A timestamp, within the client's timeout.
    ///
    /// # Cancel safety
    /// As the client's: a timestamp that is not received is lost.
    ///
    /// # Errors
    /// [`Error::Deadline`], with the last failure, if there is no timestamp in time. At once:
    /// [`Error::Busy`], [`Error::Refused`], [`Error::WentBack`] and [`Error::Closed`].
    pub async fn timestamp(&self) -> Result<Timestamp, Error> {
        Ok(self.timestamps(1).await?.first)
    }

    /// So many timestamps of one epoch, with consecutive indexes, within the client's timeout.
    ///
    /// # Cancel safety
    /// As the client's: timestamps that are not received are lost.
    ///
    /// # Errors
    /// Those of [`Client::timestamp`], and [`Error::Count`].
    pub async fn timestamps(&self, count: u32) -> Result<Range, Error> {
        self.call(count, Instant::now() + self.handle.timeout).await
    }

    /// So many timestamps of one epoch, with consecutive indexes, by this deadline. That it has
    /// passed is noticed up to some milliseconds later. A deadline that has passed is an error at
    /// once, and nothing is sent.
    ///
    /// # Cancel safety
    /// As the client's: timestamps that are not received are lost.
    ///
    /// # Errors
    /// Those of [`Client::timestamp`], and [`Error::Count`].
    pub async fn timestamps_by(&self, count: u32, deadline: Instant) -> Result<Range, Error> {
        if Instant::now() >= deadline {
            let Shared { leader, .. } = &*self.handle.shared;
            add(&leader.counters.failures, 1);
            return Err(Error::Deadline { last: leader.last() });
        }
        self.call(count, deadline).await
    }

    async fn call(&self, count: u32, deadline: Instant) -> Result<Range, Error> {
        let Shared { queue, leader } = &*self.handle.shared;
        let most = queue.count_max;
        let called = match (1..=most).contains(&count) {
            true => Call::new(queue, count, deadline).await,
            false => Err(Error::Count { count, most }),
        };
        called.map_err(|error| {
            add(&leader.counters.failures, 1);
            match error {
                Error::Deadline { last: None } => Error::Deadline { last: leader.last() },
                error => error,
            }
        })
    }

    /// What the client has done.
    pub fn stats(&self) -> ClientStats {
        self.handle.shared.leader.counters.now()
    }
}
