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

use crate::base::ballots::ballot_term;
use crate::base::failure::invalid_data;
use crate::base::wall_clock::WallClock;
use crate::network::fixed_fields::{CRC_BYTES, checksum, field, put};
use crate::network::timeouts::with_timeouts;
use crate::network::transport::Connection;

pub(crate) const QUERY_BYTES: usize = 12;
pub(crate) const ANSWER_BYTES: usize = 28;
const NUMBER_OFFSET: usize = 0;
const TERM_OFFSET: usize = 8;
const CLOCK_OFFSET: usize = 16;

const _: () = assert!(QUERY_BYTES == NUMBER_OFFSET + size_of::<u64>() + CRC_BYTES);
const _: () = assert!(TERM_OFFSET == NUMBER_OFFSET + size_of::<u64>());
const _: () = assert!(CLOCK_OFFSET == TERM_OFFSET + size_of::<u64>());
const _: () = assert!(ANSWER_BYTES == CLOCK_OFFSET + size_of::<u64>() + CRC_BYTES);

/// The time for which a leader may take no answer to its queries.
const PROOF_STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of a node: its votes, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProofAnswer {
    /// The number of the query that this answers.
    pub(crate) number: u64,
    /// The highest term in which the node gave a vote; 0 before its first.
    pub(crate) term: u64,
    /// The time on the node's wall clock.
    pub(crate) clock: u64,
}

pub(crate) fn encode_query(number: u64) -> [u8; QUERY_BYTES] {
    let mut bytes = [0; QUERY_BYTES];
    put(&mut bytes, NUMBER_OFFSET, number.to_le_bytes());
    seal(&mut bytes);
    debug_assert!(
        decode_query(&bytes).is_ok_and(|decoded| decoded == number),
        "an encoded query can be read"
    );
    bytes
}

fn decode_query(bytes: &[u8; QUERY_BYTES]) -> io::Result<u64> {
    check_seal(bytes, "a query for a proof")?;
    Ok(u64::from_le_bytes(field(bytes, NUMBER_OFFSET)))
}

impl ProofAnswer {
    pub(crate) fn encode(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        put(&mut bytes, NUMBER_OFFSET, self.number.to_le_bytes());
        put(&mut bytes, TERM_OFFSET, self.term.to_le_bytes());
        put(&mut bytes, CLOCK_OFFSET, self.clock.to_le_bytes());
        seal(&mut bytes);
        debug_assert!(
            Self::decode(&bytes).is_ok_and(|decoded| decoded == self),
            "an encoded answer can be read"
        );
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; ANSWER_BYTES]) -> io::Result<Self> {
        check_seal(bytes, "an answer to a proof")?;
        let [number, term, clock] = [NUMBER_OFFSET, TERM_OFFSET, CLOCK_OFFSET]
            .map(|offset| u64::from_le_bytes(field(bytes, offset)));
        Ok(Self { number, term, clock })
    }
}

/// Writes the checksum, which is the last field.
fn seal<const LEN: usize>(bytes: &mut [u8; LEN]) {
    let crc = checksum(&bytes[..LEN - CRC_BYTES]);
    put(bytes, LEN - CRC_BYTES, crc.to_le_bytes());
}

/// Fails if the checksum does not fit the bytes before it.
fn check_seal<const LEN: usize>(bytes: &[u8; LEN], what: &str) -> io::Result<()> {
    let crc = u32::from_le_bytes(field(bytes, LEN - CRC_BYTES));
    match crc == checksum(&bytes[..LEN - CRC_BYTES]) {
        true => Ok(()),
        false => Err(invalid_data(format!("the checksum of {what} is wrong"))),
    }
}

/// Answers queries from this log until the connection ends, or no query came for `idle`.
pub(super) async fn answer(
    stream: Connection,
    log: &ConsensusLog,
    clock: &WallClock,
    idle: Duration,
) -> io::Result<()> {
    let mut stream = with_timeouts(stream, idle, PROOF_STALL_TIMEOUT);
    let mut bytes = [0; 64 * QUERY_BYTES];
    let mut filled = 0;
    loop {
        match stream.read(&mut bytes[filled..]).await {
            Ok(0) => return Ok(()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
            Err(error) => return Err(error),
        }
        let (queries, rest) = bytes[..filled].as_chunks::<QUERY_BYTES>();
        let Some(newest) = queries.last() else { continue };
        let number = decode_query(newest)?;
        // Read after the query: a vote from before it is in the answer. A vote is sent when it is
        // durable, and is in the log's promise before that.
        let term = ballot_term(log.promised().unwrap_or(Ballot::ZERO));
        let rest = filled - rest.len()..filled;
        filled = rest.len();
        debug_assert!(filled < QUERY_BYTES, "the rest is a part of one query");
        bytes.copy_within(rest, 0);
        stream.write_all(&ProofAnswer { number, term, clock: clock.now() }.encode()).await?;
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
        for at in 0..QUERY_BYTES {
            let mut changed = query;
            changed[at] ^= 0x10;
            assert!(decode_query(&changed).is_err(), "byte {at} of a query");
        }
        let voted = ProofAnswer { number: 7, term: 1 << 40, clock: 1 << 60 };
        assert_eq!(ProofAnswer::decode(&voted.encode()).unwrap(), voted);
        for at in 0..ANSWER_BYTES {
            let mut changed = voted.encode();
            changed[at] ^= 0x10;
            assert!(ProofAnswer::decode(&changed).is_err(), "byte {at} of an answer");
        }
    }

    /// The leader waits for no other answer: without this one it would wait for a second.
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
            let mut bytes = [0; ANSWER_BYTES];
            leader.read_exact(&mut bytes).await.unwrap();
            assert_eq!(
                ProofAnswer::decode(&bytes).unwrap(),
                ProofAnswer { number: 8, term: 5, clock: 3 }
            );
            leader.write_all(later).await.unwrap();
            leader.read_exact(&mut bytes).await.unwrap();
            assert_eq!(ProofAnswer::decode(&bytes).unwrap().number, 9);
            drop(leader);
        };
        let (answered, ()) =
            tokio::join!(answer(Box::new(voter), &log, &clock, PROOF_STALL_TIMEOUT), asks);
        answered.unwrap();
    }
}
