//! State that is rebuilt from its events: accounts, and transfers between them.
//!
//! ```text
//! cargo run -p esker --example event_sourced -- ./esker-data
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use esker::{Append, Error, Log, Start};

/// Balances by account. The log is the truth; this is what its events add up to.
pub struct Accounts {
    log: Log,
    balances: BTreeMap<String, i64>,
}

impl Accounts {
    /// Opens the log and applies all of its events.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let log = Log::open(dir)?;
        let mut balances = BTreeMap::new();
        let mut stream = log.stream(Start::Oldest)?;
        while let Some(batch) = stream.try_next()? {
            batch.iter().for_each(|record| apply(&mut balances, record.payload));
        }
        Ok(Self { log, balances })
    }

    /// Adds to an account. Returns when the event is durable; only then is it applied.
    pub fn add(&mut self, account: &str, amount: i64) -> Result<(), Error> {
        let event = format!("{account} {amount}");
        self.log.append(&event)?.blocking_wait()?;
        apply(&mut self.balances, event.as_bytes());
        Ok(())
    }

    /// Moves an amount from one account to another: after a crash both events are there, or none.
    pub fn transfer(&mut self, from: &str, to: &str, amount: i64) -> Result<(), Error> {
        let events = [format!("{from} {}", -amount), format!("{to} {amount}")];
        self.log.write(Append::records(&events).atomic())?.blocking_wait()?;
        events.iter().for_each(|event| apply(&mut self.balances, event.as_bytes()));
        Ok(())
    }

    /// The balance of an account.
    pub fn balance(&self, account: &str) -> i64 {
        self.balances.get(account).copied().unwrap_or(0)
    }
}

fn apply(balances: &mut BTreeMap<String, i64>, event: &[u8]) {
    let event = String::from_utf8_lossy(event);
    if let Some((account, amount)) = event.rsplit_once(' ')
        && let Ok(amount) = amount.parse::<i64>()
    {
        *balances.entry(account.to_owned()).or_default() += amount;
    }
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    let mut accounts = Accounts::open(Path::new(&dir))?;
    accounts.add("ada", 100)?;
    accounts.transfer("ada", "grace", 30)?;
    println!("ada {}, grace {}", accounts.balance("ada"), accounts.balance("grace"));
    Ok(())
}
