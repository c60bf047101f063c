//! A small fact beside the log, for whoever stands on it: where to begin reading, for instance.
//!
//! It is the sealed file that the manifest is, too: replaced as a whole, durable when the call
//! returns, and after a crash the old one or the new. It should say nothing that the records do not
//! say: it may be older than they are, and a log whose note is gone is a whole log.

use crate::error::{Error, Result};
use crate::layout;
use crate::log::Log;
use crate::sealed;

const MAGIC: [u8; 8] = *b"ESKRNOTE";
/// The largest note in bytes.
const LIMIT: usize = 64 << 10;

impl Log {
    /// Replaces the note, durably.
    ///
    /// # Errors
    /// [`Error::TooLarge`] above 64 KiB; [`Error::Closed`]; [`Error::Poisoned`] when the log failed
    /// before; [`Error::Io`], after which the log is poisoned.
    pub fn put_note(&self, note: &[u8]) -> Result<()> {
        if note.len() > LIMIT {
            return Err(Error::TooLarge { size: note.len() as u64, limit: LIMIT as u64 });
        }
        let shared = &*self.shared;
        let _changing = shared.changing.lock();
        if let Some(latch) = shared.lock().core.latch() {
            return Err(latch.refusal());
        }
        let path = shared.dir.join(layout::NOTE);
        let outcome = sealed::write(&*shared.options.disk, &path, MAGIC, note);
        if let Err(error @ Error::Io(_)) = &outcome {
            shared.fail(error.clone());
        }
        outcome
    }

    /// The note; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Version`], [`Error::Io`].
    pub fn note(&self) -> Result<Option<Vec<u8>>> {
        let shared = &*self.shared;
        match sealed::read(&*shared.options.disk, &shared.dir.join(layout::NOTE), MAGIC) {
            Ok(note) => Ok(Some(note)),
            Err(Error::Io(cause)) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
