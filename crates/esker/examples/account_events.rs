//! Accounts whose events are in a store, and balances in another one that follow them by a watch.
//!
//! ```text
//! cargo run -p esker --features kv --example account_events -- ./esker-data
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use esker::kv::{Action, Batch, Change, Error, Keyspace, Store, Watch, WriteError};

/// The bytes of the number of an event, at the end of its key.
const NUMBER_BYTES: usize = 4;

/// The events of all accounts. The key of an event is its account, a zero byte and its number. No
/// event is overwritten or deleted, so a watch can begin anywhere.
pub struct Events {
    store: Store,
    events: Keyspace,
}

impl Events {
    /// Opens the events.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let store = Store::open(dir)?;
        let events = store.create_keyspace("events")?;
        Ok(Self { store, events })
    }

    /// The number of events of an account.
    pub fn count(&self, account: &str) -> Result<u32, Error> {
        let last = self.events.scan_prefix(format!("{account}\0"))?.rev().next().transpose()?;
        let number = last.and_then(|(key, _)| key.last_chunk().copied());
        Ok(number.map_or(0, |number| u32::from_be_bytes(number) + 1))
    }

    /// Adds an event, durably, to an account that has `count` of them. Returns `false`, and adds
    /// nothing, if another caller was faster: then read the new state, and decide again.
    pub fn add(&self, account: &str, count: u32, amount: i64) -> Result<bool, Error> {
        let key = [account.as_bytes(), &[0], &count.to_be_bytes()].concat();
        let mut batch = Batch::new();
        batch.expect_exists(&self.events, &key, false)?;
        batch.put(&self.events, &key, amount.to_be_bytes())?;
        match self.store.write(&batch) {
            Ok(ticket) => ticket.blocking_wait()?,
            Err(WriteError::ConditionFailed { .. } | WriteError::Contended) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        Ok(true)
    }
}

/// The account and the amount of an event.
fn event<'a>(change: &Change<'a>) -> Option<(&'a [u8], i64)> {
    match change.action {
        Action::Put { key, value } if change.keyspace == "events" => {
            let account = key.get(..key.len().checked_sub(NUMBER_BYTES + 1)?)?;
            Some((account, i64::from_be_bytes(value.try_into().ok()?)))
        }
        _ => None,
    }
}

/// The balances of all accounts. The events are the truth: without this store, they build it again.
pub struct Balances {
    store: Store,
    balances: Keyspace,
    /// The position up to which events are part of the balances.
    progress: Keyspace,
    watch: Watch,
}

impl Balances {
    /// Opens the balances, and watches the events from where the last run ended.
    pub fn open(dir: &Path, events: &Events) -> Result<Self, Error> {
        let store = Store::open(dir)?;
        let balances = store.create_keyspace("balances")?;
        let progress = store.create_keyspace("progress")?;
        let position = progress.get("position")?.and_then(|value| value.first_chunk().copied());
        let watch = events.store.watch(position.map_or(0, u64::from_be_bytes))?;
        Ok(Self { store, balances, progress, watch })
    }

    /// Applies all durable events. A batch changes the balances together with the position, so each
    /// event counts once, whatever a crash takes back.
    pub fn follow(&mut self) -> Result<(), Error> {
        while let Some(changes) = self.watch.try_next()? {
            let mut amounts = BTreeMap::new();
            for (account, amount) in changes.iter().filter_map(|change| event(&change)) {
                *amounts.entry(account.to_vec()).or_insert(0) += amount;
            }
            let mut batch = Batch::new();
            for (account, amount) in amounts {
                let balance = self.balance(&account)? + amount;
                batch.put(&self.balances, account, balance.to_be_bytes())?;
            }
            batch.put(&self.progress, "position", changes.position().0.to_be_bytes())?;
            drop(self.store.write(&batch)?); // need not be durable: the watch begins there again
        }
        Ok(())
    }

    /// The balance of an account.
    pub fn balance(&self, account: impl AsRef<[u8]>) -> Result<i64, Error> {
        let value = self.balances.get(account)?.and_then(|value| value.first_chunk().copied());
        Ok(value.map_or(0, i64::from_be_bytes))
    }
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    let events = Events::open(&Path::new(&dir).join("events"))?;
    let mut balances = Balances::open(&Path::new(&dir).join("balances"), &events)?;
    while !events.add("ada", events.count("ada")?, 100)? {}
    balances.follow()?;
    println!("ada has {} after {} events", balances.balance("ada")?, events.count("ada")?);
    Ok(())
}
