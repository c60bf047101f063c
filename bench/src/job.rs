//! What one run of one system shall do. It crosses to another process as flags, which are the same
//! for the Rust peers and the Go peers.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};

/// What of Esker is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// The log, with other logs.
    Log,
    /// The consensus log, with logs of entries and with a store of keys.
    Consensus,
    /// The key-value store, with other key-value stores.
    Kv,
}

impl Set {
    /// What its files of results are called.
    pub fn stem(self) -> &'static str {
        match self {
            Set::Log => "peers",
            Set::Consensus => "consensus",
            Set::Kv => "kv",
        }
    }

    /// What its works count.
    pub fn unit(self) -> &'static str {
        match self {
            Set::Log => "records/s",
            Set::Consensus | Set::Kv => "operations/s",
        }
    }
}

/// How records are appended, or what is done with slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Each caller waits until its record is durable.
    Callers,
    /// One caller appends without waiting, and flushes at the end.
    Pipelined,
    /// One caller appends batches and waits for each; a reader follows at the tip.
    Stream,
    /// Callers append batches, and each waits for its own.
    Batches,
    /// Callers write slots, and read some.
    Slots,
    /// Opening a store that was closed, until every slot was read.
    Recovery,
    /// The same after a process that ended without closing it.
    Kill,
    /// What that process does.
    Leave,
    /// Finding the slots that are accepted and not committed.
    Scan,
    /// One caller puts every key; one sync at the end.
    Load,
    /// The same, then reads of all kinds, closing and opening.
    Reads,
}

impl Shape {
    /// Whether it is about slots, which a log of entries has not.
    pub fn is_on_slots(self) -> bool {
        use Shape::*;
        matches!(self, Slots | Recovery | Kill | Leave | Scan)
    }
}

/// One run of one system.
#[derive(Debug, Clone, Args)]
pub struct Job {
    #[arg(long)]
    pub system: String,
    #[arg(long)]
    pub set: Set,
    #[arg(long)]
    pub shape: Shape,
    #[arg(long)]
    pub writers: u32,
    /// Bytes of the smallest record
    #[arg(long)]
    pub least: u32,
    /// Bytes of the largest record
    #[arg(long)]
    pub most: u32,
    /// Records of one append; slots that are recovered or scanned
    #[arg(long)]
    pub batch: u32,
    /// Reads among 100 operations on slots
    #[arg(long)]
    pub reads: u32,
    /// Slots are written in a shuffled order; keys are written in a random order
    #[arg(long, action = ArgAction::Set)]
    pub random: bool,
    /// Length of the timed part where no count is given
    #[arg(long)]
    pub seconds: f64,
    /// Records or operations of each caller in the timed part, recoveries, scans, or keys; 0 for
    /// as many as fit into the time
    #[arg(long)]
    pub count: u64,
    /// What the records follow from
    #[arg(long)]
    pub seed: u64,
    /// An empty directory
    #[arg(long)]
    pub dir: PathBuf,
}

impl Job {
    /// The flags that make this job again.
    pub fn flags(&self) -> Vec<String> {
        fn name(value: impl ValueEnum) -> String {
            value.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
        }
        let flags: [(&str, String); 13] = [
            ("system", self.system.clone()),
            ("set", name(self.set)),
            ("shape", name(self.shape)),
            ("writers", self.writers.to_string()),
            ("least", self.least.to_string()),
            ("most", self.most.to_string()),
            ("batch", self.batch.to_string()),
            ("reads", self.reads.to_string()),
            ("random", self.random.to_string()),
            ("seconds", self.seconds.to_string()),
            ("count", self.count.to_string()),
            ("seed", self.seed.to_string()),
            ("dir", self.dir.display().to_string()),
        ];
        flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }

    /// Where the log goes.
    pub fn log(&self) -> PathBuf {
        Path::new(&self.dir).join("log")
    }
}
