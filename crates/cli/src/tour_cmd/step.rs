//! The steps of the tour: processes that they start and kill, figures and checks.

use std::error::Error;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;

pub type StepResult<T> = Result<T, Box<dyn Error + Send + Sync>>;
/// A measured number: its key in JSON, and words with `{}` in its place.
pub type Figure = (&'static str, f64, &'static str);

/// Fails with a message unless a promise is kept.
macro_rules! ensure {
    ($is_kept:expr, $($broken:tt)+) => {
        if !$is_kept {
            return Err(format!($($broken)+).into());
        }
    };
}
pub(super) use ensure;

/// Starts this command with these words. It ends with the tour at the latest.
pub fn start(words: &[&str], dir: &Path) -> StepResult<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).arg(dir).stderr(Stdio::piped());
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Kills a process, as `kill -9` does. Fails if it had ended before, and says why.
pub fn kill_process(mut process: Child) -> StepResult<()> {
    process.kill()?;
    let ended = process.wait_with_output()?;
    let (status, why) = (ended.status, String::from_utf8_lossy(&ended.stderr));
    let is_killed = status.signal() == Some(Signal::KILL.as_raw());
    ensure!(is_killed, "a process ended by itself ({status}): {}", why.trim());
    Ok(())
}

/// The content of record `n`: 100 bytes, without a newline.
pub fn record(n: u64) -> String {
    let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{n:020}") + &format!("{hash:016x}").repeat(5)
}

/// Returns what a call does, and the milliseconds that it took.
pub fn timed<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<(T, f64), E> {
    let begin = Instant::now();
    call().map(|done| (done, begin.elapsed().as_secs_f64() * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that aborted counted as killed by the tour.
    #[test]
    fn only_sigkill_counts_as_the_kill() {
        let why = |script| {
            let mut shell = Command::new("sh");
            let shell = shell.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = shell.spawn().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            kill_process(child).map_err(|error| error.to_string())
        };
        let aborted = why("echo no memory >&2; kill -ABRT $$");
        assert!(aborted.as_ref().is_err_and(|why| why.contains("no memory")), "{aborted:?}");
        assert!(why("exit 0").is_err());
        assert_eq!(why("kill -KILL $$"), Ok(()));
    }
}
