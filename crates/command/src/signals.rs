//! SIGINT, SIGTERM and SIGHUP request that a command stops. A second signal terminates it at once.
//! Durable data stays durable either way.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::exit::{Failure, Outcome, complain};

/// Has a write beyond the limit on the size of a file (`ulimit -f`) fail, instead of ending the
/// process silently.
pub fn survive_file_size_limit() {
    // Only calls of signal handlers see the flag. Without the handler the signal ends the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Becomes readable when a signal has arrived, so that it can be polled together with input.
#[derive(Debug)]
pub struct Stop {
    pipe: UnixStream,
    arrived: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
    /// The number of the signal.
    number: Arc<AtomicUsize>,
}

impl Stop {
    /// Starts catching signals.
    pub fn on_signals() -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let arrived = Arc::new(AtomicBool::new(false));
        let interrupted = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicUsize::new(0));
        // Registered before `arrived`, so that it is set whenever SIGINT has set `arrived`.
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: at the first signal `arrived` is still false, so only a second one
            // terminates.
            let status = 128 + signal;
            signal_hook::flag::register_usize(signal, Arc::clone(&number), signal as usize)?;
            signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&arrived))?;
            signal_hook::flag::register(signal, Arc::clone(&arrived))?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { pipe, arrived, interrupted, number })
    }

    /// Returns whether a signal has arrived.
    pub fn is_requested(&self) -> bool {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Returns whether SIGINT has arrived, as Ctrl-C sends it.
    pub fn is_interrupt(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Blocks until a signal has arrived.
    pub fn wait(mut self) -> io::Result<()> {
        self.pipe.set_nonblocking(false)?;
        self.pipe.read_exact(&mut [0])
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Stop {
    /// Cleans up at a signal, also at one that has arrived already, and exits with 128 and its
    /// number, as if it had ended the process. Starts a thread that waits for one.
    ///
    /// Catch signals before you create what is cleaned up: a signal in between would leave it.
    pub fn exit_after(self, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let number = Arc::clone(&self.number);
        let wait = move || {
            // Without its pipe there is nothing to wait for.
            if self.wait().is_ok() {
                let _begun = lock_clean_up();
                clean_up();
                std::process::exit(128 + number.load(Ordering::SeqCst) as i32);
            }
        };
        std::thread::Builder::new().name("clean up".into()).spawn(wait)?;
        Ok(())
    }
}

/// Held from the beginning of a clean-up to the exit that follows it.
static CLEAN_UP: Mutex<()> = Mutex::new(());

/// Waits for a clean-up that a signal has begun, and so for the exit of the process: without what
/// was cleaned up a program fails, and its own status would hide the signal.
pub(crate) fn lock_clean_up() -> MutexGuard<'static, ()> {
    CLEAN_UP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes what a command reads at a signal. Starts a thread that waits for one. Returns whether
/// SIGINT has arrived.
pub fn close_at_signal(close: impl FnOnce() + Send + 'static) -> Outcome<Arc<AtomicBool>> {
    let failed = |error| Failure::from_io("catch signals", &error);
    let stop = Stop::on_signals().map_err(failed)?;
    let interrupted = Arc::clone(&stop.interrupted);
    let wait = move || {
        // Without its pipe there is nothing to wait for.
        if stop.wait().is_ok() {
            close();
        }
    };
    std::thread::Builder::new().name("close".into()).spawn(wait).map_err(failed)?;
    Ok(interrupted)
}

/// How long a command may take to write what it has printed, after a signal.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

impl Stop {
    /// Calls `close`, which ends the command with status 0, at a signal or when the reader of
    /// standard output `out` has exited. After a signal the process exits with 0 even if its output
    /// stays blocked. Starts a thread. Returns whether a signal has arrived, for the command to
    /// check between records.
    pub fn end_follower(
        self,
        out: &File,
        close: impl FnOnce() + Send + 'static,
    ) -> io::Result<Arc<AtomicBool>> {
        let (arrived, out) = (Arc::clone(&self.arrived), out.try_clone()?);
        let wait = move || {
            loop {
                let mut fds = [
                    PollFd::new(&self, PollFlags::IN),
                    PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty()),
                ];
                let _ = poll(&mut fds, None);
                if self.is_requested() || !fds[1].revents().is_empty() {
                    break;
                }
            }
            close();
            if self.is_requested() {
                // The process usually ends meanwhile.
                std::thread::sleep(OUTPUT_TIMEOUT);
                complain(
                    "note: standard output is blocked; its last record may be incomplete, and \
                     records after it were not printed",
                );
                std::process::exit(0);
            }
        };
        std::thread::Builder::new().name("close".into()).spawn(wait)?;
        Ok(arrived)
    }
}
