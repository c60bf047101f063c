//! Finding the leader, and following it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use esker_oracle::{Range, Timestamp};
use parking_lot::Mutex;

use crate::address::Address;
use crate::answer::Answer;
use crate::counters::{Counters, add};
use crate::error::{Cause, CauseKind, Error};
use crate::link::Link;
use crate::route::Route;

/// What an attempt came to, if it is not to be repeated.
pub(crate) type Ended = Result<Range, Error>;

/// The leader, as far as the client knows. All requests share its connection.
#[derive(Debug)]
pub(crate) struct Leader {
    current: tokio::sync::Mutex<Current>,
    /// The highest timestamp that was received.
    highest: Mutex<Option<Timestamp>>,
    /// The last failure since the last success.
    last: Mutex<Option<Cause>>,
    pub(crate) counters: Counters,
    connect: Duration,
}

#[derive(Debug)]
struct Current {
    route: Route,
    link: Option<Link>,
    /// Links that were opened.
    serial: u64,
    /// The cluster that the caller named, or that of the first node that was reached.
    cluster: Option<String>,
    /// The last node that answered with timestamps.
    served: Option<Address>,
}

impl Leader {
    /// A connection is given up when it is not there after `connect`.
    pub(crate) fn new(endpoints: Vec<Address>, cluster: Option<String>, connect: Duration) -> Self {
        let route = Route::new(endpoints);
        let current = Current { route, link: None, serial: 0, cluster, served: None };
        let (highest, last, counters) = (Mutex::default(), Mutex::default(), Counters::default());
        Self { current: current.into(), highest, last, counters, connect }
    }

    pub(crate) fn last(&self) -> Option<Cause> {
        self.last.lock().clone()
    }

    /// Asks once for so many timestamps. `None`: ask again.
    pub(crate) async fn ask(&self, count: u32) -> Option<Ended> {
        let mut link = self.link().await?;
        // Before it is sent: what is received from now on may be above the answer.
        let highest = *self.highest.lock();
        add(&self.counters.requests, 1);
        let answer = link.timestamps(count).await;
        let cause = |kind| Cause { address: link.address.to_string(), kind };
        match answer {
            Ok(Answer::Issued(range)) => Some(self.issued(&link, range, highest)),
            Ok(Answer::Refused(kind)) => Some(Err(Error::Refused(cause(kind)))),
            Ok(Answer::Leader(leader)) => {
                self.retry(cause(CauseKind::NotLeader));
                self.leave(&link, Some(leader)).await;
                None
            }
            Ok(Answer::Elsewhere(kind)) | Err(kind) => {
                self.retry(cause(kind));
                self.leave(&link, None).await;
                None
            }
            Ok(Answer::Later(after)) => {
                self.retry(cause(CauseKind::Overloaded));
                let delay = {
                    let route = &mut self.current.lock().await.route;
                    route.fail(link.address.clone());
                    route.delay()
                };
                tokio::time::sleep(after + delay).await;
                None
            }
        }
    }

    fn issued(&self, link: &Link, range: Range, highest: Option<Timestamp>) -> Ended {
        let last = range.last().unwrap_or(range.first);
        {
            let mut now = self.highest.lock();
            if let Some(highest) = highest.filter(|highest| range.first <= *highest) {
                let address = link.address.to_string();
                return Err(Error::WentBack { address, got: range.first, highest });
            }
            *now = (*now).max(Some(last));
        }
        *self.last.lock() = None;
        add(&self.counters.batches, 1);
        add(&self.counters.timestamps, range.count.into());
        // The request that has the lock may be connecting: these timestamps do not wait for it.
        let Ok(mut current) = self.current.try_lock() else { return Ok(range) };
        current.route.succeed();
        if current.served.as_ref() != Some(&link.address) {
            let is_change = current.served.replace(link.address.clone()).is_some();
            add(&self.counters.leader_changes, is_change.into());
        }
        Ok(range)
    }

    fn retry(&self, cause: Cause) {
        self.counters.retries.fetch_add(1, Relaxed);
        *self.last.lock() = Some(cause);
    }

    /// Gives up a connection to a node that does not serve. It may have named one that does.
    async fn leave(&self, link: &Link, leader: Option<Address>) {
        let mut current = self.current.lock().await;
        // Not the one that another request has opened since.
        if current.link.as_ref().is_some_and(|current| current.serial == link.serial) {
            current.link = None;
            match leader {
                Some(leader) => current.route.name(&link.address, leader),
                None => current.route.fail(link.address.clone()),
            }
        }
    }

    /// The connection; one attempt to make one, if there is none.
    async fn link(&self) -> Option<Link> {
        // Held while connecting: other requests wait for the same connection.
        let mut current = self.current.lock().await;
        if let Some(link) = &current.link {
            if !link.is_closed() {
                return Some(link.clone());
            }
            // No request failed: the node closes connections that are idle.
            let address = link.address.clone();
            current.link = None;
            current.route.again(address);
        }
        let delay = current.route.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let address = current.route.next()?;
        match current.open(address.clone(), self).await {
            Ok(link) => link,
            Err(kind) => {
                current.route.fail(address.clone());
                self.retry(Cause { address: address.to_string(), kind });
                None
            }
        }
    }
}

impl Current {
    /// Connects to this node. `None` if it names another one as leader, which is asked next.
    async fn open(&mut self, address: Address, of: &Leader) -> Result<Option<Link>, CauseKind> {
        self.serial += 1;
        let (link, members) = Link::open(address, self.serial, of.connect).await?;
        add(&of.counters.connections, 1);
        if !members.cluster.is_empty() {
            let cluster = self.cluster.get_or_insert_with(|| members.cluster.clone());
            if *cluster != members.cluster {
                return Err(CauseKind::OtherCluster(members.cluster));
            }
        }
        self.route.learn(members.all);
        if let Some(leader) = members.leader.filter(|leader| *leader != link.address)
            && self.route.hop(leader)
        {
            return Ok(None);
        }
        self.link = Some(link.clone());
        Ok(Some(link))
    }
}
