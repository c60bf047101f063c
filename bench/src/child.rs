//! A run of one system in a process of its own, so that neither a crash nor a hang hurts the
//! others.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use crate::job_result::JobResult;

/// The most bytes of a child's standard error in a message.
const STDERR_BYTES_MAX: usize = 400;
/// The most bytes that a child may print.
const STDOUT_BYTES_MAX: u64 = 1 << 20;

/// The line that a child prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    One(Box<JobResult>),
    Several(Vec<JobResult>),
}

/// Runs it until it ends or its time is over: one result for each work that it did. An error is
/// the reason, in a line.
pub fn run(command: &mut Command, limit: Duration) -> Result<Vec<JobResult>, String> {
    let (status, printed, complaint) = finish(command, limit)?;
    if !status {
        return Err(last_words(&complaint));
    }
    match serde_json::from_str(printed.trim()) {
        Ok(Answer::One(result)) => Ok(vec![*result]),
        Ok(Answer::Several(results)) => Ok(results),
        Err(error) => Err(format!("its answer makes no sense: {error}")),
    }
}

/// Runs a command for what it prints.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, String> {
    match finish(command, limit)? {
        (true, printed, _) => Ok(printed),
        (false, _, complaint) => Err(last_words(&complaint)),
    }
}

fn finish(command: &mut Command, limit: Duration) -> Result<(bool, String, String), String> {
    let said = |error: std::io::Error| error.to_string();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} does not start: {error}", command.get_program().display()))?;
    let (printed, complaint) = (collect(child.stdout.take()), collect(child.stderr.take()));
    // Both pipes close when the child ends.
    let texts = printed.recv_timeout(limit).and_then(|printed| {
        complaint.recv_timeout(Duration::from_secs(5)).map(|complaint| (printed, complaint))
    });
    match texts {
        Ok((printed, complaint)) => {
            let status = child.wait().map_err(said)?;
            let signal = if status.success() { String::new() } else { format!("\n{status}") };
            Ok((status.success(), printed, complaint + &signal))
        }
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("was not done after {} s, and was killed", limit.as_secs()))
        }
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(STDOUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The end of what it said, in one line.
fn last_words(complaint: &str) -> String {
    let line = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
    let skip = line.chars().count().saturating_sub(STDERR_BYTES_MAX);
    line.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_hanging_child_is_killed() {
        let result = run(&mut shell("exec sleep 60"), Duration::from_millis(200));
        assert!(result.is_err_and(|reason| reason.contains("killed")));
    }

    #[test]
    fn a_failing_child_says_why() {
        let result = run(&mut shell("echo no disk >&2; exit 3"), Duration::from_secs(10));
        assert_eq!(result.unwrap_err(), "no disk exit status: 3");
    }
}
