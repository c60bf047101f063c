//! A child that `fork` makes of a test, with a copy of everything that the test has open.
//!
//! A binary that uses it has the process to itself: a child holds the locks of its parent.
#![allow(unsafe_code)] // Forking is unsafe; see the SAFETY comments.

use std::io::{PipeReader, Read, Write};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::panics::caught;

/// A child that takes longer hangs. For a machine that does much else.
const CHILD_TIMEOUT: Duration = Duration::from_secs(180);

/// A child that was started and not waited for. Dropping it leaves the child running.
#[derive(Debug)]
pub struct ForkedChild {
    pid: libc::pid_t,
    output: PipeReader,
}

/// Forks, and runs this in the child, which then ends without dropping anything else.
///
/// # Errors
/// The panic of the child, with its message; a child that hangs; the failure to start one.
pub fn in_forked_child(run: impl FnOnce()) -> Result<(), String> {
    ForkedChild::start(run)?.wait()
}

/// Polls a future once: in a child nothing wakes a task.
///
/// # Panics
/// If the future waits.
#[track_caller]
#[allow(clippy::panic, reason = "a helper of a test stops as loudly as it does")]
pub fn polled_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

impl ForkedChild {
    /// Forks, and runs this in the child, which then ends without dropping anything else.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn start(run: impl FnOnce()) -> Result<Self, String> {
        // The hook for panics is installed before there are two processes.
        caught(|| Ok(()))?;
        let (output, mut input) = std::io::pipe().map_err(|error| error.to_string())?;
        // SAFETY: the C library makes its allocator usable in the child. What else the child needs
        // is up to the test, which is about that. The child ends here and returns to no caller.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error().to_string()),
            0 => {
                let outcome = caught(|| {
                    run();
                    Ok(())
                });
                if let Err(panic) = &outcome {
                    let _ = input.write_all(panic.as_bytes());
                }
                // SAFETY: ends the process, and runs none of its code.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            pid => Ok(Self { pid, output }),
        }
    }

    /// Waits until the child has ended. One that hangs is killed after some minutes.
    ///
    /// # Errors
    /// The panic of the child, with its message, or how it ended.
    pub fn wait(mut self) -> Result<(), String> {
        let deadline = Instant::now() + CHILD_TIMEOUT;
        let mut status = 0;
        loop {
            // SAFETY: the status is a valid place for the answer.
            match unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) } {
                0 if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                0 => {
                    // SAFETY: a child of this process that was not waited for, so the number is
                    // still its own.
                    unsafe {
                        libc::kill(self.pid, libc::SIGKILL);
                        libc::waitpid(self.pid, &raw mut status, 0);
                    }
                    return Err("the child hangs".into());
                }
                -1 => return Err(std::io::Error::last_os_error().to_string()),
                _ if status == 0 => return Ok(()),
                _ => {
                    let mut panic = format!("the child ended with status {status:#x}: ");
                    let _ = self.output.read_to_string(&mut panic);
                    return Err(panic);
                }
            }
        }
    }
}
