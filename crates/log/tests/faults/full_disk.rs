//! The disk fills up, at every size it may have: appending is refused with `NoSpace`, which poisons
//! nothing; reading, truncating, closing and reopening continue; with room again, so does
//! appending.
//!
//! Guards: a full disk that is met in the middle of a commit, a rotation or a recovery; space that
//! a failed reservation keeps; space that is needed to get out of it.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::sim::Persist;
use esker_log::{Append, AppendError, Error, Start};
use esker_testkit::{SplitMix64, mix};

use crate::case::case;
use esker_lab::log::config::{Config, WAYS, policies, segments};
use esker_lab::log::faults::{EXITS, Exit, exit_and_recover};
use esker_lab::log::sim_env::{Life, SimEnv, Stop};
use esker_lab::log::workload::{Step, Then};
use esker_lab::plan::{How, Plan};

const TEST: &str = "faults::full_disk::a_full_disk_loses_nothing";

/// The reserve of these logs, in pages; recovery copies at most a segment of 64 KiB.
const RESERVE: u64 = 32;

/// With this many pages the reserve was filled when the log was made, which takes twice its size
/// and a few blocks for the other files.
const WITH_RESERVE: u64 = 2 * RESERVE + 16;

/// Appends until the disk is full; `None` where the log did not open.
fn fill(sim_env: &mut SimEnv) -> Result<Option<Life>, String> {
    let mut life = match sim_env.open() {
        Ok(life) => life,
        Err(Stop::Failed(error)) if is_full(&error) => return Ok(None),
        Err(stop) => return Err(format!("{stop:?}")),
    };
    if fill_more(sim_env, &mut life)? {
        return Ok(Some(life));
    }
    Err("the disk never was full".into())
}

/// Whether the disk was full in the end.
fn fill_more(sim_env: &mut SimEnv, life: &mut Life) -> Result<bool, String> {
    for n in 0..300 {
        let step = Step::Append { len: 100 + n * 37 % 9000, then: Then::Wait };
        match sim_env.go(life, std::slice::from_ref(&step)) {
            Ok(()) => {}
            Err(Stop::Failed(Error::NoSpace { durable, wanted, .. })) => {
                if durable != life.log.durable() || wanted == 0 {
                    return Err(format!("{durable} is said to be durable, {wanted} wanted"));
                }
                return Ok(true);
            }
            Err(stop) => return Err(format!("{step:?}: {stop:?}")),
        }
    }
    Ok(false)
}

fn is_full(error: &Error) -> bool {
    match error {
        Error::NoSpace { .. } => true,
        // Not a log yet: the directory cannot be made.
        Error::Io(cause) => cause.is_no_space(),
        _ => false,
    }
}

/// A log on a full disk: nothing is poisoned, and every kind of append is refused.
fn check_continues(sim_env: &mut SimEnv, life: &mut Life) -> Result<(), String> {
    let big = vec![0; 9000];
    let refused = [
        ("append", life.log.append(&big)),
        ("write", life.log.write(Append::records(&[&big, &big])).map_err(AppendError::from)),
        (
            "write, atomic",
            life.log.write(Append::records(&[&big, &big]).atomic()).map_err(AppendError::from),
        ),
        ("try_append", life.log.try_append(&big)),
        ("append_timeout", life.log.append_timeout(&big, std::time::Duration::from_secs(5))),
        ("append_async", futures_lite(life.log.append_async(&big))),
    ];
    for (call, outcome) in refused {
        if !matches!(outcome, Err(AppendError::NoSpace { .. })) {
            return Err(format!("{call} on a full disk gives {outcome:?}"));
        }
    }
    let flushed = life.log.barrier().and_then(esker_log::Ticket::blocking_wait);
    flushed.map_err(|error| format!("flush on a full disk: {error:?}"))?;
    sim_env.observe(life).map_err(|stop| format!("{stop:?}"))?;
    let seen = sim_env.read_all(&life.log, Start::Oldest).map_err(|stop| format!("{stop:?}"))?;
    sim_env.model.matches(&seen)
}

/// A future that is ready at once: the engine of these tests has no threads.
fn futures_lite<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(out) => out,
        std::task::Poll::Pending => panic!("a future of a manual engine waits"),
    }
}

