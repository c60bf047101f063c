//! Log lines are written by a thread of their own: a pipe that no process reads stops no node.
//!
//! `tracing-appender` does the same, but when its queue is full it prints to standard output at the
//! end, which is the pipe that no process reads.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait, and their bytes. What comes above that is dropped and counted.
const LINES_MAX: usize = 8192;
const BYTES_MAX: usize = 4 << 20;
/// How long the end of the process waits for the lines before it.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
const FLUSH_CHECK_INTERVAL: Duration = Duration::from_millis(5);

enum Message {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// Takes lines, and never blocks. Clones are handles of one queue.
#[derive(Debug, Clone)]
pub struct Lines {
    queue: SyncSender<Message>,
    bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// Waits, when it is dropped, until the lines so far are written: one second at most.
#[derive(Debug)]
pub struct FlushGuard(Lines);

impl Lines {
    /// Lines that are written to this file.
    pub fn to(out: File) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let bytes = Arc::new(AtomicUsize::new(0));
        let queued = Arc::clone(&bytes);
        let write = move || write_all(&lines, out, &queued);
        std::thread::Builder::new().name("log lines".into()).spawn(write)?;
        Ok(Self { queue, bytes, dropped: Arc::default() })
    }

    /// Lines that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(SeqCst)
    }

    pub fn flushed(&self) -> FlushGuard {
        FlushGuard(self.clone())
    }

    fn push(&self, line: &[u8]) {
        let queued = self.bytes.fetch_add(line.len(), SeqCst) + line.len();
        let is_queued =
            queued <= BYTES_MAX && self.queue.try_send(Message::Line(line.to_vec())).is_ok();
        if !is_queued {
            self.bytes.fetch_sub(line.len(), SeqCst);
            self.dropped.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let (done, is_done) = sync_channel(1);
        let mut flush = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = self.0.queue.try_send(flush) {
            if Instant::now() >= deadline {
                return;
            }
            flush = back;
            std::thread::sleep(FLUSH_CHECK_INTERVAL);
        }
        // Late or not, the process ends.
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

fn write_all(lines: &Receiver<Message>, mut out: File, queued: &AtomicUsize) {
    for message in lines {
        match message {
            Message::Line(line) => {
                // There is nowhere to report that it failed.
                let _ = out.write_all(&line);
                queued.fetch_sub(line.len(), SeqCst);
            }
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Each write is a whole line.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn an_unread_pipe_blocks_no_thread_and_what_is_dropped_is_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let lines = Lines::to(File::from(OwnedFd::from(writer))).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let begun = Instant::now();
        let count = (BYTES_MAX / line.len() + 1000) as u64;
        for _ in 0..count {
            lines.push(&line);
        }
        let dropped = lines.dropped();
        assert!(dropped > 800 && dropped <= 1000, "{dropped}");
        drop(lines.flushed());
        assert!(begun.elapsed() < 4 * FLUSH_TIMEOUT, "{:?}", begun.elapsed());
        // Once it is read, the others come, whole and in order, and new ones.
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        let last = lines.flushed();
        drop(last);
        lines.push(b"last\n");
        drop(lines.flushed());
        assert_eq!(lines.dropped(), dropped);
        drop(lines);
        let text = read.join().unwrap();
        assert_eq!(text.lines().count() as u64, count - dropped + 1);
        assert!(text.ends_with("x\nlast\n"));
    }
}
