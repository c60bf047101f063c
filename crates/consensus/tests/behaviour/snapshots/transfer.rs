//! Shipping a snapshot to another replica over a stream that is slow, breaks or lies.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;
use std::sync::Arc;

use esker_consensus::{ConsensusLog, Mode, Slot, SnapshotInfo, StorageError, TransferError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

use crate::fixture::{Setting, log};
use crate::snapshots::{Machine, commit, create, slots_of};

const STATE: usize = (9 << 20) + 12_345;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn state() -> Vec<u8> {
    (0..STATE as u64).map(|at| (at / 251 + at * 13) as u8).collect()
}

/// A replica with a snapshot at slot 4, and an empty one.
fn two() -> (Setting, Setting) {
    let (from, to) = (log(Mode::Durable), log(Mode::Durable));
    commit(&from, 0..6);
    from.log.snapshots().create(Slot(4), &*state()).unwrap();
    (from, to)
}

async fn ship(
    from: &ConsensusLog,
    to: &ConsensusLog,
) -> (Result<(), TransferError>, Result<SnapshotInfo, TransferError>) {
    let (mut here, mut there) = duplex(10_000);
    let latest = from.snapshots().latest().unwrap();
    let sent = async {
        let outcome = latest.send(&mut here).await;
        drop(here);
        outcome
    };
    let received = async {
        let outcome = to.snapshots().receive(&mut there).await;
        drop(there);
        outcome
    };
    tokio::join!(sent, received)
}

/// Copies this many bytes, and then ends both directions.
async fn relay(mut from: DuplexStream, mut to: DuplexStream, mut most: usize, flip: Option<usize>) {
    let (mut forth, mut back) = ([0; 7000], [0; 100]);
    let mut copied = 0;
    while most > 0 {
        tokio::select! {
            read = from.read(&mut forth) => {
                let Ok(read @ 1..) = read else { return };
                let read = read.min(most);
                if let Some(at) = flip.filter(|at| (copied..copied + read).contains(at)) {
                    forth[at - copied] ^= 1;
                }
                if to.write_all(&forth[..read]).await.is_err() {
                    return;
                }
                (copied, most) = (copied + read, most - read);
            }
            read = to.read(&mut back) => {
                let Ok(read @ 1..) = read else { return };
                if from.write_all(&back[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Ships through a relay. Returns both outcomes.
fn ship_through(
    from: &Setting,
    to: &Setting,
    most: usize,
    flip: Option<usize>,
) -> (Result<(), TransferError>, Result<SnapshotInfo, TransferError>) {
    block_on(async {
        let ((mut here, left), (right, mut there)) = (duplex(10_000), duplex(10_000));
        let latest = from.log.snapshots().latest().unwrap();
        let sent = async {
            let outcome = latest.send(&mut here).await;
            drop(here);
            outcome
        };
        let received = async {
            let outcome = to.log.snapshots().receive(&mut there).await;
            drop(there);
            outcome
        };
        let (sent, received, ()) = tokio::join!(sent, received, relay(left, right, most, flip));
        (sent, received)
    })
}

fn content(log: &ConsensusLog) -> Vec<u8> {
    let mut bytes = Vec::new();
    log.snapshots().latest().unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// A replica that was far behind catches up: snapshot, then the entries after it.
#[test]
fn a_new_replica_starts_from_a_shipped_snapshot() {
    let (from, to) = (log(Mode::Durable), log(Mode::Durable));
    commit(&from, 0..40);
    create(&from.log, 29).unwrap();
    from.log.snapshots().truncate_through(Slot(29)).unwrap();
    let (sent, received) = block_on(ship(&from.log, &to.log));
    sent.unwrap();
    assert_eq!(received.unwrap(), from.log.snapshots().info(Slot(29)).unwrap());
    let (machine, restored) = Machine::restore(&to.log).unwrap();
    assert_eq!((machine, restored.next), (Machine::after(30), Slot(30)));
    assert_eq!((to.log.floor(), to.log.frontier()), (Some(Slot(29)), Some(Slot(29))));
    commit(&to, 30..40);
    let to = to.kill(Mode::Durable);
    assert_eq!(Machine::restore(&to.log).unwrap().0, Machine::after(40));
}

/// Wherever the stream breaks, nothing is published, and the next one asks for the rest only.
#[test]
fn a_torn_shipment_continues_where_it_stopped() {
    let (from, to) = two();
    let total = 4096 + STATE + 5 * 32;
    // The second continues with the second chunk, and the third with the fourth.
    for torn in [0, 4000, 4096, 3 << 20, (4 << 20) + 10_000] {
        let (sent, received) = ship_through(&from, &to, torn, None);
        assert!(
            matches!(sent, Err(TransferError::Transfer { .. } | TransferError::Stream(_))),
            "{sent:?}"
        );
        let torn =
            matches!(received, Err(TransferError::Transfer { .. } | TransferError::Stream(_)));
        assert!(torn, "{received:?}");
        assert!(slots_of(&to.log).is_empty());
    }
    // Three chunks are there: all bytes but theirs are enough.
    let rest = total - 3 * (2 << 20);
    let (sent, received) = ship_through(&from, &to, rest, None);
    // The relay ends with the last byte, so that only the confirmation is lost.
    assert!(matches!(sent, Err(TransferError::Transfer { .. })), "{sent:?}");
    let before = format!("{received:?}");
    let (sent, received) = ship_through(&from, &to, 4097, None);
    assert!(sent.is_ok(), "{sent:?}, {received:?}; before: {before}");
    assert_eq!(received.unwrap().len, STATE as u64);
    assert!(content(&to.log) == state());
}

#[test]
fn a_flipped_bit_on_the_way_is_refused() {
    for at in [0, 20, 4000, 4096, 4100, 4096 + 40_000, 4096 + (2 << 20) + 5, 4096 + (9 << 20)] {
        let (from, to) = two();
        let (sent, received) = ship_through(&from, &to, usize::MAX, Some(at));
        assert!(sent.is_err());
        assert!(matches!(received, Err(TransferError::Transfer { .. })), "byte {at}: {received:?}");
        assert!(slots_of(&to.log).is_empty());
        let (sent, received) = ship_through(&from, &to, usize::MAX, None);
        sent.and(received.map(drop)).unwrap();
        assert!(content(&to.log) == state());
    }
}

/// A stream of any bytes.
#[test]
fn nonsense_is_refused_by_both_sides() {
    let (from, to) = two();
    block_on(async {
        for nonsense in [vec![0; 5000], vec![255; 4096], b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
            let (mut here, mut there) = duplex(10_000);
            here.write_all(&nonsense).await.unwrap();
            here.shutdown().await.unwrap();
            let refused = to.log.snapshots().receive(&mut there).await;
            assert!(matches!(refused, Err(TransferError::Transfer { .. })), "{refused:?}");
            let (mut here, mut there) = duplex(10_000);
            here.write_all(&nonsense).await.unwrap();
            let refused = from.log.snapshots().latest().unwrap().send(&mut there).await;
            assert!(matches!(refused, Err(TransferError::Transfer { .. })), "{refused:?}");
        }
    });
}

/// Dropping the future of either side ends the transfer, and keeps what arrived.
#[test]
fn a_cancelled_transfer_can_be_repeated() {
    let (from, to) = two();
    block_on(async {
        for micros in [0, 100, 1000, 3000] {
            let deadline = std::time::Duration::from_micros(micros);
            drop(tokio::time::timeout(deadline, ship(&from.log, &to.log)).await);
            // The thread that writes may need a moment to end.
            let busy = std::time::Instant::now();
            loop {
                let (mut here, mut there) = duplex(10);
                drop(here.shutdown().await);
                drop(here);
                match to.log.snapshots().receive(&mut there).await {
                    Err(TransferError::Transfer { .. }) => break,
                    other => assert!(busy.elapsed().as_secs() < 10, "{other:?}"),
                }
            }
        }
        let outcome = loop {
            match ship(&from.log, &to.log).await {
                (
                    _,
                    Err(TransferError::Storage(StorageError::Log(esker_log::Error::Busy {
                        ..
                    }))),
                ) => {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                (sent, received) => break sent.and(received.map(drop)),
            }
        };
        if slots_of(&to.log).is_empty() {
            outcome.unwrap();
        }
    });
    assert!(content(&to.log) == state());
}

/// Commits of the sender continue while it ships.
#[test]
fn appends_continue_meanwhile() {
    let (from, to) = two();
    let other = Arc::new(from.log.clone());
    block_on(async {
        let appends = async {
            for slot in 6..60 {
                other
                    .learn(Slot(slot), crate::fixture::LOW, b"x")
                    .unwrap()
                    .blocking_wait()
                    .unwrap();
                tokio::task::yield_now().await;
            }
        };
        let ((sent, received), ()) = tokio::join!(ship(&from.log, &to.log), appends);
        sent.and(received.map(drop)).unwrap();
    });
    assert_eq!(from.log.frontier(), Some(Slot(59)));
    fn is_send<T: Send>(_: &T) {}
    let (mut stream, _) = duplex(1);
    is_send(&to.log.snapshots().receive(&mut stream));
    fn takes_any<S: AsyncRead + AsyncWrite + Unpin>(_: &S) {}
    takes_any(&stream);
}
