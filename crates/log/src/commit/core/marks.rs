//! The marks of the log: up to where records are accepted, written and durable, and how many.

use crate::base::log_end::Mark;

/// Counts since the start. `Policy::Batch` counts appends: an atomic batch is one.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    records: u64,
    appends: u64,
}

impl Tally {
    fn is_at_most(self, other: Self) -> bool {
        self.records <= other.records && self.appends <= other.appends
    }
}

#[derive(Debug)]
pub(super) struct Marks {
    /// The last sequence number assigned.
    last_seq: u64,
    written: Mark,
    durable: Mark,
    /// The unit up to which the jobs handed out make the log durable, once they are complete.
    covered: Mark,
    accepted_tally: Tally,
    written_tally: Tally,
    durable_tally: Tally,
    /// Bytes of the payloads of accepted records.
    accepted_bytes: u64,
}

impl Marks {
    /// The marks of a log that is durable up to this one.
    pub(super) fn new(durable: Mark) -> Self {
        Self {
            last_seq: durable.seq,
            written: durable,
            durable,
            covered: durable,
            accepted_tally: Tally::default(),
            written_tally: Tally::default(),
            durable_tally: Tally::default(),
            accepted_bytes: 0,
        }
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub(super) fn written(&self) -> Mark {
        self.written
    }

    pub(super) fn durable(&self) -> Mark {
        self.durable
    }

    pub(super) fn covered(&self) -> Mark {
        self.covered
    }

    /// Records accepted since the start, and the bytes of their payloads.
    pub(super) fn accepted(&self) -> (u64, u64) {
        (self.accepted_tally.records, self.accepted_bytes)
    }

    /// Records written since the start, without a gap.
    pub(super) fn written_records(&self) -> u64 {
        self.written_tally.records
    }

    /// Records that are accepted but not durable.
    pub(super) fn pending_records(&self) -> u64 {
        self.accepted_tally.records - self.durable_tally.records
    }

    /// Appends that are accepted but not durable.
    pub(super) fn pending_appends(&self) -> u64 {
        self.accepted_tally.appends - self.durable_tally.appends
    }

    /// Counts an append. Its records are accepted next.
    pub(super) fn accept_append(&mut self) {
        self.accepted_tally.appends += 1;
    }

    /// Counts a record, and the bytes of its payload.
    pub(super) fn accept_record(&mut self, seq: u64, bytes: u64) {
        self.last_seq = seq;
        self.accepted_tally.records += 1;
        self.accepted_bytes += bytes;
    }

    /// A job was handed out that makes the log durable up to here.
    pub(super) fn cover(&mut self, mark: Mark) {
        self.covered = mark;
    }

    /// Everything up to here is written, of which this was the last commit.
    pub(super) fn wrote(&mut self, mark: Mark, records: u32, appends: u32) {
        self.written = mark;
        self.written_tally.records += u64::from(records);
        self.written_tally.appends += u64::from(appends);
    }

    /// Everything that is written is durable.
    pub(super) fn synced(&mut self) {
        (self.durable, self.durable_tally) = (self.written, self.written_tally);
    }

    /// durable <= written <= accepted, in units, positions, sequence numbers, records and appends.
    /// `handed_out`: the end of the jobs in flight. `staged_appends`: appends of the units that are
    /// not written.
    pub(super) fn check(&self, handed_out: Mark, staged_appends: u64) {
        assert!(self.durable.is_at_most(self.written), "more is durable than written");
        assert!(self.written.seq <= self.last_seq, "more is written than accepted");
        assert!(
            self.durable.is_at_most(self.covered) && self.covered.is_at_most(handed_out),
            "the jobs handed out make other units durable than they carry"
        );
        assert!(
            self.durable_tally.is_at_most(self.written_tally)
                && self.written_tally.is_at_most(self.accepted_tally),
            "counts of durable, written and accepted are out of order"
        );
        assert_eq!(
            self.accepted_tally.appends - self.written_tally.appends,
            staged_appends,
            "the units that are not written hold other appends than were accepted"
        );
    }
}
