//! The work that every system is asked to do.

use std::path::Path;

use serde_json::{Value, json};

use crate::job::{Job, Set, Shape};

/// The seed of the records of all runs, so that every system gets the same sizes.
const RECORD_SEED: u64 = 42;
/// Keys of one call that gets several.
pub const GROUP_KEYS: u32 = 64;
/// Callers that get keys right after a store was opened.
pub const COLD_CALLERS: u32 = 16;

/// How much of it is done.
#[derive(Debug, Clone, Copy)]
enum Amount {
    /// As much as fits into the time.
    Time,
    /// Records, or operations, of each caller for each second of `--seconds`, so that all do the
    /// same.
    PerSecond(u64),
    /// As much as `--gb` says.
    Gigabytes,
    /// As many as `--keys` says.
    Keys,
}

/// The scale of the amounts.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub seconds: f64,
    pub gigabytes: f64,
    pub keys: u64,
}

/// A workload.
#[derive(Debug)]
pub struct Workload {
    pub set: Set,
    pub name: &'static str,
    pub title: &'static str,
    pub shape: Shape,
    pub writers: u32,
    least: u32,
    most: u32,
    pub batch: u32,
    /// Reads among 100 operations.
    reads: u32,
    /// Whether the keys come in a shuffled order.
    random: bool,
    amount: Amount,
    /// Rated in bytes instead of records.
    pub in_bytes: bool,
    /// The work whose job does this one, too; without it, it has a job of its own.
    pub within: Option<&'static str>,
}

const APPEND: Workload = Workload {
    set: Set::Log,
    name: "append-1",
    title: "1 caller, 900 B, each record durable before the next",
    shape: Shape::Callers,
    writers: 1,
    least: 900,
    most: 900,
    batch: 1,
    reads: 0,
    random: false,
    amount: Amount::Time,
    in_bytes: false,
    within: None,
};

const ENTRY: Workload = Workload {
    set: Set::Consensus,
    name: "entry-1",
    title: "1 caller, entries of 100 B, each durable before the next",
    least: 100,
    most: 100,
    ..APPEND
};

const SLOTS: Workload = Workload {
    name: "sequential",
    title: "1 caller writes 100 B in one slot after the other; not synced",
    shape: Shape::Slots,
    amount: Amount::PerSecond(200_000),
    ..ENTRY
};

const PUT: Workload = Workload {
    set: Set::Kv,
    name: "put-1",
    title: "1 caller puts 128 B, each put durable before the next",
    least: 128,
    most: 128,
    random: true,
    ..APPEND
};

const LOAD: Workload = Workload {
    name: "load-sequential",
    title: "1 caller puts 128 B for every key, in the order of the keys; one sync at the end",
    shape: Shape::Load,
    random: false,
    amount: Amount::Keys,
    ..PUT
};

const READ: Workload = Workload {
    name: "get-1",
    title: "1 caller gets random keys; warm, values compared",
    shape: Shape::Reads,
    within: Some("load-random"),
    random: true,
    ..LOAD
};

