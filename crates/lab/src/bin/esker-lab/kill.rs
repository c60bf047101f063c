//! `esker-lab kill`, and the child process that it kills.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use esker_lab::{Kills, Life, Setting, kills};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::selection::Selection;
use crate::table::Table;
use esker_command::exit::{Failure, Outcome};
use esker_command::progress;
use esker_command::signals::Stop;

/// The variable that names the file in which a child says how far it is.
const PROGRESS: &str = "CRASH_TEST";

const EXAMPLES: &str = "\
Examples:
  # 10 runs of each component under each policy, with 3 kills each
  esker-lab kill

  # On another disk
  esker-lab kill --dir /data/crash --component kv

A kill keeps the page cache. So it shows what a process that dies loses, and not what a power cut does: see \
`esker-lab power` for that.";

/// Arguments of `esker-lab kill`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct KillArguments {
    #[command(flatten)]
    selection: Selection,
    /// Runs of each component and policy, with 3 kills each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    runs: u64,
    /// The seed of the first run; the next ones follow it
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// Only the run with this seed. The moment of a kill is never the same twice
    #[arg(long, value_name = "N", conflicts_with_all = ["runs", "first_seed"])]
    seed: Option<u64>,
    /// The directory of the files, created, and removed at the end [default: a new one here]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object for each component and policy
    #[arg(long)]
    json: bool,
    /// With --json: what each of the first 300 crashes left, for `esker-lab report`
    #[arg(long, requires = "json")]
    each: bool,
}

/// Runs `esker-lab kill`.
pub fn run(arguments: &KillArguments) -> Outcome {
    let all = arguments.selection.select(kills(), |kills| kills.setting)?;
    let (first_seed, runs) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.first_seed, arguments.runs),
    };
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => PathBuf::from(format!("esker-crash-{}", std::process::id())),
    };
    let failed =
        |error: io::Error| Failure::from_io(format_args!("create {}", dir.display()), &error);
    if dir.exists() {
        return Err(Failure::failed(format!("{} exists; choose another --dir", dir.display())));
    }
    let no_signals = |error| Failure::from_io("catch signals", &error);
    let stop = Stop::on_signals().map_err(no_signals)?;
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let child: Arc<Running> = Arc::default();
    let (to_remove, to_kill) = (dir.clone(), Arc::clone(&child));
    let clean_up = move || {
        // Kept locked: no other writer starts. One that still writes would make files again.
        let child = locked(&to_kill);
        if let Some(child) = &*child {
            let _ = pidfd_send_signal(child, Signal::KILL);
        }
        remove(&to_remove);
        std::mem::forget(child);
    };
    stop.exit_after(clean_up).map_err(no_signals)?;
    let crashed = kill_all(arguments, &all, &dir, (first_seed, runs), &child);
    // The runs removed what is in it, but for runs that broke a promise.
    let _ = std::fs::remove_dir(&dir);
    crashed
}

/// The writer that runs, or that ran last.
type Running = Mutex<Option<OwnedFd>>;

fn locked(child: &Running) -> MutexGuard<'_, Option<OwnedFd>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a directory in which a process that was just killed may still write.
fn remove(dir: &Path) {
    for _ in 0..100 {
        if std::fs::remove_dir_all(dir).is_ok() || !dir.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill_all(
    arguments: &KillArguments,
    all: &[Kills],
    dir: &Path,
    (first_seed, runs): (u64, u64),
    child: &Running,
) -> Outcome {
    let bar = progress::runs_bar(runs * all.len() as u64);
    let mut table =
        Table::begin("Killed processes on a real disk", arguments.json, arguments.each)?;
    for kills in all {
        let start = Instant::now();
        let spawn = |life: &Life| {
            let mut child = locked(child);
            let writer = start_writer(&kills.setting, life)?;
            // Not its number, which another process may have later.
            *child = pidfd_open(Pid::from_child(&writer), PidfdFlags::empty()).ok();
            Ok(writer)
        };
        let crashed = kills.run(dir, first_seed, runs, &spawn, &|| bar.inc(1));
        bar.suspend(|| table.add(&kills.setting, &crashed, start.elapsed().as_secs_f64()))?;
    }
    bar.finish_and_clear();
    table.end()
}

/// Arguments of the child process.
#[derive(Debug, Args)]
pub struct WriterArguments {
    component: String,
    policy: String,
    dir: PathBuf,
    from: u64,
    seed: u64,
}

fn start_writer(setting: &Setting, life: &Life) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["writer", setting.component, setting.policy])
        .arg(&life.dir)
        .args([life.from.to_string(), life.seed.to_string()])
        .env(PROGRESS, &life.progress)
        // Its end tells the child that this process ended.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
}

/// Runs the child process: writes until it is killed.
pub fn write(arguments: &WriterArguments) -> Outcome {
    let WriterArguments { component, policy, dir, from, seed } = arguments;
    let Some(progress) = std::env::var_os(PROGRESS) else {
        return Err(Failure::usage(format!("{PROGRESS} names no file; see `esker-lab kill`")));
    };
    let progress = Path::new(&progress).to_path_buf();
    let life = Life { dir: dir.clone(), progress, from: *from, seed: *seed };
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
    let kills = kills()
        .into_iter()
        .find(|kills| kills.setting.component == component && kills.setting.policy == policy)
        .ok_or_else(|| Failure::usage(format!("{component} has no policy {policy}")))?;
    kills.write(&life).map_err(Failure::failed)
}
