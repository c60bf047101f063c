//! The works of key-value stores: durable puts and batches, loading, reading, closing and opening.

mod batched;
mod cold;
mod keys;
mod load;
mod puts;
mod reads;
mod reopen;
mod scan;
mod store;
mod stores;

use std::time::Duration;

use anyhow::{Result, bail};

pub use self::cold::CALLERS as COLD_CALLERS;
pub use self::reads::GROUP;
use self::stores::Kind;
use crate::harness::{self, JobResult};
use crate::histogram::Histogram;
use crate::job::{Job, Shape};
use crate::peers::{self, Peer};

/// What was measured.
struct Measured {
    ops: u64,
    took: Duration,
    times: Histogram,
}

impl Measured {
    /// One thing that took so long.
    fn once(took: Duration) -> Self {
        let mut times = Histogram::new();
        times.add(took);
        Self { ops: 1, took, times }
    }
}

/// Does the job: one result for each work that it does.
pub fn run(job: &Job) -> Result<Vec<JobResult>> {
    let kind = stores::find(&job.system)?;
    match job.shape {
        Shape::Callers | Shape::Batches => {
            let result = harness::appends(job)?;
            Ok(vec![JobResult { durable: kind.durable, ..result }])
        }
        Shape::Load => load::run(job, &kind),
        Shape::Reads => reads::run(job, &kind),
        _ => bail!("nothing of this is for key-value stores"),
    }
}

/// A store as something that callers append to: what they append are values.
pub fn peer(system: &str) -> Result<Peer> {
    let kind = stores::find(system)?;
    Ok(Peer {
        package: kind.package,
        note: kind.puts,
        pipelining: "",
        open: puts::open,
        read_all: puts::read_all,
    })
}

/// The result of one work.
fn result(job: &Job, kind: &Kind, work: &str, note: &str, measured: &Measured) -> JobResult {
    let writes = work.starts_with("load");
    JobResult {
        work: Some(work.into()),
        ops: measured.ops,
        bytes: measured.ops * u64::from(job.most),
        seconds: measured.took.as_secs_f64(),
        p50_us: measured.times.quantile_us(0.5),
        p99_us: measured.times.quantile_us(0.99),
        p999_us: Some(measured.times.quantile_us(0.999)),
        verified: true,
        durable: writes && kind.durable,
        version: peers::version(kind.package),
        note: note.into(),
        reader_mb_per_s: None,
    }
}
