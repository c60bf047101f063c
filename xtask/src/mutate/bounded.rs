//! A child process with a limit on time and output, which ends when its parent is interrupted.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How much of each output stream is kept, counted from its end.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the output may take to end after the process did.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Set by SIGINT and SIGTERM. The child has a process group of its own, so the terminal's Ctrl-C
/// does not reach it: we pass it on.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }
}

pub struct ProcessEnd {
    /// `None` when the time limit ended it.
    pub status: Option<ExitStatus>,
    /// Standard output, then standard error.
    pub output: String,
}

/// Runs `command` for at most `limit`, then kills it with all that it started.
pub fn run(mut command: Command, limit: Duration, interrupt: &Interrupt) -> Result<ProcessEnd> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = tail(child.stdout.take().context("no standard output")?);
    let stderr = tail(child.stderr.take().context("no standard error")?);

    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let interrupted = interrupt.0.load(Ordering::Relaxed);
        if interrupted || Instant::now() >= deadline {
            kill(&mut child)?;
            if interrupted {
                bail!("interrupted");
            }
            break None;
        }
        thread::sleep(POLL_INTERVAL);
    };
    let mut output = stdout.recv_timeout(OUTPUT_TIMEOUT).unwrap_or_default();
    output.push_str(&stderr.recv_timeout(OUTPUT_TIMEOUT).unwrap_or_default());
    Ok(ProcessEnd { status, output })
}

fn kill(child: &mut Child) -> Result<()> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself in the meantime.
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    Ok(())
}

/// Reads `stream` to its end on a thread, and sends the last of it.
fn tail(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            kept.extend_from_slice(&chunk[..n]);
            if kept.len() > 2 * OUTPUT_BYTES_MAX {
                kept.drain(..kept.len() - OUTPUT_BYTES_MAX);
            }
        }
        let start = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        let _ = sender.send(String::from_utf8_lossy(&kept[start..]).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    fn quiet() -> Interrupt {
        Interrupt(Arc::new(AtomicBool::new(false)))
    }

    #[test]
    fn hands_back_both_streams() {
        let done = run(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(30), &quiet())
            .unwrap();
        assert_eq!(done.status.and_then(|status| status.code()), Some(3));
        assert_eq!(done.output, "out\nerr\n");
    }

    #[test]
    fn a_hang_ends_with_its_children() {
        let start = Instant::now();
        let done =
            run(shell("sleep 60 & echo here; wait"), Duration::from_millis(300), &quiet()).unwrap();
        assert!(done.status.is_none());
        // Had the grandchild lived on, its end of the pipe would have kept us waiting.
        assert_eq!(done.output, "here\n");
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn endless_output_is_bounded() {
        let done = run(shell("exec yes"), Duration::from_millis(500), &quiet()).unwrap();
        assert!(done.output.len() <= OUTPUT_BYTES_MAX);
    }

    #[test]
    fn an_interrupt_is_passed_on() {
        let pressed = Interrupt(Arc::new(AtomicBool::new(true)));
        assert!(run(shell("sleep 60"), Duration::from_secs(60), &pressed).is_err());
    }
}
