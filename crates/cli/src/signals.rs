//! SIGINT, SIGTERM and SIGHUP ask a command to come to its end. A second one ends it at once: what is
//! durable stays durable either way.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Becomes readable when a signal has come, so that it can be waited for together with input.
#[derive(Debug)]
pub struct Stop {
    pipe: UnixStream,
    come: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Stop {
    /// Catches the signals from here on.
    pub fn on_signals() -> io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let come = Arc::new(AtomicBool::new(false));
        let interrupted = Arc::new(AtomicBool::new(false));
        // Before the flag that says that one has come.
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag down.
            let status = 128 + signal;
            signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&come))?;
            signal_hook::flag::register(signal, Arc::clone(&come))?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { pipe, come, interrupted })
    }

    /// Whether a signal has come.
    pub fn is_asked(&self) -> bool {
        self.come.load(Ordering::SeqCst)
    }

    /// Whether SIGINT has come, as Ctrl-C sends it.
    pub fn is_interrupt(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Blocks until a signal has come.
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