fn config_of(policy: esker_log::Policy, way: (bool, bool)) -> Config {
    let mut config = Config::new(policy).way(way);
    config.reserve = Some(RESERVE * 4096);
    config
}

fn full_at(config: Config, capacity: u64, exit: Exit) -> Result<(), String> {
    let reported = |stop: Stop| format!("{stop:?}");
    let mut sim_env = SimEnv::new(config, capacity);
    sim_env.disk.set_capacity(Some(capacity));
    let mut life = fill(&mut sim_env)?;
    if let Some(life) = &mut life {
        check_continues(&mut sim_env, life)?;
    }
    if life.is_none() || capacity < WITH_RESERVE * 4096 {
        sim_env.disk.set_capacity(None);
        return exit_and_recover(&mut sim_env, life, exit);
    }
    // Whatever it ends by: it opens on the full disk, again and again.
    for n in 0..3 {
        match EXITS[(n + capacity as usize / 4096) % 4] {
            Exit::Drop => {
                if let Some(life) = life.take() {
                    life.log.close().map_err(|error| format!("close: {error:?}"))?;
                    sim_env.model.mark_durable(sim_env.model.last())?;
                }
            }
            Exit::Die(how) => {
                how.strike(&sim_env.disk);
                sim_env.disk.power_on();
                if how != How::Kill {
                    sim_env.model.lose_cache();
                }
            }
        }
        drop(life.take());
        let opened = sim_env.open();
        life = Some(opened.map_err(|stop| format!("opening {n} on the full disk: {stop:?}"))?);
    }
    let mut life = life.ok_or("no life")?;
    fill_more(&mut sim_env, &mut life)?;
    sim_env
        .go(&mut life, &[Step::Read, Step::Truncate { percent: 60 }, Step::Read])
        .map_err(reported)?;
    sim_env.go(&mut life, &[Step::Run, Step::Reopen, Step::Read]).map_err(reported)?;
    sim_env.disk.set_capacity(None);
    let append = Step::Append { len: 5000, then: Then::Wait };
    sim_env.go(&mut life, &vec![append; 20]).map_err(|stop| format!("with room: {stop:?}"))?;
    exit_and_recover(&mut sim_env, Some(life), exit)
}

#[test]
fn a_full_disk_loses_nothing() {
    for (n, policy) in (0..).zip(policies()) {
        for (m, way) in (0..).zip(WAYS) {
            // Every size at which the manifest, the reserve and the first segments fit or do not.
            for pages in
                (1 + (n + m) % 2..40).step_by(2).chain(40 + (n + 2 * m) % 5..150).step_by(5)
            {
                let exit = EXITS[(pages % 4) as usize];
                let name = format!("{policy:?} {way:?}, {pages} pages, {exit:?}");
                let Some(_case) = case(TEST, &name) else { continue };
                if let Err(error) = full_at(config_of(policy, way), pages * 4096, exit) {
                    panic!("{name}: {error}");
                }
            }
        }
    }
}

/// A ring on a full disk continues, in what it has.
#[test]
fn ring_reuses_its_segments_on_a_full_disk() {
    for policy in policies() {
        let config = config_of(policy, (true, true)).retention(segments(2));
        for pages in [110, 120, 140] {
            let mut sim_env = SimEnv::new(config, pages);
            sim_env.disk.set_capacity(Some(pages * 4096));
            let mut life = sim_env.open().unwrap_or_else(|stop| panic!("{stop:?}"));
            let mut full = 0;
            for _ in 0..10 {
                full += u64::from(fill_more(&mut sim_env, &mut life) == Ok(true));
                assert_eq!(
                    sim_env.go(&mut life, &[Step::Run]).map_err(|s| format!("{s:?}")),
                    Ok(())
                );
            }
            sim_env.disk.set_capacity(None);
            assert_eq!(fill_more(&mut sim_env, &mut life), Ok(false), "{policy:?} {full}");
            assert_eq!(exit_and_recover(&mut sim_env, Some(life), EXITS[2]), Ok(()));
        }
    }
}

