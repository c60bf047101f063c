//! Connecting to a host that has several addresses: "happy eyeballs", RFC 8305 in small.
//!
//! `esker-raft` has the same for nodes; a client does not depend on it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

/// The time after which the next address is tried beside an attempt.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The most addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Connects to `address`, a host and a port. If the host has several addresses, the first that
/// accepts a connection is used.
///
/// The families alternate, beginning with the one that the system prefers. The next address is
/// tried when an attempt fails, and beside it when it takes more than 250 ms; at most 8 are tried.
/// The caller sets the deadline: without one, an attempt ends when the system gives it up.
///
/// # Cancel safety
/// No attempt continues when the future is dropped.
///
/// # Errors
/// The error of resolving the name, or of the attempt if all fail. The message of several attempts
/// has each error with its address.
pub(crate) async fn connect(address: &str) -> io::Result<TcpStream> {
    let resolved = tokio::net::lookup_host(address).await?;
    race(alternate_families(resolved), TcpStream::connect).await
}

/// Returns the addresses to try, in their order: both families in turn, each address once.
fn alternate_families(resolved: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let mut preferred = VecDeque::new();
    let mut others = VecDeque::new();
    for address in resolved {
        let is_preferred =
            preferred.front().is_none_or(|first: &SocketAddr| first.is_ipv4() == address.is_ipv4());
        let family = if is_preferred { &mut preferred } else { &mut others };
        if !family.contains(&address) {
            family.push_back(address);
        }
    }
    let mut ordered = VecDeque::new();
    while ordered.len() < ADDRESSES_MAX
        && let Some(address) = preferred.pop_front()
    {
        ordered.push_back(address);
        std::mem::swap(&mut preferred, &mut others);
        if preferred.is_empty() {
            std::mem::swap(&mut preferred, &mut others);
        }
    }
    debug_assert!(ordered.len() <= ADDRESSES_MAX, "attempts are bounded");
    ordered
}

/// Returns the first connection to one of `addresses`.
async fn race<T, F: Future<Output = io::Result<T>>>(
    mut addresses: VecDeque<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let mut attempts = Vec::new();
    let mut failures = Vec::new();
    loop {
        match addresses.pop_front() {
            Some(address) => attempts.push((address, Box::pin(connect(address)))),
            None if attempts.is_empty() => return Err(combine_errors(failures)),
            None => {}
        }
        tokio::select! {
            biased;
            (address, attempt) = first_ended(&mut attempts) => match attempt {
                Ok(connection) => return Ok(connection),
                Err(error) => failures.push((address, error)),
            },
            () = sleep(ATTEMPT_DELAY), if !addresses.is_empty() => {}
        }
    }
}

/// Waits for an attempt to end, and removes it.
async fn first_ended<T, F: Future<Output = T>>(
    attempts: &mut Vec<(SocketAddr, Pin<Box<F>>)>,
) -> (SocketAddr, T) {
    std::future::poll_fn(|context| {
        for index in 0..attempts.len() {
            if let Poll::Ready(output) = attempts[index].1.as_mut().poll(context) {
                return Poll::Ready((attempts.remove(index).0, output));
            }
        }
        Poll::Pending
    })
    .await
}

