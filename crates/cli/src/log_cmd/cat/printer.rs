//! Prints the records of a stream.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::SystemTime;

use esker_log::{Batch, Error, LogError, LogStream, ReadError, Record, Seq};

use crate::log_cmd::range::{Range, Take};
use esker_command::exit::complain;
use esker_command::framing::Framing;
use esker_command::output;
use esker_command::record_text::RecordText;

/// Why printing ended before the durable watermark.
pub enum End {
    Log(Error),
    Output(io::Error),
}

pub struct Printer {
    stream: LogStream,
    out: BufWriter<File>,
    framing: Framing,
    range: Range,
    /// The last record printed.
    printed: Option<Seq>,
    time: TimeText,
    stopped: Arc<AtomicBool>,
}

impl Printer {
    pub fn new(stream: LogStream, out: BufWriter<File>, framing: Framing, range: Range) -> Self {
        let (time, stopped) = (TimeText::default(), Arc::default());
        Self { stream, out, framing, range, printed: None, time, stopped }
    }

    /// The last record printed.
    pub fn printed(&self) -> Option<Seq> {
        self.printed
    }

    pub fn out(&self) -> &File {
        self.out.get_ref()
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints everything up to the durable watermark, or to the end of the range.
    pub fn catch_up(&mut self) -> Result<(), End> {
        while !self.range.is_over(self.printed) {
            match self.stream.try_next() {
                Ok(Some(batch)) => self.print_batch(&batch)?,
                Ok(None) => break,
                Err(gap @ ReadError::Quarantined(_)) => self.skip(&gap.into())?,
                Err(error) => return Err(End::Log(error.into())),
            }
        }
        self.flush().map_err(End::Output)
    }

    /// Prints existing and new records until the range ends, the reader is closed, or `stopped` is
    /// set.
    pub fn follow(&mut self, stopped: &Arc<AtomicBool>) -> Result<(), End> {
        self.stopped = Arc::clone(stopped);
        loop {
            match self.catch_up() {
                Err(End::Log(Error::Closed)) => return Ok(()),
                caught_up => caught_up?,
            }
            if self.range.is_over(self.printed) {
                return Ok(());
            }
            match self.stream.blocking_next() {
                Ok(batch) => self.print_batch(&batch)?,
                Err(gap @ ReadError::Quarantined(_)) => self.skip(&gap.into())?,
                Err(ReadError::Log(LogError::Closed)) => return Ok(()),
                Err(error) => return Err(End::Log(error.into())),
            }
        }
    }

    fn print_batch(&mut self, batch: &Batch) -> Result<(), End> {
        for record in batch {
            if self.stopped.load(SeqCst) {
                self.range = self.range.limit(Some(0));
                return Ok(());
            }
            match self.range.take(record.seq) {
                Take::Skip => {}
                Take::Print => {
                    self.print(&record).map_err(End::Output)?;
                    self.printed = Some(record.seq);
                }
                Take::End => {
                    self.range = self.range.limit(Some(0));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn print(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Record { seq, prev, position, payload, .. } = *record;
        let (prev, position, time) = (Some(prev), Some(position), self.time.update(record));
        let shown = RecordText { seq, prev, position, time, payload };
        shown.write(self.framing, &mut self.out)
    }

    fn skip(&mut self, gap: &Error) -> Result<(), End> {
        self.flush().map_err(End::Output)?;
        complain(&format!("note: {gap}"));
        Ok(())
    }
}

/// The time of the last record as text. All records of a commit have the same.
#[derive(Default)]
struct TimeText {
    time: Option<SystemTime>,
    text: String,
}

impl TimeText {
    fn update(&mut self, record: &Record<'_>) -> &str {
        let time = record.time();
        if self.time != time {
            self.time = time;
            self.text = time.map_or_else(String::new, output::time);
        }
        &self.text
    }
}
