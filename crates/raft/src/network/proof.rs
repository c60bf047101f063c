//! Proofs of leadership on the wire: a leader asks for the highest term in which a node gave a
//! vote.
//!
//! ```text
//! query    0 number u64 | 8 crc32c of what precedes u32
//! answer   0 number u64 | 8 highest term of a vote u64
//!          16 wall clock, nanoseconds of Unix time u64 | 24 crc32c of what precedes u32
//! ```
//!
//! Numbers are little-endian, and rise. A leader waits for the answer to its newest query alone, so
//! of several queries that have arrived only the last is answered.

use std::io;
use std::time::Duration;

use esker_consensus::{Ballot, ConsensusLog};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::base::ballots::term_of;
use crate::base::clock::WallClock;
use crate::base::failure::invalid;
use crate::network::deadline::guarded;
use crate::network::handshake::checksum;
use crate::network::transport::Connection;

pub(crate) const QUERY: usize = 12;
pub(crate) const ANSWER: usize = 28;
/// How long a leader may take no answer.
const STALL: Duration = Duration::from_secs(5);

/// What a node says of its votes, and of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Voted {
    /// The number of the query that this answers.
    pub(crate) number: u64,
    /// The highest term in which the node gave a vote; 0 before its first.
    pub(crate) term: u64,
    /// What its wall clock shows.
    pub(crate) clock: u64,
}

pub(crate) fn encode_query(number: u64) -> [u8; QUERY] {
    sealed(&number.to_le_bytes())
}

fn decode_query(bytes: &[u8; QUERY]) -> io::Result<u64> {
    let content = opened(bytes, "a query for a proof")?;
    content.first_chunk().map(|number| u64::from_le_bytes(*number)).ok_or_else(cut)
}

impl Voted {
    pub(crate) fn encode(self) -> [u8; ANSWER] {
        let mut content = [0; ANSWER - 4];
        content[..8].copy_from_slice(&self.number.to_le_bytes());
        content[8..16].copy_from_slice(&self.term.to_le_bytes());
        content[16..].copy_from_slice(&self.clock.to_le_bytes());
        sealed(&content)
    }

    pub(crate) fn decode(bytes: &[u8; ANSWER]) -> io::Result<Self> {
        let content = opened(bytes, "an answer to a proof")?;
        let (longs, _) = content.as_chunks::<8>();
        let [number, term, clock] = longs.try_into().map_err(|_| cut())?;
        let [number, term, clock] = [number, term, clock].map(u64::from_le_bytes);
        Ok(Self { number, term, clock })
    }
}

/// The content, and its checksum after it.
fn sealed<const N: usize>(content: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let (before, crc) = bytes.split_at_mut(N - 4);
    before.copy_from_slice(content);
    crc.copy_from_slice(&checksum(content).to_le_bytes());
    bytes
}

/// What is before the checksum, if that is right.
fn opened<'a>(bytes: &'a [u8], what: &str) -> io::Result<&'a [u8]> {
    let (content, crc) = bytes.split_last_chunk().ok_or_else(cut)?;
    match u32::from_le_bytes(*crc) == checksum(content) {
        true => Ok(content),
        false => Err(invalid(format!("the checksum of {what} is wrong"))),
    }
}

fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Answers queries from this log until the connection ends, or nothing was asked for so long.
pub(super) async fn answer(
    stream: Connection,
    log: &ConsensusLog,
    clock: &WallClock,
    idle: Duration,
) -> io::Result<()> {
    let mut stream = guarded(stream, idle, STALL);
    let mut bytes = [0; 64 * QUERY];
    let mut filled = 0;
    loop {
        match stream.read(&mut bytes[filled..]).await {
            Ok(0) => return Ok(()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
            Err(error) => return Err(error),
        }
        let (queries, rest) = bytes[..filled].as_chunks::<QUERY>();
        let Some(newest) = queries.last() else { continue };
        let number = decode_query(newest)?;
        // Read after the query: a vote from before it is in the answer. A vote is sent when it is
        // durable, and is in the log's promise before that.
        let term = term_of(log.promised().unwrap_or(Ballot::ZERO));
        let rest = filled - rest.len()..filled;
        filled = rest.len();
        bytes.copy_within(rest, 0);
        stream.write_all(&Voted { number, term, clock: clock.now() }.encode()).await?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use esker_consensus::Slot;
    use esker_disk::sim::SimDisk;

    use super::*;

    #[test]
    fn no_changed_byte_passes() {
        let query = encode_query(u64::MAX - 3);
        assert_eq!(decode_query(&query).unwrap(), u64::MAX - 3);
        for at in 0..QUERY {
            let mut changed = query;
            changed[at] ^= 0x10;
            assert!(decode_query(&changed).is_err(), "byte {at} of a query");
        }
        let voted = Voted { number: 7, term: 1 << 40, clock: 1 << 60 };
        assert_eq!(Voted::decode(&voted.encode()).unwrap(), voted);
        for at in 0..ANSWER {
            let mut changed = voted.encode();
            changed[at] ^= 0x10;
            assert!(Voted::decode(&changed).is_err(), "byte {at} of an answer");
        }
    }

    /// The leader waits for no other answer, and would wait for a second.
    #[tokio::test]
    async fn of_queries_that_came_together_the_newest_is_answered() {
        let disk = Arc::new(SimDisk::new(1));
        let log = ConsensusLog::builder("/raft").disk(disk).open().unwrap();
        log.promise(Ballot { number: 11, node: 2 }, Slot(0)).unwrap().await.unwrap();
        let (mut leader, voter) = tokio::io::duplex(1 << 10);
        let clock = WallClock::new(|| 3);
        let asks = async {
            let queries = [7, 8].map(encode_query).concat();
            // A part of the next one came with them.
            let (now, later) = (&encode_query(9)[..5], &encode_query(9)[5..]);
            leader.write_all(&[&queries, now].concat()).await.unwrap();
            let mut bytes = [0; ANSWER];
            leader.read_exact(&mut bytes).await.unwrap();
            assert_eq!(Voted::decode(&bytes).unwrap(), Voted { number: 8, term: 5, clock: 3 });
            leader.write_all(later).await.unwrap();
            leader.read_exact(&mut bytes).await.unwrap();
            assert_eq!(Voted::decode(&bytes).unwrap().number, 9);
            drop(leader);
        };
        let (answered, ()) = tokio::join!(answer(Box::new(voter), &log, &clock, STALL), asks);
        answered.unwrap();
    }
}
