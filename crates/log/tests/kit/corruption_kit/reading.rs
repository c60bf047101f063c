//! Reading a log to its end, whatever it answers.

use esker_log::{Batch, Error, Log, ReadOnlyLog, Seq, SeqRange, Start};

/// A record or a gap, as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Record {
        seq: u64,
        prev: u64,
        payload: Vec<u8>,
    },
    /// Records above the first number, up to the second, are quarantined.
    Gap(u64, u64),
}

impl Item {
    /// The last number that the item covers.
    pub fn last(&self) -> u64 {
        match self {
            Item::Record { seq, .. } => *seq,
            Item::Gap(_, to) => *to,
        }
    }

    /// The number before the first that the item covers.
    pub fn prev(&self) -> u64 {
        match self {
            Item::Record { prev, .. } => *prev,
            Item::Gap(from, _) => *from,
        }
    }
}

/// The items that a stream delivered, and the error that ended it, if one did.
#[derive(Debug)]
pub struct Read {
    pub items: Vec<Item>,
    pub error: Option<Error>,
}

impl Read {
    pub fn last(&self) -> u64 {
        self.items.last().map_or(0, Item::last)
    }
}

/// More calls than any stream over these logs needs.
const PATIENCE: usize = 10_000;

fn drain(mut next: impl FnMut() -> Result<Option<Batch>, Error>) -> Result<Read, String> {
    let mut items = Vec::new();
    for _ in 0..PATIENCE {
        match next() {
            Ok(None) => return Ok(Read { items, error: None }),
            Ok(Some(batch)) => {
                let before = items.len();
                items.extend(batch.iter().map(|record| Item::Record {
                    seq: record.seq.0,
                    prev: record.prev.0,
                    payload: record.payload.to_vec(),
                }));
                if items.len() == before {
                    return Err("an empty batch was delivered".into());
                }
            }
            Err(Error::Quarantined(SeqRange { from, to })) => items.push(Item::Gap(from.0, to.0)),
            Err(error) => return Ok(Read { items, error: Some(error) }),
        }
    }
    Err("the stream spins".into())
}

/// Everything from a place on, in an open log.
pub fn of_log(log: &Log, start: Start) -> Result<Read, String> {
    match log.stream(start) {
        Ok(mut stream) => drain(|| stream.try_next().map_err(Into::into)),
        Err(error) => Ok(Read { items: Vec::new(), error: Some(error.into()) }),
    }
}

/// Everything after a number, for a reader without a lock. 0 reads from the oldest record.
pub fn of_reader(reader: &ReadOnlyLog, after: u64) -> Result<Read, String> {
    let start = if after == 0 { Start::Oldest } else { Start::After(Seq(after)) };
    match reader.stream(start) {
        Ok(mut stream) => drain(|| stream.try_next().map_err(Into::into)),
        Err(error) => Ok(Read { items: Vec::new(), error: Some(error.into()) }),
    }
}