fn combine_errors(mut failures: Vec<(SocketAddr, io::Error)>) -> io::Error {
    match failures.len() {
        0 => io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
        1 => failures.remove(0).1,
        _ => {
            let each = failures.iter().map(|(address, error)| format!("{address}: {error}"));
            let each = each.collect::<Vec<_>>().join("; ");
            io::Error::new(failures[0].1.kind(), each)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NotFound};

    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    fn addresses(hosts: &[&str]) -> VecDeque<SocketAddr> {
        hosts.iter().map(|host| host.parse().unwrap()).collect()
    }

    /// The result of a race, when it ended, and when each attempt began.
    type Outcome = (io::Result<SocketAddr>, Duration, Vec<(u16, Duration)>);

    /// Races for ports of one host. An attempt takes so many milliseconds, and then succeeds or
    /// fails.
    async fn race_of(ports: &[(u16, u64, Result<(), io::ErrorKind>)]) -> Outcome {
        let begun = Instant::now();
        let tried = Mutex::new(Vec::new());
        let host = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let raced = race(ports.iter().map(|(port, ..)| host(*port)).collect(), |address| {
            tried.lock().push((address.port(), begun.elapsed()));
            let (_, millis, outcome) = ports.iter().find(|it| it.0 == address.port()).unwrap();
            async move {
                sleep(Duration::from_millis(*millis)).await;
                outcome.map(|()| address).map_err(io::Error::from)
            }
        });
        let raced = raced.await;
        (raced, begun.elapsed(), tried.into_inner())
    }

    const NEVER: u64 = 3_600_000;

    /// A host name whose first address swallowed packets was never reached: only the first was
    /// tried until the deadline of the caller.
    #[tokio::test(start_paused = true)]
    async fn a_silent_address_does_not_hide_the_next() {
        let ports = [(1, NEVER, Ok(())), (2, NEVER, Ok(())), (3, 20, Ok(()))];
        let (connected, took, tried) = race_of(&ports).await;
        assert_eq!(connected.unwrap().port(), 3);
        assert_eq!(took, ATTEMPT_DELAY * 2 + Duration::from_millis(20));
        assert_eq!(tried, [(1, Duration::ZERO), (2, ATTEMPT_DELAY), (3, ATTEMPT_DELAY * 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_the_next_is_tried_at_once() {
        let failed = Err(ConnectionRefused);
        let (connected, took, tried) = race_of(&[(1, 5, failed), (2, 7, Ok(()))]).await;
        assert_eq!(connected.unwrap().port(), 2);
        assert_eq!(took, Duration::from_millis(12));
        assert_eq!(tried, [(1, Duration::ZERO), (2, Duration::from_millis(5))]);
    }

    /// An address that is slow is not given up for the next one.
    #[tokio::test(start_paused = true)]
    async fn the_first_connection_wins() {
        let (connected, took, tried) = race_of(&[(1, 300, Ok(())), (2, 100, Ok(()))]).await;
        assert_eq!((connected.unwrap().port(), took.as_millis(), tried.len()), (1, 300, 2));
        let (connected, _, tried) = race_of(&[(1, 249, Ok(())), (2, 0, Ok(()))]).await;
        assert_eq!((connected.unwrap().port(), tried.len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_has_each_address_that_was_tried() {
        let all = [(1, 400, Err(HostUnreachable)), (2, 5, Err(ConnectionRefused))];
        let (failed, took, _) = race_of(&all).await;
        let error = failed.unwrap_err();
        assert_eq!((error.kind(), took.as_millis()), (ConnectionRefused, 400));
        let text = error.to_string();
        assert!(text.contains("192.0.2.1:1: ") && text.contains("192.0.2.1:2: "), "{text}");
        let (one, ..) = race_of(&all[..1]).await;
        assert_eq!(one.unwrap_err().to_string(), io::Error::from(HostUnreachable).to_string());
        assert_eq!(race_of(&[]).await.0.unwrap_err().kind(), NotFound);
    }

    #[test]
    fn families_alternate_and_their_number_is_bounded() {
        let mixed = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1"];
        let expected = ["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "[2001:db8::3]:1"];
        assert_eq!(alternate_families(addresses(&mixed).into_iter()), addresses(&expected));
        let one_family = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.1:1"];
        let each_once = addresses(&one_family[..2]);
        assert_eq!(alternate_families(addresses(&one_family).into_iter()), each_once);
        let many = (0..200).map(|host| SocketAddr::from(([192, 0, 2, host], 1)));
        assert_eq!(alternate_families(many).len(), ADDRESSES_MAX);
    }

    #[tokio::test]
    async fn a_host_with_one_address_is_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = connect(&address.to_string()).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), address);
        // Bound, so that no other listener gets its port, and does not listen.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = silent.local_addr().unwrap().to_string();
        assert_eq!(connect(&address).await.unwrap_err().kind(), ConnectionRefused);
    }
}
