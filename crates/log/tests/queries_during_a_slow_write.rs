//! A query on what is in memory is answered while a write hangs in the disk, and no
//! thread spins meanwhile: neither that of an idle log nor of one whose callers all wait.
//!
//! Guards: queries that queue after a slow durable write; a full queue that burns a processor.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "kit/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Log, Options, Start};
use fixture::{DIR, LONG, Opens, all, append, in_time, payload, payloads, read_from};

/// The processor time of this process, in clock ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_the_name = stat.rsplit_once(')').unwrap().1;
    after_the_name.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
}

/// Fails when half a processor or more is busy while this process has nothing to do.
#[track_caller]
fn no_thread_spins(when: &str) {
    let before = ticks();
    std::thread::sleep(Duration::from_millis(600));
    let used = ticks() - before;
    assert!(used < 30, "{used} ticks in 60, {when}");
}

/// One test, because it looks at the processor time of the whole process.
#[test]
fn queries_return_during_a_slow_write_without_spinning() {
    let disk = SimDisk::new(1);
    let mut options = Options::on(Arc::new(disk.clone()));
    options.segment_size = 64 << 10;
    options.buffer_size = 16 << 10;
    options.buffers = 2;
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 50);
    no_thread_spins("idle");

    let gate = Gate::new();
    let _opens = Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let log = log.clone();
        waiting.push(std::thread::spawn(move || {
            (0..20)
                .map(|_| log.append([7; 900]).unwrap().blocking_wait().unwrap().seq.0)
                .max()
                .unwrap()
        }));
    }
    assert!(gate.wait_for(1, LONG), "a write hangs");

    let asked = log.clone();
    in_time("queries", move || {
        for seq in 1..=50 {
            assert_eq!(&*asked.read(seq).unwrap(), payload(seq));
        }
        assert_eq!(all(&asked), payloads(1..=50));
        assert_eq!(read_from(&asked, Start::After(40.into())).unwrap(), payloads(41..=50));
        assert!(asked.stats().pending > 0);
    });
    no_thread_spins("with a write that hangs and twenty callers that wait");

    gate.open();
    let last = waiting.into_iter().map(|caller| caller.join().unwrap()).max();
    assert_eq!(last, Some(50 + 400));
    log.close().unwrap();
}