/// All of them.
pub const WORKS: [Workload; 32] = [
    APPEND,
    Workload {
        name: "append-20",
        title: "20 callers, 900 B, each waits for its record",
        writers: 20,
        ..APPEND
    },
    Workload {
        name: "append-500",
        title: "500 callers, 900 B, each waits for its record",
        writers: 500,
        ..APPEND
    },
    Workload {
        name: "append-1-128",
        title: "1 caller, 128 B, each record durable before the next",
        least: 128,
        most: 128,
        ..APPEND
    },
    Workload {
        name: "mixed-20",
        title: "20 callers, 512 B to 1 MB, each waits for its record",
        writers: 20,
        least: 512,
        most: 1_000_000,
        amount: Amount::PerSecond(50),
        in_bytes: true,
        ..APPEND
    },
    Workload {
        name: "pipelined",
        title: "1 caller, 900 B, not waiting, one flush at the end",
        shape: Shape::Pipelined,
        amount: Amount::PerSecond(500_000),
        ..APPEND
    },
    Workload {
        name: "stream",
        title: "1 caller, batches of 2,048 records of 1 KiB, each durable, one reader at the tip",
        shape: Shape::Stream,
        least: 1024,
        most: 1024,
        batch: 2048,
        amount: Amount::Gigabytes,
        in_bytes: true,
        ..APPEND
    },
    ENTRY,
    Workload {
        name: "entry-32",
        title: "32 callers, entries of 100 B, each waits until its entry is durable",
        writers: 32,
        ..ENTRY
    },
    Workload {
        name: "entry-500",
        title: "500 callers, entries of 100 B, each waits until its entry is durable",
        writers: 500,
        ..ENTRY
    },
    Workload {
        name: "entry-batches",
        title: "1 caller, batches of 100 entries of 100 B, each batch durable before the next",
        shape: Shape::Batches,
        batch: 100,
        ..ENTRY
    },
    Workload {
        name: "random-keys",
        title: "1 caller writes 100 B in slots in a shuffled order; not synced",
        random: true,
        ..SLOTS
    },
    SLOTS,
    Workload {
        name: "sequential-batches",
        title: "1 caller writes 100 B in one slot after the other, in batches of 1,000; not synced",
        batch: 1000,
        ..SLOTS
    },
    Workload {
        name: "read-heavy-90",
        title: "1 caller: 90 % reads of any committed slot, 10 % writes of the next one; not synced",
        reads: 90,
        ..SLOTS
    },
    Workload {
        name: "mixed-50",
        title: "1 caller: 50 % reads of any committed slot, 50 % writes of the next one; not synced",
        reads: 50,
        ..SLOTS
    },
    Workload {
        name: "concurrent-writes",
        title: "16 callers write 100 B, each in the next free slot; not synced",
        writers: 16,
        amount: Amount::PerSecond(15_000),
        ..SLOTS
    },
    Workload {
        name: "recovery-10k",
        title: "opening 10,000 committed slots after a clean close, until all were read in order",
        shape: Shape::Recovery,
        batch: 10_000,
        amount: Amount::PerSecond(20),
        ..SLOTS
    },
    Workload {
        name: "recovery-10k-kill",
        title: "the same after a process that ended without closing",
        shape: Shape::Kill,
        batch: 10_000,
        amount: Amount::PerSecond(10),
        ..SLOTS
    },
    Workload {
        name: "scan",
        title: "5,000 slots, every other one committed; finding the others, with their values",
        shape: Shape::Scan,
        batch: 5000,
        amount: Amount::PerSecond(1000),
        ..SLOTS
    },
    PUT,
    Workload {
        name: "put-64",
        title: "64 callers put 128 B, each waits until its put is durable",
        writers: 64,
        ..PUT
    },
    Workload {
        name: "put-batches",
        title: "8 callers write atomic batches of 100 puts of 128 B, each waits for its batch",
        shape: Shape::Batches,
        writers: 8,
        batch: 100,
        ..PUT
    },
    LOAD,
    Workload {
        name: "load-random",
        title: "1 caller puts 128 B for every key, in a random order; one sync at the end",
        within: None,
        ..READ
    },
    Workload {
        name: "scan-all",
        title: "1 caller scans all keys in order; warm, values compared",
        ..READ
    },
    READ,
    Workload {
        name: "get-2",
        title: "2 callers get random keys; warm, values compared",
        writers: 2,
        ..READ
    },
    Workload {
        name: "multi-get",
        title: "1 caller gets 64 random keys in one call; warm; stores that have such a call",
        batch: GROUP_KEYS,
        ..READ
    },
    Workload { name: "close", title: "closing the store after the reads", ..READ },
    Workload {
        name: "open",
        title: "opening the store after a clean close, until the first get returned; warm",
        ..READ
    },
    Workload {
        name: "get-cold",
        title: "16 callers get random keys right after opening, values not in memory",
        writers: COLD_CALLERS,
        ..READ
    },
];

/// The works of a set.
pub fn works(set: Set) -> impl Iterator<Item = &'static Workload> {
    WORKS.iter().filter(move |work| work.set == set)
}

impl Workload {
    /// The job of one system.
    pub fn job(&self, system: &str, scale: Scale, dir: &Path) -> Job {
        let Scale { seconds, gigabytes, keys } = scale;
        let count = match self.amount {
            Amount::Time => 0,
            Amount::PerSecond(records) => ((records as f64 * seconds) as u64).max(1),
            Amount::Gigabytes => ((gigabytes * 1e9) as u64).div_ceil(u64::from(self.most)).max(1),
            Amount::Keys => keys,
        };
        Job {
            system: system.into(),
            set: self.set,
            shape: self.shape,
            writers: self.writers,
            least: self.least,
            most: self.most,
            batch: self.batch,
            reads: self.reads,
            random: self.random,
            seconds,
            count,
            seed: RECORD_SEED,
            dir: dir.into(),
        }
    }

    /// The size of its records, as in the results.
    pub fn size(&self) -> Value {
        if self.least == self.most {
            json!(self.least)
        } else {
            json!(format!("{}..{}", self.least, self.most))
        }
    }
}
