//! Which node is asked next, and when. No I/O and no clock.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::address::Address;

/// The wait after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(100);
/// So many nodes in a row may name another leader, before that counts as a failure.
const NAMED_MAX: u32 = 2;

/// Which node is asked next: the one that was named as leader, or the known ones in turn.
#[derive(Debug)]
pub(crate) struct Route {
    endpoints: Vec<Address>,
    members: Vec<Address>,
    named: Option<Address>,
    /// The node that failed last: it is not asked again while there are others.
    failed: Option<Address>,
    turn: usize,
    failures: u32,
    names: u32,
    jitter: u64,
}

impl Route {
    /// `endpoints` is not empty.
    pub(crate) fn new(endpoints: Vec<Address>) -> Self {
        let jitter = RandomState::new().hash_one(0) | 1;
        let (members, turn) = (Vec::new(), jitter as usize % endpoints.len().max(1));
        let (named, failed, failures, names) = (None, None, 0, 0);
        Self { endpoints, members, named, failed, turn, failures, names, jitter }
    }

    /// The members of the cluster, as a node knows them.
    pub(crate) fn learn(&mut self, mut members: Vec<Address>) {
        members.retain(|member| !self.endpoints.contains(member));
        self.members = members;
    }

    /// The node to ask. `None` without any endpoint.
    pub(crate) fn next(&mut self) -> Option<Address> {
        if let Some(named) = self.named.take() {
            return Some(named);
        }
        let known = self.endpoints.len() + self.members.len();
        for _ in 0..known {
            let at = self.turn % known;
            self.turn = at + 1;
            let address =
                self.endpoints.get(at).or_else(|| self.members.get(at - self.endpoints.len()));
            if known == 1 || address != self.failed.as_ref() {
                return address.cloned();
            }
        }
        self.failed.clone()
    }

    /// A node named this one as leader. It is asked next, unless it has just failed.
    pub(crate) fn name(&mut self, by: &Address, leader: Address) {
        self.names += 1;
        if self.failed.as_ref() == Some(&leader) || *by == leader {
            self.fail(by.clone());
        } else {
            self.named = Some(leader);
            self.failures += u32::from(self.names > NAMED_MAX);
        }
    }

    /// The members of the cluster say that this node leads. Whether to ask it, rather than the one
    /// that said so: not if it has just failed, since clients may reach it elsewhere only.
    pub(crate) fn hop(&mut self, leader: Address) -> bool {
        let hops = self.failed.as_ref() != Some(&leader) && self.names < NAMED_MAX;
        if hops {
            self.names += 1;
            self.named = Some(leader);
        }
        hops
    }

    /// This node is asked next.
    pub(crate) fn again(&mut self, address: Address) {
        self.named = Some(address);
    }

    /// This node has no timestamps.
    pub(crate) fn fail(&mut self, address: Address) {
        self.failed = Some(address);
        self.failures += 1;
    }

    /// A node has answered with timestamps.
    pub(crate) fn succeed(&mut self) {
        (self.failed, self.failures, self.names) = (None, 0, 0);
    }

    /// How long to wait before the next attempt: between half of it and all of it, so that clients
    /// do not come at the same time.
    pub(crate) fn delay(&mut self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else { return Duration::ZERO };
        let longest = FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST);
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        longest.mul_f64(0.5 + (self.jitter % 1024) as f64 / 2048.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn address(text: &str) -> Address {
        Address::of_node(text).unwrap()
    }

    fn route(endpoints: &[&str], members: &[&str]) -> Route {
        let mut route = Route::new(endpoints.iter().map(|text| address(text)).collect());
        route.learn(members.iter().map(|text| address(text)).collect());
        route
    }

    #[test]
    fn all_known_nodes_are_asked_in_turn_and_the_named_one_first() {
        let mut route = route(&["a:1", "b:1"], &["b:1", "c:1"]);
        let mut asked: Vec<_> = (0..3).map(|_| route.next().unwrap().to_string()).collect();
        asked.sort();
        assert_eq!(asked, ["a:1", "b:1", "c:1"]);
        route.name(&address("a:1"), address("d:1"));
        assert_eq!(route.next(), Some(address("d:1")));
        assert_ne!(route.next(), Some(address("d:1")));
    }

    #[test]
    fn another_node_is_asked_first_after_a_failure() {
        let mut both = route(&["a:1"], &["b:1"]);
        for _ in 0..9 {
            // Whosever turn it is.
            both.fail(address("b:1"));
            assert_eq!(both.next(), Some(address("a:1")));
        }
        let mut alone = route(&["a:1"], &[]);
        alone.fail(address("a:1"));
        assert_eq!(alone.next(), Some(address("a:1")));
        assert_eq!(Route::new(Vec::new()).next(), None);
    }

    #[test]
    fn a_leader_that_has_just_failed_is_not_asked_at_once() {
        let mut route = route(&["a:1", "b:1", "c:1"], &[]);
        route.fail(address("a:1"));
        route.name(&address("b:1"), address("a:1"));
        let next = route.next().unwrap();
        assert_ne!(next, address("b:1"));
        route.name(&next, next.clone());
        assert_ne!(route.next(), Some(next));
    }

    /// Waits grow to their bound, also when nodes name one another for ever.
    #[test]
    fn every_attempt_but_the_first_ones_waits() {
        let mut named = route(&["a:1", "b:1"], &[]);
        let mut waits = Vec::new();
        for turn in 0..20 {
            let pair = [address("a:1"), address("b:1")];
            named.name(&pair[turn % 2], pair[(turn + 1) % 2].clone());
            waits.push(named.delay());
        }
        assert_eq!(waits[..2], [Duration::ZERO; 2]);
        assert!(waits[2] >= FIRST / 2);
        assert!(waits[10..].iter().all(|wait| *wait >= LONGEST / 2 && *wait <= LONGEST));
        let mut failing = route(&["a:1", "b:1"], &[]);
        failing.fail(address("a:1"));
        assert!(failing.delay() >= FIRST / 2 && failing.delay() <= FIRST);
        for _ in 0..1000 {
            failing.fail(address("a:1"));
        }
        let waits: Vec<_> = (0..100).map(|_| failing.delay()).collect();
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        failing.succeed();
        assert_eq!(failing.delay(), Duration::ZERO);
    }
}
