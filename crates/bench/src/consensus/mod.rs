//! `esker-bench consensus`: one figure per operation, with the hardware floor of the same run.
//!
//! Every work has its own log and compares everything that it wrote or read with the expected
//! values. Only `accept` is warmed up; the other works include first-touch page faults.

mod build_consensus_log;
mod compare;
mod consensus_arguments;
mod durable;
mod many_logs;
mod memory;
mod recover;
mod snapshots;
mod timed;

use indicatif::ProgressBar;

pub use self::build_consensus_log::{ConsensusBuildArguments, run as run_build};
pub use self::consensus_arguments::ConsensusBenchArguments;
use self::consensus_arguments::WORKS;
use self::timed::Bench;
use crate::machine::floor::Floor;
use crate::workdir::Workdir;
use esker_command::exit::Outcome;
use esker_command::progress;

/// Runs the requested works, compares, prints.
pub fn run(arguments: &ConsensusBenchArguments) -> Outcome {
    let dir = arguments.in_child.as_ref().or(arguments.dir.as_ref());
    let workdir = Workdir::make(dir.map(|dir| &**dir), arguments.keep)?;
    let mut floor = Floor::prepare(&workdir.floor())?;
    floor.sample()?;
    let mut bench = Bench { arguments, dir: workdir.log(), floor, bar: ProgressBar::hidden() };
    if arguments.in_child.is_some() {
        let measured = bench.many_logs()?;
        return bench.sample_and_print(measured);
    }
    let wants =
        |work: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == work);
    let works = WORKS.iter().filter(|work| wants(work)).count();
    bench.bar = progress::works_bar(works as u64, arguments.json);
    run_in_memory(&mut bench, &wants)?;
    run_durable(&mut bench, &wants)?;
    run_many(&mut bench, &wants)?;
    if wants("recover") {
        bench.begin("recover", false);
        recover::run(&mut bench, &workdir)?;
    }
    bench.bar.finish_and_clear();
    Ok(())
}

/// Runs the works of one log without syncs, by one thread and by two.
fn run_in_memory(bench: &mut Bench<'_>, wants: &impl Fn(&str) -> bool) -> Outcome {
    for threads in [1, 2] {
        for work in WORKS[..4].iter().filter(|work| wants(work)) {
            bench.begin(work, threads == 2);
            let measured = match *work {
                "accept" => bench.accept(threads),
                "accept-commit" => bench.accept_commit(threads),
                "read-committed" => bench.read(threads, true),
                _ => bench.read(threads, false),
            }?;
            bench.sample_and_print(measured)?;
        }
    }
    if wants("scan-1000") {
        bench.begin("scan-1000", false);
        let measured = bench.scan()?;
        bench.print(measured)?;
    }
    Ok(())
}

/// Runs the works of one log whose caller waits until they are durable.
fn run_durable(bench: &mut Bench<'_>, wants: &impl Fn(&str) -> bool) -> Outcome {
    if wants("durable-accept-commit") {
        for callers in [1, 32] {
            bench.begin("durable-accept-commit", callers == 32);
            let measured = bench.durable(callers)?;
            bench.sample_and_print(measured)?;
        }
    }
    if wants("batch-commit-100") {
        bench.begin("batch-commit-100", false);
        let measured = bench.batch()?;
        bench.sample_and_print(measured)?;
    }
    for (work, create) in [("snapshot-create-1mib", true), ("snapshot-read-1mib", false)] {
        if wants(work) {
            bench.begin(work, false);
            let measured = bench.snapshots(create)?;
            bench.sample_and_print(measured)?;
        }
    }
    Ok(())
}

/// Runs the works of many logs under one manager.
fn run_many(bench: &mut Bench<'_>, wants: &impl Fn(&str) -> bool) -> Outcome {
    if wants("manager-get") {
        for (threads, same) in [(1, false), (2, false), (2, true)] {
            bench.begin("manager-get", threads == 2);
            let measured = bench.manager_get(threads, same)?;
            bench.sample_and_print(measured)?;
        }
    }
    if wants("many-logs") {
        bench.begin("many-logs", false);
        let dir = bench.dir.join("many-logs-process");
        bench.bar.suspend(|| many_logs::in_child(&dir))?;
    }
    Ok(())
}
