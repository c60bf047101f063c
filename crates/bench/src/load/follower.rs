//! The parent's side of a follower process: starts it, sends it the goal, and collects what it
//! read.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::load::durable_times::DurableTimes;
use crate::load::follow::shared_clock;
use crate::log::log_arguments::LogBenchArguments;
use crate::measure::figure::rounded;
use crate::measure::latency::Latencies;
use crate::records::verify::Tally;
use esker_command::choices::DiskChoice;
use esker_command::exit::{Failure, Outcome};

/// The most time for readers to catch up after the writer has ended.
pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);

/// A running follower process that has opened the log.
#[derive(Debug)]
pub struct Follower {
    child: Child,
    /// The process ends when this is closed.
    goal: Option<ChildStdin>,
    lags: Arc<Mutex<Latencies>>,
    output_thread: Option<JoinHandle<()>>,
    lines: Receiver<String>,
    open_ms: f64,
}

/// The report of a follower.
#[derive(Debug)]
pub struct FollowerReport {
    pub tally: Tally,
    time: Duration,
    cpu: Duration,
    resident: u64,
    open_ms: f64,
}

impl Follower {
    /// Starts the process and waits until it has opened the log. With `durable_times` it reports
    /// its lags.
    pub fn start(
        arguments: &LogBenchArguments,
        dir: &Path,
        durable_times: Option<Arc<DurableTimes>>,
    ) -> Outcome<Self> {
        let mut child = spawn(arguments, dir)?;
        let lags = Arc::new(Mutex::new(Latencies::new()));
        let (sender, lines) = sync_channel(1);
        let out = child.stdout.take();
        let sums = Arc::clone(&lags);
        let output_thread = std::thread::spawn(move || {
            if let Some(out) = out {
                for line in other_lines(out, durable_times.as_deref(), &sums) {
                    // The receiver is gone when the benchmark has failed.
                    let _ = sender.send(line);
                }
            }
        });
        let goal = child.stdin.take();
        let mut follower =
            Self { child, goal, lags, output_thread: Some(output_thread), lines, open_ms: 0.0 };
        let line = follower.line()?;
        let micros = line.strip_prefix("open ").and_then(|us| us.trim().parse::<f64>().ok());
        follower.open_ms = micros.ok_or_else(|| unclear(&line))? / 1e3;
        Ok(follower)
    }

    /// The lags of all batches reported since the last call.
    pub fn take_lags(&self) -> Latencies {
        let mut lags = self.lags.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut lags, Latencies::new())
    }

    /// Sends the number of the last record to read. Returns what the process read until then.
    pub fn read_to(&mut self, last: u64) -> Outcome<FollowerReport> {
        if let Some(goal) = &mut self.goal {
            // A process that has exited has reported why.
            let _ = writeln!(goal, "{last}").and_then(|()| goal.flush());
        }
        let line = self.line()?;
        let result: Value = serde_json::from_str(&line).map_err(|_| unclear(&line))?;
        let integer = |key: &str| result[key].as_u64().ok_or_else(|| unclear(&line));
        let seconds = |key: &str| {
            result[key].as_f64().map(Duration::from_secs_f64).ok_or_else(|| unclear(&line))
        };
        let tally = Tally {
            records: integer("records")?,
            bytes: integer("bytes")?,
            touched: integer("touched")?,
        };
        if let Some(output_thread) = self.output_thread.take() {
            let _ = output_thread.join();
        }
        Ok(FollowerReport {
            tally,
            time: seconds("seconds")?,
            cpu: seconds("cpu_seconds")?,
            resident: integer("rss")?,
            open_ms: self.open_ms,
        })
    }

    /// The next line of its output that is not a lag; its error output if there is none.
    fn line(&mut self) -> Outcome<String> {
        match self.lines.recv_timeout(CATCH_UP_TIMEOUT) {
            Ok(line) => Ok(line),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                Err(Failure::failed("the follower did not finish in time"))
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                self.goal = None;
                let mut message = String::new();
                if let Some(mut err) = self.child.stderr.take() {
                    let _ = err.read_to_string(&mut message);
                }
                let message = message.trim().trim_start_matches("esker: ");
                Err(Failure::failed(format!("the follower failed: {message}")))
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl FollowerReport {
    /// Adds the result to the figure.
    pub fn insert_into(&self, more: &mut Map<String, Value>) {
        let mut put = |name: &str, value: Value| {
            more.insert(format!("follower_{name}"), value);
        };
        put("records", json!(self.tally.records));
        put("bytes", json!(self.tally.bytes));
        put("touched_bytes", json!(self.tally.touched));
        put("cpu_seconds", json!(rounded(self.cpu.as_secs_f64(), 3)));
        put("rss_mb", json!(rounded(self.resident as f64 / 1e6, 1)));
        put("open_ms", json!(rounded(self.open_ms, 3)));
    }

    /// Megabytes per second.
    pub fn mb_per_s(&self) -> f64 {
        self.tally.bytes as f64 / self.time.as_secs_f64().max(1e-9) / 1e6
    }
}

/// Adds up the lags and returns every other line.
fn other_lines<'a>(
    out: ChildStdout,
    durable_times: Option<&'a DurableTimes>,
    lags: &'a Mutex<Latencies>,
) -> impl Iterator<Item = String> + 'a {
    BufReader::new(out).lines().map_while(Result::ok).filter(move |line| {
        let Some(lag) = line.strip_prefix("at ") else { return true };
        let mut numbers = lag.split(' ').map_while(|number| number.parse::<u64>().ok());
        if let (Some(durable_times), Some(seq), Some(at)) =
            (durable_times, numbers.next(), numbers.next())
        {
            let ago = shared_clock().saturating_sub(Duration::from_nanos(at));
            let delivered = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
            let lag = durable_times.lag(seq, delivered);
            lags.lock().unwrap_or_else(PoisonError::into_inner).add(lag);
        }
        false
    })
}

fn spawn(arguments: &LogBenchArguments, dir: &Path) -> Outcome<Child> {
    let failure = |error: &std::io::Error| Failure::from_io("start the follower", error);
    let program = std::env::current_exe().map_err(|error| failure(&error))?;
    let expected = arguments.expected_recipe();
    let (least, most) = (expected.sizes.start(), expected.sizes.end());
    let mut command = Command::new(program);
    command
        .arg("log-follow")
        .arg(dir)
        .arg(format!("--size={least}..{most}"))
        .arg(format!("--seed={}", expected.seed))
        .arg(format!("--verify={}", arguments.verify().name()))
        .arg(format!("--direct={}", arguments.writing.io.direct.name()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if arguments.writing.io.disk == DiskChoice::Uring {
        command.arg("--disk=uring");
    }
    command.spawn().map_err(|error| failure(&error))
}

fn unclear(line: &str) -> Failure {
    Failure::failed(format!("unexpected output of the follower: {line}"))
}
