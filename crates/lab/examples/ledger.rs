//! A ledger: accounts in a store, and transfers between them that are whole or not at all.
//!
//! `cargo run -p esker-lab --example ledger -- DIR` makes a few transfers in a directory. The
//! module `tests` has the crash test of this program: power cuts on a simulated disk, anywhere.

use std::collections::BTreeMap;
use std::path::Path;

use esker_kv::{Batch, Keyspace, Options, Store};

/// The accounts, and what each begins with.
const ACCOUNTS: [&str; 4] = ["anna", "ben", "carla", "dan"];
const OPENING_BALANCE: u64 = 100;

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    store: Store,
}

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

impl Ledger {
    /// Opens the ledger in a directory, or creates it.
    ///
    /// # Errors
    /// The errors of the store.
    pub fn open(dir: &Path, options: Options) -> Result<Self> {
        let store = Store::builder(dir).options(options).open()?;
        let ledger = Self { store };
        if ledger.balance(ACCOUNTS[0])?.is_none() {
            // All accounts in one batch: a crash must not leave a ledger with some of them.
            let mut batch = Batch::new();
            for name in ACCOUNTS {
                batch.put(&ledger.accounts(), name, OPENING_BALANCE.to_le_bytes())?;
            }
            ledger.store.write(&batch)?.blocking_wait()?;
        }
        Ok(ledger)
    }

    fn accounts(&self) -> Keyspace {
        self.store.keyspace()
    }

    /// The balance of an account; `None` if there is no such account.
    ///
    /// # Errors
    /// The errors of the store.
    pub fn balance(&self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.accounts().get(name)? else { return Ok(None) };
        Ok(Some(u64::from_le_bytes(value.as_ref().try_into()?)))
    }

    /// The balances of all accounts.
    ///
    /// # Errors
    /// The errors of the store.
    pub fn balances(&self) -> Result<BTreeMap<String, u64>> {
        let mut all = BTreeMap::new();
        for entry in self.accounts().scan(..)? {
            let (name, value) = entry?;
            let balance = u64::from_le_bytes(value.as_ref().try_into()?);
            all.insert(String::from_utf8(name.to_vec())?, balance);
        }
        Ok(all)
    }

    /// Moves an amount from one account to another. Durable when it returns.
    ///
    /// # Errors
    /// The errors of the store; and one for an account that does not exist, or has less.
    pub fn transfer(&self, from: &str, to: &str, amount: u64) -> Result<()> {
        let (Some(had), Some(gets)) = (self.balance(from)?, self.balance(to)?) else {
            return Err("there is no such account".into());
        };
        let Some(rest) = had.checked_sub(amount) else {
            return Err(format!("{from} has {had}").into());
        };
        let mut batch = Batch::new();
        batch.put(&self.accounts(), from, rest.to_le_bytes())?;
        batch.put(&self.accounts(), to, (gets + amount).to_le_bytes())?;
        self.store.write(&batch)?.blocking_wait()?;
        Ok(())
    }
}

#[allow(clippy::print_stdout, reason = "an example prints what it did")]
fn main() -> Result<()> {
    let dir = std::env::args().nth(1).ok_or("usage: ledger DIR")?;
    let ledger = Ledger::open(Path::new(&dir), Options::default())?;
    ledger.transfer("anna", "ben", 5)?;
    for (name, balance) in ledger.balances()? {
        println!("{name} {balance}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_disk::Disk;
    use esker_lab::{BoxError, Changes, Options as Runs, Program, cut_power};
    use esker_log::Engine;

    use super::*;

    fn open(disk: Arc<dyn Disk>) -> Result<Ledger> {
        let mut options = Options::on(disk);
        // Small segments, so that they turn within a life, and a small reserve, which is written at
        // each opening; and everything on one thread.
        options.log.segment_size = 64 << 10;
        options.log.reserve = Some(64 << 10);
        options.log.engine = Some(Engine::manual());
        Ledger::open(Path::new("/ledger"), options)
    }

    fn balances(amounts: [u64; 4]) -> BTreeMap<String, u64> {
        ACCOUNTS.map(str::to_owned).into_iter().zip(amounts).collect()
    }

    /// Opens the ledger and makes some transfers, the way users do or in two steps.
    struct Transfers {
        in_two_steps: bool,
    }

    impl Program for Transfers {
        type State = BTreeMap<String, u64>;

        fn empty(&self) -> Self::State {
            balances([OPENING_BALANCE; 4])
        }

        fn live(
            &self,
            disk: Arc<dyn Disk>,
            seed: u64,
            changes: &mut Changes<Self::State>,
        ) -> Result<(), BoxError> {
            let ledger = open(disk)?;
            for n in 0..6 {
                let (from, to) = ((seed + n) as usize % 4, (seed / 4 + 2 * n) as usize % 4);
                let amount = 1 + n;
                if from == to || changes.state()[ACCOUNTS[from]] < amount {
                    continue;
                }
                let mut after = changes.state().clone();
                *after.entry(ACCOUNTS[from].to_owned()).or_default() -= amount;
                *after.entry(ACCOUNTS[to].to_owned()).or_default() += amount;
                changes.begin(after);
                if self.in_two_steps {
                    let gets = ledger.balance(ACCOUNTS[to])?.unwrap_or(0) + amount;
                    let rest = ledger.balance(ACCOUNTS[from])?.unwrap_or(0) - amount;
                    let accounts = ledger.accounts();
                    accounts.put(ACCOUNTS[from], rest.to_le_bytes())?.blocking_wait()?;
                    accounts.put(ACCOUNTS[to], gets.to_le_bytes())?.blocking_wait()?;
                } else {
                    ledger.transfer(ACCOUNTS[from], ACCOUNTS[to], amount)?;
                }
                changes.durable();
            }
            Ok(())
        }

        fn read(&self, disk: Arc<dyn Disk>) -> Result<Self::State, BoxError> {
            open(disk)?.balances()
        }
    }

    const RUNS: Runs = Runs { first_seed: 0, runs: 300 };

    #[test]
    fn transfers_survive_power_cuts() {
        let outcome = cut_power(&Transfers { in_two_steps: false }, RUNS);
        assert_eq!(outcome.examples, []);
        assert!(outcome.statistics.durable > 0);
    }

    /// A check that cannot fail proves nothing: this program loses money.
    #[test]
    fn transfers_in_two_steps_do_not() {
        let outcome = cut_power(&Transfers { in_two_steps: true }, RUNS);
        assert!(outcome.violations > 0, "{:?}", outcome.statistics);
    }
}
