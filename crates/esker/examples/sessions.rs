//! Sessions that expire: a scan in the order of their ends finds those that are over.
//!
//! ```text
//! cargo run -p esker --features kv --example sessions -- ./esker-data
//! ```

use std::path::Path;
use std::time::{Duration, SystemTime};

use esker::kv::{Batch, Error, Keyspace, Policy, Store, WriteError};

/// The most ends that one call of [`Sessions::expire`] visits.
const EXPIRED_MAX: usize = 1000;

/// Sessions by token. Times are seconds since 1970.
pub struct Sessions {
    store: Store,
    /// From the token to the end of the session and its user.
    sessions: Keyspace,
    /// From the end of each session and its token to nothing.
    ends: Keyspace,
}

impl Sessions {
    /// Opens the sessions. A crash logs out who logged in in the last 50 ms: so no call waits for
    /// the disk.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let policy = Policy::Periodic(Duration::from_millis(50));
        let store = Store::builder(dir).policy(policy).open()?;
        let sessions = store.create_keyspace("sessions")?;
        let ends = store.create_keyspace("ends")?;
        Ok(Self { store, sessions, ends })
    }

    /// Creates a session, or gives it another end.
    pub fn put(&self, token: &str, user: &str, end: u64) -> Result<(), Error> {
        let mut batch = Batch::new();
        batch.put(&self.sessions, token, with_end(end, user))?;
        batch.put(&self.ends, with_end(end, token), "")?;
        drop(self.store.write(&batch)?);
        Ok(())
    }

    /// The user of a session that is not over.
    pub fn user(&self, token: &str, now: u64) -> Result<Option<String>, Error> {
        let session = self.sessions.get(token)?;
        let session = session.as_deref().and_then(split_end).filter(|(end, _)| *end > now);
        Ok(session.map(|(_, user)| String::from_utf8_lossy(user).into_owned()))
    }

    /// Removes sessions that are over, and returns their number. To be called now and then. A
    /// session that got another end stays, also if that happens meanwhile.
    pub fn expire(&self, now: u64) -> Result<usize, Error> {
        let mut removed = 0;
        for entry in self.ends.scan(..now.saturating_add(1).to_be_bytes())?.take(EXPIRED_MAX) {
            let (key, _) = entry?;
            let Some((end, token)) = split_end(&key) else { continue };
            let session = self.sessions.get(token)?;
            let is_over = session.as_deref().and_then(split_end).is_some_and(|(at, _)| at == end);
            let mut batch = Batch::new();
            batch.delete(&self.ends, &key)?;
            if is_over {
                batch.delete(&self.sessions, token)?;
            }
            batch.expect_value(&self.sessions, token, session)?;
            match self.store.write(&batch) {
                Ok(_) => removed += usize::from(is_over),
                // It was changed just now: the next call removes this end.
                Err(WriteError::ConditionFailed { .. } | WriteError::Contended) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(removed)
    }

    /// The number of sessions that were not removed.
    pub fn count(&self) -> u64 {
        self.sessions.len()
    }
}

/// The end of a session, so that ends sort by time, and a text.
fn with_end(end: u64, text: &str) -> Vec<u8> {
    [&end.to_be_bytes()[..], text.as_bytes()].concat()
}

/// The end and the text of [`with_end`].
fn split_end(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (end, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*end), rest))
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    let sessions = Sessions::open(Path::new(&dir))?;
    let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    println!("{} sessions of earlier runs are over", sessions.expire(now)?);
    sessions.put("a token", "ada", now + 10)?;
    println!("{:?} is logged in, of {}", sessions.user("a token", now)?, sessions.count());
    Ok(())
}
