//! The job of one run of one system. It crosses to another process as flags, which are the same
//! for the Rust peers and the Go peers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use esker_bench::records::payload::{Payload, Recipe};

/// Work before the timed part: such a share of it, and at most so many seconds.
const WARM_UP_PART: f64 = 0.2;
const WARM_UP_SECONDS_MAX: f64 = 0.3;

/// The component of Esker that is compared.
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
    /// The stem of the names of its files of results.
    pub fn stem(self) -> &'static str {
        match self {
            Set::Log => "peers",
            Set::Consensus => "consensus",
            Set::Kv => "kv",
        }
    }

    /// The unit that its works count.
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
    /// The work of that process.
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

/// A run of one system.
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
    /// The seed of the records
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

    /// The directory of the log.
    pub fn log(&self) -> PathBuf {
        Path::new(&self.dir).join("log")
    }

    /// Returns the records of a writer. The Go side makes the same, except those of the stores.
    pub fn payload(&self, writer: u32) -> Payload {
        let recipe = Recipe::new(self.seed, self.least..=self.most);
        Recipe { fresh_noise: self.set == Set::Kv, ..recipe }.payload(writer)
    }

    /// The length of the timed part where no count is given.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The length of the warm-up before it.
    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64((self.seconds * WARM_UP_PART).min(WARM_UP_SECONDS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use esker_bench::records::payload::header_of;

    use super::*;

    fn records(set: Set) -> Vec<u8> {
        let job = Job {
            system: String::new(),
            set,
            shape: Shape::Callers,
            writers: 3,
            least: 128,
            most: 5000,
            batch: 1,
            reads: 0,
            random: false,
            seconds: 0.0,
            count: 100,
            seed: 7,
            dir: "".into(),
        };
        let mut all = Vec::new();
        for writer in 0..3 {
            let mut payload = job.payload(writer);
            for count in 0..100 {
                all.extend_from_slice(payload.record(count));
                assert_eq!(header_of(payload.record(count)), Some((writer, count)));
            }
        }
        all
    }

    fn checksum(bytes: &[u8]) -> u64 {
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)
    }

    /// The Go side has the same test: both must make the same records.
    #[test]
    fn both_sides_make_the_same_records() {
        let all = records(Set::Log);
        assert_eq!((checksum(&all), all.len()), (0x2057_9985, 757_762));
    }

    /// Results of several runs are of the same values.
    #[test]
    fn values_of_stores_stay_the_same() {
        let all = records(Set::Kv);
        assert_eq!((checksum(&all), all.len()), (0x4036_4f71, 757_762));
    }
}
