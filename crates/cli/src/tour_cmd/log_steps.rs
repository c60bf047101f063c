//! The log: a writer that is followed and killed, the cost of a sync, and a byte that is flipped.

use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use esker_disk::{BLOCK_BYTES, Disk, OpenMode, StdDisk, read_full_at, write_all_at};
use esker_log::{Batch, Log, OpenError, ReadError, ReadOnlyLog, ReadOptions, Start};
use tokio::task::JoinSet;

use super::step::{Figure, StepResult, ensure, kill_process, record, start, timed};
use esker_bench::measure::latency::Latencies;
use esker_command::task_runtime::task_runtime;

/// A writer gets at most so many records.
const SENT_MAX: u64 = 500_000;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The parts of a measurement end after this time, or after so many syncs or records.
const PART_TIME: Duration = Duration::from_secs(1);
const SYNCS_MAX: u64 = 1000;
const CALLER_MAX: u64 = 400;

pub fn follow(dir: &Path) -> StepResult<Vec<Figure>> {
    let ((count, _), time) = timed(|| kill_after(100_000, dir))?;
    Ok(vec![("records_per_s", count as f64 / time * 1e3, "{} durable and read a second")])
}

pub fn kill(dir: &Path) -> StepResult<Vec<Figure>> {
    let (durable, sent) = kill_after(20_000, dir)?;
    let (log, open_ms) = timed(|| open(dir))?;
    let recovered = check_recovered(&log, durable, sent)?;
    log.close()?;
    Ok(vec![
        ("durable", durable as f64, "{} records were durable"),
        ("recovered", recovered as f64, "{} are there as sent"),
        ("open_ms", open_ms, "opened in {} ms"),
    ])
}

fn open(dir: &Path) -> Result<Log, OpenError> {
    Log::builder(dir).reserve(0).open()
}

/// Has another process append, and kills it after so many records. Returns how many were read
/// before, and the most that were sent.
fn kill_after(count: u64, dir: &Path) -> StepResult<(u64, u64)> {
    let mut writer = start(&["log", "append", "--reserve", "64K"], dir)?;
    let mut input = writer.stdin.take().ok_or("the writer has no input")?;
    let mut is_last = move |n: &u64| input.write_all((record(*n) + "\n").as_bytes()).is_err();
    let sender = thread::Builder::new().spawn(move || (1..=SENT_MAX).find(|n| is_last(n)))?;
    let durable = read_beside(&mut writer, count, dir);
    kill_process(writer)?;
    let sent = sender.join().map_err(|_| "the sender panicked")?;
    Ok((durable?, sent.unwrap_or(SENT_MAX)))
}

/// Reads at least so many records of a log that another process creates, and returns how many.
fn read_beside(writer: &mut Child, count: u64, dir: &Path) -> StepResult<u64> {
    let end = Instant::now() + READ_TIMEOUT;
    while writer.try_wait()?.is_none() && ReadOnlyLog::open(dir).is_err() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    let (mut stream, mut last) = (ReadOnlyLog::open(dir)?.stream(Start::Oldest)?, 0);
    while last < count {
        last = compare(&stream.blocking_next_timeout(READ_TIMEOUT)?, last)?;
    }
    Ok(last)
}

/// Compares records with those that were sent after `last`, and returns the last of them.
fn compare(batch: &Batch, last: u64) -> StepResult<u64> {
    for (n, found) in (last + 1..).zip(batch) {
        let is_right = found.seq.0 == n && found.payload == record(n).as_bytes();
        ensure!(is_right, "in the place of record {n} is another: {}", found.seq);
    }
    Ok(last + batch.len() as u64)
}

/// Checks that a log has all durable records, and none that was not sent. Returns how many it has.
fn check_recovered(log: &Log, durable: u64, sent: u64) -> StepResult<u64> {
    let (mut stream, mut last) = (log.stream(Start::Oldest)?, 0);
    while let Some(batch) = stream.try_next()? {
        last = compare(&batch, last)?;
    }
    let is_right = (durable..=sent).contains(&last);
    ensure!(is_right, "{durable} records were durable, {sent} sent, and {last} are there");
    Ok(last)
}

