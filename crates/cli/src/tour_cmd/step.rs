//! A step of the tour, and its report.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// Kills a process, as `kill -9` does. Fails if it had ended by itself, and says why.
pub fn kill_process(mut process: Child) -> StepResult<()> {
    process.kill()?;
    let ended = process.wait_with_output()?;
    let why = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.code().is_none(), "a process ended by itself: {}", why.trim());
    Ok(())
}

/// The content of record `n`: 100 bytes, without a newline.
pub fn record(n: u64) -> String {
    let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{n:020}") + &format!("{hash:016x}").repeat(5)
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
