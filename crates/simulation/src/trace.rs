//! The events of a run, in order: their fingerprint, and their lines if they are kept.

use std::fmt::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// The events of one run. Clones are handles of one.
#[derive(Debug, Clone)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

/// The fingerprint so far, and the lines.
#[derive(Debug)]
struct Inner {
    /// FNV-1a of all lines.
    fingerprint: u64,
    events: u64,
    line: String,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(keeps_lines: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            fingerprint: 0xCBF2_9CE4_8422_2325,
            events: 0,
            line: String::new(),
            lines: keeps_lines.then(Vec::new),
        })))
    }

    /// Records an event at this time, in milliseconds.
    pub(crate) fn event(&self, now: u64, what: fmt::Arguments<'_>) {
        let mut inner = self.0.lock();
        let Inner { fingerprint, events, line, lines } = &mut *inner;
        line.clear();
        // Writing to a string does not fail.
        let _ = write!(line, "{now} {what}");
        for byte in line.bytes().chain([b'\n']) {
            *fingerprint = (*fingerprint ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        *events += 1;
        if let Some(lines) = lines {
            lines.push(line.clone());
        }
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.0.lock().fingerprint
    }

    pub(crate) fn events(&self) -> u64 {
        self.0.lock().events
    }

    pub(crate) fn take_lines(&self) -> Vec<String> {
        self.0.lock().lines.take().unwrap_or_default()
    }
}
