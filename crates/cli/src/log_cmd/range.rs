//! The range of records that are printed.

use std::time::{Duration, SystemTime};

use esker_log::{ReadError, ReadOnlyLog, Result, Seq, Start};

/// The records that are printed.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    start: Start,
    /// Records after the start that are not wanted.
    skipped: u64,
    to: Seq,
    limit: u64,
}

/// The decision about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The record is before the first.
    Skip,
    Print,
    /// The record is after the last.
    End,
}

impl Range {
    /// Creates a range from a number on, or from the oldest record on.
    pub fn from(from: Option<u64>) -> Self {
        Self::starting_at(from.map_or(Start::Oldest, |from| Start::From(Seq(from))))
    }

    /// Creates a range after a number.
    pub fn after(seq: Seq) -> Self {
        Self::starting_at(Start::After(seq))
    }

    /// Creates a range of the records that became durable at most this long ago.
    pub fn since(since: Duration) -> Self {
        let start = SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH);
        Self::starting_at(Start::At(start))
    }

    /// The last records. Numbers may be missing, so this counts those that may belong to them, and
    /// reads them for that.
    pub fn last(reader: &ReadOnlyLog, count: u64) -> Result<Self> {
        let (oldest, durable) = (reader.oldest(), reader.durable());
        let mut distance = count;
        loop {
            let from = Seq(durable.0.saturating_sub(distance).saturating_add(1)).max(oldest);
            let found = if distance == 0 { 0 } else { count_from(reader, from)? };
            if found >= count || from == oldest {
                let skipped = found.saturating_sub(count);
                return Ok(Self { skipped, ..Self::starting_at(Start::From(from)) });
            }
            distance = distance.saturating_mul(2);
        }
    }

    fn starting_at(start: Start) -> Self {
        Self { start, skipped: 0, to: Seq(u64::MAX), limit: u64::MAX }
    }

    /// Ends at this number.
    pub fn to(self, to: Option<u64>) -> Self {
        Self { to: to.map_or(self.to, Seq), ..self }
    }

    /// Ends after `limit` records.
    pub fn limit(self, limit: Option<u64>) -> Self {
        Self { limit: limit.unwrap_or(self.limit), ..self }
    }

    /// The start of the stream.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Whether no record after the one with this number is wanted.
    pub fn is_over(&self, last: Option<Seq>) -> bool {
        let is_empty = match self.start {
            Start::From(from) => from > self.to,
            Start::After(after) => after >= self.to,
            _ => false,
        };
        is_empty || self.limit == 0 || last.is_some_and(|last| last >= self.to)
    }

    /// Whether a record comes before the start, if that is a number.
    pub fn is_before(&self, seq: Seq) -> bool {
        match self.start {
            Start::From(from) => seq < from,
            Start::After(after) => seq <= after,
            _ => false,
        }
    }

    /// Counts the next record.
    pub fn take(&mut self, seq: Seq) -> Take {
        if self.limit == 0 || seq > self.to {
            return Take::End;
        }
        if self.skipped > 0 {
            self.skipped -= 1;
            return Take::Skip;
        }
        self.limit -= 1;
        Take::Print
    }
}

/// The number of records from a number on, as far as they can be read.
fn count_from(reader: &ReadOnlyLog, from: Seq) -> Result<u64> {
    let mut stream = reader.stream(Start::From(from))?;
    let mut count = 0;
    loop {
        match stream.try_next() {
            Ok(Some(batch)) => count += batch.len() as u64,
            Err(ReadError::Quarantined(_)) => {}
            // Printing reports it.
            Ok(None) | Err(ReadError::Corrupted(_)) => return Ok(count),
            Err(error) => return Err(error.into()),
        }
    }
}
