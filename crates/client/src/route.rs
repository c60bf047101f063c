//! The order in which nodes are asked, and the waits between attempts. No I/O and no clock.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::address::Address;

/// The wait after the first failure. It doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(4);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(100);
/// The number of nodes in a row that may name another leader before that counts as a failure.
const LEADER_HINTS_MAX: u32 = 2;

const _: () = assert!(FIRST_RETRY_DELAY.as_millis() <= RETRY_DELAY_MAX.as_millis());

/// The order in which nodes are asked: first the one that was named as leader, then the known ones
/// in turn.
#[derive(Debug)]
pub(crate) struct Route {
    endpoints: Vec<Address>,
    members: Vec<Address>,
    /// The node to ask next, if it is known.
    next: Option<Address>,
    /// The node that failed last: it is not asked again while there are others.
    failed: Option<Address>,
    turn: usize,
    failures: u32,
    /// The number of leaders that were named since the last success.
    hints: u32,
    jitter: u64,
}

impl Route {
    /// Creates the route of a client with these endpoints.
    pub(crate) fn new(endpoints: Vec<Address>) -> Self {
        let jitter = RandomState::new().hash_one(0) | 1;
        let turn = jitter as usize % endpoints.len().max(1);
        Self {
            endpoints,
            members: Vec::new(),
            next: None,
            failed: None,
            turn,
            failures: 0,
            hints: 0,
            jitter,
        }
    }

    /// Sets the members of the cluster, as a node knows them.
    pub(crate) fn set_members(&mut self, mut members: Vec<Address>) {
        members.retain(|member| !self.endpoints.contains(member));
        self.members = members;
    }

    /// Returns the node to ask. `None` without any endpoint.
    pub(crate) fn next(&mut self) -> Option<Address> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let known = self.endpoints.len() + self.members.len();
        for _ in 0..known {
            let at = self.turn % known;
            self.turn = at + 1;
            let address =
                self.endpoints.get(at).or_else(|| self.members.get(at - self.endpoints.len()));
            debug_assert!(address.is_some(), "each turn has an address");
            if known == 1 || address != self.failed.as_ref() {
                return address.cloned();
            }
        }
        self.failed.clone()
    }

    /// Asks `leader` next, which `by` names, unless it has just failed.
    pub(crate) fn follow_hint(&mut self, by: &Address, leader: Address) {
        self.hints += 1;
        if self.failed.as_ref() == Some(&leader) || *by == leader {
            self.record_failure(by.clone());
        } else {
            self.next = Some(leader);
            self.failures += u32::from(self.hints > LEADER_HINTS_MAX);
        }
    }

    /// Asks `leader` next, which a list of members names, and returns whether it does. Not if it
    /// has just failed, since clients may reach it at another address only.
    pub(crate) fn follow_member_list(&mut self, leader: Address) -> bool {
        let follows = self.failed.as_ref() != Some(&leader) && self.hints < LEADER_HINTS_MAX;
        if follows {
            self.hints += 1;
            self.next = Some(leader);
        }
        follows
    }

    /// Asks this node next.
    pub(crate) fn ask_next(&mut self, address: Address) {
        self.next = Some(address);
    }

    /// Records that this node has no timestamps.
    pub(crate) fn record_failure(&mut self, address: Address) {
        self.failed = Some(address);
        self.failures += 1;
    }

    /// Records that a node answered with timestamps.
    pub(crate) fn record_success(&mut self) {
        (self.failed, self.failures, self.hints) = (None, 0, 0);
    }

    /// Returns the wait before the next attempt: between half of it and all of it, so that clients
    /// do not ask at the same time.
    pub(crate) fn delay(&mut self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else { return Duration::ZERO };
        let longest = (FIRST_RETRY_DELAY * (1 << doublings.min(16))).min(RETRY_DELAY_MAX);
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let delay = longest.mul_f64(0.5 + (self.jitter % 1024) as f64 / 2048.0);
        debug_assert!(delay <= RETRY_DELAY_MAX, "waits are bounded");
        delay
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn address(text: &str) -> Address {
        Address::from_node(text).unwrap()
    }

    fn route(endpoints: &[&str], members: &[&str]) -> Route {
        let mut route = Route::new(endpoints.iter().map(|text| address(text)).collect());
        route.set_members(members.iter().map(|text| address(text)).collect());
        route
    }

    #[test]
    fn all_known_nodes_are_asked_in_turn_and_the_named_one_first() {
        let mut route = route(&["a:1", "b:1"], &["b:1", "c:1"]);
        let mut asked: Vec<_> = (0..3).map(|_| route.next().unwrap().to_string()).collect();
        asked.sort();
        assert_eq!(asked, ["a:1", "b:1", "c:1"]);
        route.follow_hint(&address("a:1"), address("d:1"));
        assert_eq!(route.next(), Some(address("d:1")));
        assert_ne!(route.next(), Some(address("d:1")));
    }

    #[test]
    fn another_node_is_asked_first_after_a_failure() {
        let mut both = route(&["a:1"], &["b:1"]);
        for _ in 0..9 {
            // Independent of the turn.
            both.record_failure(address("b:1"));
            assert_eq!(both.next(), Some(address("a:1")));
        }
        let mut alone = route(&["a:1"], &[]);
        alone.record_failure(address("a:1"));
        assert_eq!(alone.next(), Some(address("a:1")));
        assert_eq!(Route::new(Vec::new()).next(), None);
    }

    #[test]
    fn a_leader_that_has_just_failed_is_not_asked_at_once() {
        let mut route = route(&["a:1", "b:1", "c:1"], &[]);
        route.record_failure(address("a:1"));
        route.follow_hint(&address("b:1"), address("a:1"));
        let next = route.next().unwrap();
        assert_ne!(next, address("b:1"));
        route.follow_hint(&next, next.clone());
        assert_ne!(route.next(), Some(next));
    }

    /// Waits grow to their bound, also when nodes name one another for ever.
    #[test]
    fn every_attempt_but_the_first_ones_waits() {
        let mut named = route(&["a:1", "b:1"], &[]);
        let mut waits = Vec::new();
        for turn in 0..20 {
            let pair = [address("a:1"), address("b:1")];
            named.follow_hint(&pair[turn % 2], pair[(turn + 1) % 2].clone());
            waits.push(named.delay());
        }
        assert_eq!(waits[..2], [Duration::ZERO; 2]);
        assert!(waits[2] >= FIRST_RETRY_DELAY / 2);
        assert!(
            waits[10..].iter().all(|wait| *wait >= RETRY_DELAY_MAX / 2 && *wait <= RETRY_DELAY_MAX)
        );
        let mut failing = route(&["a:1", "b:1"], &[]);
        failing.record_failure(address("a:1"));
        assert!(failing.delay() >= FIRST_RETRY_DELAY / 2 && failing.delay() <= FIRST_RETRY_DELAY);
        for _ in 0..1000 {
            failing.record_failure(address("a:1"));
        }
        let waits: Vec<_> = (0..100).map(|_| failing.delay()).collect();
        assert!(waits.iter().all(|wait| *wait <= RETRY_DELAY_MAX));
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        failing.record_success();
        assert_eq!(failing.delay(), Duration::ZERO);
    }
}
