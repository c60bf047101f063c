//! A sync that does not return before the power fails: nothing that waits for it was durable.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{Log, Options, Policy, Seq};
use esker_testkit::{SplitMix64, mix};

use super::trial::Trial;
use crate::log::DIR;
use crate::outcome::Run;
use crate::survival::Survival;

/// How long the log may take to begin a sync.
const SYNC_START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the sync is held.
const SYNC_DELAY: Duration = Duration::from_millis(60);

pub(super) struct StalledSync;

impl Trial for StalledSync {
    fn lives(policy: Policy, run: &mut Run) -> Result<(), String> {
        let seed = run.seed;
        let mut rng = SplitMix64::new(mix(seed, 78));
        let disk = SimDisk::new(seed);
        let value = |n: u64| vec![mix(seed, n) as u8; (n % 7) as usize * 400];
        let log = open(&disk, policy)?;
        let written = 1 + rng.below(30);
        for n in 1..=written {
            let ticket = log.append(value(n)).map_err(text)?;
            if rng.percent(40) || n == written {
                ticket.blocking_wait().map_err(text)?;
            }
        }
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path(".seg"));
        let last = written + 1;
        let answered = thread::scope(|scope| {
            // The append waits, too, where the sync is that of a new segment.
            let appended =
                || log.append(value(last)).is_ok_and(|ticket| ticket.blocking_wait().is_ok());
            let waiter = scope.spawn(appended);
            let began = gate.wait_for(1, SYNC_START_TIMEOUT);
            thread::sleep(SYNC_DELAY);
            let (accepted, durable) = (log.accepted(), log.durable());
            disk.power_cut(Persist::Nothing);
            let waited = waiter.join().map_err(|_| "the waiting thread panicked")?;
            if !began {
                return Err("no sync began");
            }
            Ok((accepted.0, durable.max(Seq(if waited { last } else { 0 })).0))
        });
        let (accepted, durable) = answered?;
        drop(log);
        run.cuts += 1;
        disk.clear_faults();
        disk.power_on();
        let log = open(&disk, policy)?;
        let recovered = log.durable().0;
        run.survivals.push(Survival {
            accepted,
            durable,
            recovered,
            lost_calls: accepted.saturating_sub(recovered),
            ..Survival::default()
        });
        for n in 1..=recovered {
            if *log.read(Seq(n)).map_err(text)? != *value(n) {
                return Err(format!("record {n} is another one"));
            }
        }
        log.close().map_err(text)
    }
}

/// With real threads: a caller that waits is not the one that looks.
fn open(disk: &SimDisk, policy: Policy) -> Result<Log, String> {
    let mut options = Options::on(Arc::new(disk.process()));
    options.policy = policy;
    options.segment_size = 64 << 10;
    options.dsync = false;
    Log::builder(Path::new(DIR)).options(options).open().map_err(text)
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