pub fn sync(dir: &Path) -> StepResult<Vec<Figure>> {
    let file = StdDisk::new().create_dir(dir)?.open("sync", OpenMode::create())?;
    let write = |n: u64| write_all_at(&*file, &[7; BLOCK_BYTES], n % 64 * BLOCK_BYTES as u64);
    (0..64).try_for_each(write)?;
    let disk = || median_us(|n| Ok(write(n).and_then(|()| file.sync_data())?));
    let before = disk()?;
    let log = open(&dir.join("log"))?;
    let alone_us = median_us(|n| Ok(log.append(record(n))?.blocking_wait().map(drop)?))?;
    let disk_us = f64::midpoint(before, disk()?);
    let before = log.durable().0;
    let ((), time) = timed(|| task_runtime()?.block_on(append_together(&log)))?;
    let rate = (log.durable().0 - before) as f64 / time * 1e3;
    log.close()?;
    Ok(vec![
        ("disk_sync_us", disk_us, "{} µs for a sync of 4 KiB in this folder"),
        ("one_caller_us", alone_us, "{} µs for one caller"),
        ("callers_records_per_s", rate, "{} records a second for 500 callers"),
    ])
}

/// The median time of a call.
fn median_us(mut call: impl FnMut(u64) -> StepResult<()>) -> StepResult<f64> {
    let (begin, mut times) = (Instant::now(), Latencies::new());
    for n in (0..SYNCS_MAX).take_while(|n| *n == 0 || begin.elapsed() < PART_TIME) {
        let called = Instant::now();
        call(n)?;
        times.add(called.elapsed());
    }
    Ok(times.quantile_us(0.5))
}

/// Appends from 500 callers. Each waits until its record is durable, and reads it.
async fn append_together(log: &Log) -> StepResult<()> {
    let (end, mut callers) = (Instant::now() + PART_TIME, JoinSet::new());
    for caller in 0..500 {
        let log = log.clone();
        callers.spawn(async move {
            let numbers = (0..CALLER_MAX).map(|n| caller * CALLER_MAX + n);
            for n in numbers.take_while(|_| Instant::now() < end) {
                let seq = log.append_async(record(n)).await?.await?.seq;
                let is_right = log.read_async(seq).await?.payload() == record(n).as_bytes();
                ensure!(is_right, "record {seq} has other bytes than were written");
            }
            StepResult::Ok(())
        });
    }
    callers.join_all().await.into_iter().collect()
}

pub fn repair(dir: &Path) -> StepResult<Vec<Figure>> {
    let log = open(dir)?;
    let append = |n| Ok(log.append(record(n))?.blocking_wait()?.position.0);
    // In the only segment, a position is an offset in its file.
    let at = (1..=100).map(append).collect::<StepResult<Vec<_>>>()?[49];
    log.close()?;
    let segment =
        StdDisk::new().open_dir(dir)?.open("00000000000000000001.seg", OpenMode::write())?;
    let mut byte = [0];
    read_full_at(&*segment, &mut byte, at)?;
    write_all_at(&*segment, &[byte[0] ^ 1], at)?;
    let found = esker_log::verify(dir, ReadOptions::default())?.corruption;
    let is_reported = found.len() == 1 && found[0].offset <= at;
    ensure!(is_reported, "byte {at} was flipped, and verify reports {found:?}");
    let repaired = esker_log::repair(dir, ReadOptions::default())?;
    let log = open(dir)?;
    let as_written =
        |n: &u64| matches!(log.read(*n), Ok(read) if *read.payload() == *record(*n).as_bytes());
    let kept = (1..=100).filter(as_written).count();
    let is_right = kept == 99 && matches!(log.read(50), Err(ReadError::Quarantined(_)));
    ensure!(is_right, "{kept} records are as written after the repair: {repaired:?}");
    log.close()?;
    Ok(vec![
        ("flipped", at as f64, "byte {} of a segment"),
        ("reported", found[0].offset as f64, "reported by verify at {}"),
        ("kept", kept as f64, "its record quarantined by repair, the other {} as written"),
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lost_or_changed_record_breaks_the_promise() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::builder(dir.path()).reserve(0).open().unwrap();
        let append = |text: &str| log.append(text).unwrap().blocking_wait().map(drop).unwrap();
        let broken = |durable, sent| check_recovered(&log, durable, sent).unwrap_err().to_string();
        append(&record(1));
        append(&record(2));
        assert_eq!(check_recovered(&log, 1, 3).unwrap(), 2);
        assert_eq!(broken(3, 3), "3 records were durable, 3 sent, and 2 are there");
        assert_eq!(broken(1, 1), "1 records were durable, 1 sent, and 2 are there");
        append(&record(4));
        assert_eq!(broken(2, 4), "in the place of record 3 is another: 3");
    }
}
