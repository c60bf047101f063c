//! Addresses that a test has to know before it listens there, or again after it did.
//!
//! A port that the system chose may be taken again as soon as it is free: by the next caller, and
//! by any outgoing connection.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The first port: below those that the system chooses from.
const FIRST_PORT: u32 = 10_000;
const PORT_COUNT: u32 = 10_000;

/// An address of loopback that none of the 4096 calls before returned, nor one of another test
/// process, and that no connection comes from. All of its ports are the caller's.
pub fn own_address() -> Ipv4Addr {
    let (process, call) = (std::process::id() % 1024, next() % 4096);
    let [_, group, high, low] = (process << 12 | call).to_be_bytes();
    // Others are at 127.0.0.1 and near it.
    Ipv4Addr::new(127, 64 + group, high, low)
}

/// A port that nothing listens on, and that neither another call nor the system gives away. So is
/// the one above it, which a node takes for Raft if it is given the port of clients alone.
#[allow(clippy::expect_used, reason = "a test ends without one")]
pub fn free_port() -> u16 {
    let from = std::process::id() % 100 * 100;
    let candidates = (0..PORT_COUNT / 2).map(|_| FIRST_PORT + (from + 2 * next()) % PORT_COUNT);
    let mut candidates = candidates.filter_map(|port| u16::try_from(port).ok());
    let is_free = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    candidates.find(|port| is_free(*port) && is_free(port + 1)).expect("a free port")
}

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_and_ports_are_each_of_one_caller() {
        let addresses: HashSet<_> = (0..2000).map(|_| own_address()).collect();
        assert_eq!(addresses.len(), 2000);
        assert!(addresses.iter().all(|address| TcpListener::bind((*address, 8080)).is_ok()));
        let ports: HashSet<_> =
            (0..200).map(|_| free_port()).flat_map(|port| [port, port + 1]).collect();
        assert_eq!(ports.len(), 400);
    }
}
