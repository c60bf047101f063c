//! What every system is asked to do.

use std::path::Path;

use serde_json::{Value, json};

use crate::job::{Job, Shape};

/// What the records of all runs follow from, so that every system gets the same sizes.
const SEED: u64 = 42;

/// How much of it is done.
#[derive(Debug, Clone, Copy)]
enum Amount {
    /// As much as fits into the time.
    Time,
    /// Records of each caller for each second of `--seconds`, so that all write the same bytes.
    PerSecond(u64),
    /// As much as `--gb` says.
    Gigabytes,
}

/// One kind of work.
#[derive(Debug)]
pub struct Work {
    pub name: &'static str,
    pub title: &'static str,
    pub shape: Shape,
    pub writers: u32,
    least: u32,
    most: u32,
    pub batch: u32,
    amount: Amount,
    /// Bytes tell more than records.
    pub in_bytes: bool,
}

const APPEND: Work = Work {
    name: "append-1",
    title: "1 caller, 900 B, each record durable before the next",
    shape: Shape::Callers,
    writers: 1,
    least: 900,
    most: 900,
    batch: 1,
    amount: Amount::Time,
    in_bytes: false,
};

/// All of them.
pub const WORKS: [Work; 7] = [
    APPEND,
    Work {
        name: "append-20",
        title: "20 callers, 900 B, each waits for its record",
        writers: 20,
        ..APPEND
    },
    Work {
        name: "append-500",
        title: "500 callers, 900 B, each waits for its record",
        writers: 500,
        ..APPEND
    },
    Work {
        name: "append-1-128",
        title: "1 caller, 128 B, each record durable before the next",
        least: 128,
        most: 128,
        ..APPEND
    },
    Work {
        name: "mixed-20",
        title: "20 callers, 512 B to 1 MB, each waits for its record",
        writers: 20,
        least: 512,
        most: 1_000_000,
        amount: Amount::PerSecond(50),
        in_bytes: true,
        ..APPEND
    },
    Work {
        name: "pipelined",
        title: "1 caller, 900 B, not waiting, one flush at the end",
        shape: Shape::Pipelined,
        amount: Amount::PerSecond(500_000),
        ..APPEND
    },
    Work {
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
];

impl Work {
    /// The job of one system.
    pub fn job(&self, system: &str, seconds: f64, gigabytes: f64, dir: &Path) -> Job {
        let count = match self.amount {
            Amount::Time => 0,
            Amount::PerSecond(records) => ((records as f64 * seconds) as u64).max(1),
            Amount::Gigabytes => ((gigabytes * 1e9) as u64).div_ceil(u64::from(self.most)).max(1),
        };
        Job {
            system: system.into(),
            shape: self.shape,
            writers: self.writers,
            least: self.least,
            most: self.most,
            batch: self.batch,
            seconds,
            count,
            seed: SEED,
            dir: dir.into(),
        }
    }

    /// The size of its records, as the results tell it.
    pub fn size(&self) -> Value {
        if self.least == self.most {
            json!(self.least)
        } else {
            json!(format!("{}..{}", self.least, self.most))
        }
    }
}
