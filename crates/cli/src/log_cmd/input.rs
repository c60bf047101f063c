//! Standard input that can be waited for together with a signal.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::signals::Stop;

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// There is something to read, or the end.
    Input,
    /// Nothing came in time.
    Pause,
    /// A signal asks to stop.
    Stop,
}

/// Standard input, unbuffered, and the signals.
#[derive(Debug)]
pub struct Input {
    file: File,
    stop: Stop,
    /// Where a regular file stood at the start.
    start: u64,
    read: u64,
}

impl Input {
    /// Catches the signals from here on.
    pub fn open() -> io::Result<Self> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Only a regular file has a place.
        let start = (&file).stream_position().unwrap_or(0);
        Ok(Self { file, stop: Stop::on_signals()?, start, read: 0 })
    }

    /// The bytes of the input, those read included, where that can be known: a regular file.
    pub fn size(&self) -> Option<u64> {
        let data = self.file.metadata().ok()?;
        data.is_file().then_some(data.len().saturating_sub(self.start))
    }

    /// The bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Whether the signal that came is SIGINT.
    pub fn is_interrupt(&self) -> bool {
        self.stop.is_interrupt()
    }

    /// Whether everything was read, as far as that can be said without reading: a file up to its size,
    /// a pipe whose writers have all closed it.
    pub fn is_at_end(&self) -> bool {
        if let Some(size) = self.size() {
            return self.read >= size;
        }
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let found = fds[0].revents();
        polled.is_ok() && found.contains(PollFlags::HUP) && !found.contains(PollFlags::IN)
    }

    /// Waits for input or a signal, no longer than `patience` if it has an end.
    pub fn wait(&self, patience: Option<Duration>) -> io::Result<Event> {
        if self.stop.is_asked() {
            return Ok(Event::Stop);
        }
        let mut fds =
            [PollFd::new(&self.file, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        let patience = patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, patience.as_ref()) {
            Ok(0) => Ok(Event::Pause),
            // A signal: the next look says so.
            Err(Errno::INTR) => Ok(if self.stop.is_asked() { Event::Stop } else { Event::Pause }),
            Err(errno) => Err(errno.into()),
            Ok(_) if self.stop.is_asked() => Ok(Event::Stop),
            Ok(_) => Ok(Event::Input),
        }
    }

    /// Reads what is there; 0 at the end.
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