/// Power cuts at every operation of a life on a full disk.
#[test]
fn power_cut_while_the_disk_is_full_loses_nothing_durable() {
    for (n, policy) in (0..).zip(policies()) {
        let config = config_of(policy, WAYS[n as usize % 4]);
        let capacity = (WITH_RESERVE + 20 + n) * 4096;
        let mut sim_env = SimEnv::new(config, n);
        sim_env.disk.set_capacity(Some(capacity));
        let life = fill(&mut sim_env).unwrap_or_else(|error| panic!("{error}"));
        drop(life.map(|life| sim_env.die(life, How::Cut(Persist::Random))));
        let steps = [Step::Truncate { percent: 50 }, Step::Run, Step::Reopen, Step::Read];
        cut_at_each_operation(&sim_env, &steps, &format!("{policy:?}"));
    }
}

/// The same of a ring, whose appends wait for the segments that leave it.
#[test]
fn power_cut_while_appends_free_space_loses_nothing_durable() {
    for (n, policy) in (0..).zip(policies()) {
        let config = config_of(policy, WAYS[n as usize % 4]).retention(segments(2));
        let mut sim_env = SimEnv::new(config, n);
        sim_env.disk.set_capacity(Some((WITH_RESERVE + 18) * 4096));
        let life = sim_env.open().unwrap_or_else(|stop| panic!("{stop:?}"));
        drop(sim_env.die(life, How::Kill));
        let mut steps = vec![Step::Append { len: 5000, then: Then::Drop }; 60];
        steps.extend([Step::Reopen, Step::Read]);
        cut_at_each_operation(&sim_env, &steps, &format!("ring, {policy:?}"));
    }
}

fn cut_at_each_operation(sim_env: &SimEnv, steps: &[Step], name: &str) {
    let operations = {
        let mut sim_env = sim_env.fork(1);
        let before = sim_env.disk.operations();
        let lived = sim_env.live(steps);
        assert!(lived.is_ok(), "{name}: {lived:?}");
        sim_env.disk.operations() - before
    };
    for operation in 0..operations {
        for (m, how) in [How::Kill, How::Cut(Persist::Random), How::Cut(Persist::Nothing)]
            .into_iter()
            .enumerate()
        {
            let seed = mix(operation, m as u64);
            let mut sim_env = sim_env.fork(seed);
            let plan = Plan::during(sim_env.disk.operations() + operation, how);
            let name = format!("{name}, operation {operation} {how:?}");
            let cut = sim_env.live_and_die(steps, plan);
            assert_eq!(cut, Ok(()), "{name}");
            let next = Plan::within(&sim_env.disk, 20, &mut SplitMix64::new(seed));
            assert_eq!(sim_env.live_and_die(&[Step::Read], next), Ok(()), "{name}, {next}");
            let life = sim_env.live(&[Step::Read]);
            assert!(life.is_ok(), "{name}, {next}, still full: {life:?}");
            drop(life);
            sim_env.disk.kill();
            sim_env.disk.power_on();
            sim_env.disk.set_capacity(None);
            let append = Step::Append { len: 5000, then: Then::Wait };
            assert_eq!(sim_env.live_and_close(&vec![append; 5]), Ok(()), "{name}, {next}");
        }
    }
}

/// The space that a refused append was about to take is free for others.
#[test]
fn a_refused_append_takes_no_space() {
    let mut refused = 0;
    for policy in policies() {
        for room in 0..12 {
            let mut sim_env = SimEnv::new(config_of(policy, (true, true)), room);
            let mut life = sim_env.open().unwrap_or_else(|stop| panic!("{stop:?}"));
            let append = Step::Append { len: 5000, then: Then::Wait };
            let steps = [append, Step::Run];
            sim_env.go(&mut life, &steps).unwrap_or_else(|stop| panic!("{stop:?}"));
            life.log.close().unwrap_or_else(|error| panic!("{error}"));
            drop(life);
            // The rest of the segment has to be reserved again.
            let used = sim_env.disk.used();
            sim_env.disk.set_capacity(Some(used + room * 4096));
            let life = match sim_env.open() {
                Ok(life) => life,
                Err(stop) => panic!("{stop:?}"),
            };
            if let Err(AppendError::NoSpace { .. }) = life.log.append(vec![0; 40_000]) {
                assert_eq!(sim_env.disk.used(), used, "{policy:?}, room for {room} pages");
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}
