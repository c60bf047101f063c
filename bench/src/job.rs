//! What one run of one system shall do. It crosses to another process as flags, which are the same for
//! the Rust peers and the Go peers.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// How records are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Each caller waits until its record is durable.
    Callers,
    /// One caller appends without waiting, and flushes at the end.
    Pipelined,
    /// One caller appends batches and waits for each; a reader follows at the tip.
    Stream,
}

/// One run of one system.
#[derive(Debug, Clone, Args)]
pub struct Job {
    #[arg(long)]
    pub system: String,
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
    /// Records of one append
    #[arg(long)]
    pub batch: u32,
    /// Length of the timed part where no count is given
    #[arg(long)]
    pub seconds: f64,
    /// Records of each caller in the timed part; 0 for as many as fit into the time
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
        let shape = self.shape.to_possible_value();
        let flags: [(&str, String); 10] = [
            ("system", self.system.clone()),
            ("shape", shape.map_or_else(String::new, |value| value.get_name().into())),
            ("writers", self.writers.to_string()),
            ("least", self.least.to_string()),
            ("most", self.most.to_string()),
            ("batch", self.batch.to_string()),
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
