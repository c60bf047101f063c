//! Standard input that can be polled together with signals.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::exit::{Failure, Outcome, complain};
use crate::signals::Stop;

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Input can be read, or has ended.
    Input,
    /// The timeout expired without input.
    Pause,
    /// A signal arrived.
    Stop,
}

/// How reading the input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfInput {
    /// All of it was read.
    Complete,
    /// A signal arrived before.
    Signal,
}

/// Unbuffered standard input with signal handling.
#[derive(Debug)]
pub struct Input {
    file: File,
    stop: Stop,
    /// The file offset at the start, for a regular file.
    start: u64,
    read: u64,
}

impl Input {
    /// Opens standard input and starts catching signals.
    pub fn open() -> Outcome<Self> {
        let failed = |error| Failure::from_io("catch signals", &error);
        let file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
        // Only a regular file has an offset.
        let start = (&file).stream_position().unwrap_or(0);
        Ok(Self { file, stop: Stop::on_signals().map_err(failed)?, start, read: 0 })
    }

    /// Prints on a terminal how the input ends.
    pub fn note_its_end(what: &str) {
        if io::stdin().is_terminal() && io::stderr().is_terminal() {
            complain(&format!("note: reading {what} from the terminal; Ctrl-D ends the input"));
        }
    }

    /// Returns the size of the input, including what was read, for a regular file.
    pub fn size(&self) -> Option<u64> {
        let data = self.file.metadata().ok()?;
        data.is_file().then_some(data.len().saturating_sub(self.start))
    }

    /// Returns the number of bytes read.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Returns the outcome when a signal arrived before the end of the input. SIGINT is an
    /// interruption and a failure; the other signals are the normal way to stop a service. `lost`
    /// describes what was read and is incomplete; empty if nothing is.
    pub fn stopped(&self, lost: String) -> Outcome {
        if self.stop.is_interrupt() {
            let of = self.size().map_or_else(String::new, |size| format!(" of {size}"));
            let lost = if lost.is_empty() { lost } else { format!("; {lost}") };
            let read = self.read;
            return Err(Failure::interrupted(format!(
                "interrupted: {read}{of} bytes of the input were read{lost}"
            )));
        }
        if !lost.is_empty() {
            complain(&format!("note: {lost}"));
        }
        Ok(())
    }

    /// Returns whether all input was read, as far as that is known without reading: a file up to
    /// its size, or a pipe whose writers have all closed it.
    pub fn is_at_end(&self) -> bool {
        if let Some(size) = self.size() {
            return self.read >= size;
        }
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let found = fds[0].revents();
        polled.is_ok() && found.contains(PollFlags::HUP) && !found.contains(PollFlags::IN)
    }

    /// Waits for input or a signal, at most `timeout` if given.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Event> {
        if self.stop.is_requested() {
            return Ok(Event::Stop);
        }
        let mut fds =
            [PollFd::new(&self.file, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Ok(Event::Pause),
            // A signal interrupted the poll; the next check reports it.
            Err(Errno::INTR) => {
                Ok(if self.stop.is_requested() { Event::Stop } else { Event::Pause })
            }
            Err(errno) => Err(errno.into()),
            Ok(_) if self.stop.is_requested() => Ok(Event::Stop),
            Ok(_) => Ok(Event::Input),
        }
    }

    /// Reads the available bytes; 0 at the end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(got) => {
                    self.read += got as u64;
                    return Ok(got);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
