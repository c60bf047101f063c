//! A group committer in front of a store that has none: it writes what waits as one batch.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};

use super::keys::{Key, key_of_value};
use super::store::Store;
use crate::peer::{Caller, Log};

/// The result that a caller waits for.
type Outcome = Result<(), String>;

struct Put {
    entry: (Key, Vec<u8>),
    done: SyncSender<Outcome>,
}

/// The callers' side.
pub struct BatchedPuts {
    puts: Sender<Put>,
    committer: JoinHandle<Box<dyn Store>>,
}

impl BatchedPuts {
    /// Puts a committer in front of a store.
    pub fn new(store: Box<dyn Store>) -> Result<Self> {
        let (puts, waiting) = channel();
        let committer = std::thread::Builder::new().spawn(move || {
            commit(&*store, &waiting);
            store
        })?;
        Ok(Self { puts, committer })
    }
}

fn commit(store: &dyn Store, waiting: &Receiver<Put>) {
    let (mut entries, mut callers) = (Vec::new(), Vec::new());
    while let Ok(first) = waiting.recv() {
        for put in std::iter::once(first).chain(waiting.try_iter()) {
            entries.push(put.entry);
            callers.push(put.done);
        }
        let outcome = store.write(&entries).map_err(|error| format!("{error:#}"));
        entries.clear();
        for caller in callers.drain(..) {
            // A caller that failed does not wait.
            let _ = caller.send(outcome.clone());
        }
    }
}

impl Log for BatchedPuts {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        let (done, outcome) = sync_channel(1);
        Ok(Box::new(BatchCaller { puts: self.puts.clone(), done, outcome }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { puts, committer } = *self;
        drop(puts);
        committer.join().map_err(|_| anyhow!("the group committer panicked"))?.close()
    }
}

struct BatchCaller {
    puts: Sender<Put>,
    done: SyncSender<Outcome>,
    outcome: Receiver<Outcome>,
}

impl Caller for BatchCaller {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let entry = (key_of_value(true, record)?, record.to_vec());
        let put = Put { entry, done: self.done.clone() };
        self.puts.send(put).ok().context("the group committer ended")?;
        self.outcome.recv()?.map_err(|reason| anyhow!(reason))
    }
}
