//! Opening the store of a command.

use std::path::{Path, PathBuf};

use clap::Args;
use esker_kv::{COMPONENT, Error, Keyspace, KeyspaceReader, NAME_LIMIT, ReadOnlyStore, Store};
use esker_log::{OpenError, ReadOnlyLog};

use esker_command::exit::{Failure, Outcome, complain};

/// The name of the keyspace that every store has.
pub const DEFAULT: &str = "default";

/// The store and the keyspace of a command.
#[derive(Debug, Args)]
pub struct KeyspaceSelection {
    /// The store's directory
    pub dir: PathBuf,
    /// The keyspace [default: default]
    #[arg(long, value_name = "NAME", default_value = DEFAULT, hide_default_value = true)]
    pub keyspace: String,
}

/// Notes that a command, whose line may name a keyspace, works on all of them.
pub fn note_all_keyspaces(command: &str, keyspace: Option<&str>) -> Outcome {
    let Some(name) = keyspace else { return Ok(()) };
    check_name(name)?;
    complain(&format!("note: `esker {command}` works on all keyspaces"));
    Ok(())
}

/// Opens a store that exists, or may be created.
pub fn store(dir: &Path, must_exist: bool) -> Outcome<Store> {
    let store = Store::builder(dir).must_exist(must_exist).clean(false).open();
    store.map_err(|error| Failure::from_kv(error, dir))
}

/// Opens a store for reading, without its lock.
pub fn read_only(dir: &Path) -> Outcome<ReadOnlyStore> {
    ReadOnlyStore::open(dir).map_err(|error| Failure::from_kv(error, dir))
}

/// Opens the log of a store for reading, without its lock.
pub fn log(dir: &Path) -> Outcome<ReadOnlyLog> {
    let failure = |error: OpenError| Failure::from_kv(esker_log::Error::from(error), dir);
    let log = ReadOnlyLog::open(dir).map_err(failure)?;
    log.component().expect(COMPONENT).map_err(failure)?;
    Ok(log)
}

/// Refuses a name that no keyspace can have, before anything is created.
pub fn check_name(name: &str) -> Outcome {
    match name.len() {
        1..=NAME_LIMIT => Ok(()),
        size => Err(Failure::usage(Error::InvalidName { size }.to_string())),
    }
}

/// Creates a failure for a keyspace that does not exist.
pub fn not_found(dir: &Path, name: &str) -> Failure {
    let error = Failure::from_kv(Error::KeyspaceNotFound { name: name.into() }, dir);
    error.and(format_args!("`esker kv keyspaces {} list` prints the names", dir.display()))
}

impl KeyspaceSelection {
    pub fn failure(&self, error: impl Into<Error>) -> Failure {
        Failure::from_kv(error, &self.dir)
    }

    /// Opens the store for reading, beside a writer, and runs the work on the keyspace.
    pub fn read<T>(&self, work: impl FnOnce(&KeyspaceReader) -> Outcome<T>) -> Outcome<T> {
        let store = read_only(&self.dir)?;
        work(
            &store
                .find_keyspace(&self.keyspace)
                .ok_or_else(|| not_found(&self.dir, &self.keyspace))?,
        )
    }

    /// Opens the store, which must exist, runs the work on the keyspace, and closes the store.
    pub fn change<T>(&self, work: impl FnOnce(&Store, &Keyspace) -> Outcome<T>) -> Outcome<T> {
        let store = store(&self.dir, true)?;
        let keyspace = store
            .find_keyspace(&self.keyspace)
            .ok_or_else(|| not_found(&self.dir, &self.keyspace))?;
        self.close(&store, work(&store, &keyspace))
    }

    /// As [`KeyspaceSelection::change`], but creates store and keyspace where they are missing.
    pub fn write<T>(&self, work: impl FnOnce(&Keyspace) -> Outcome<T>) -> Outcome<T> {
        check_name(&self.keyspace)?;
        let store = store(&self.dir, false)?;
        let keyspace =
            store.create_keyspace(&self.keyspace).map_err(|error| self.failure(error))?;
        self.close(&store, work(&keyspace))
    }

    fn close<T>(&self, store: &Store, outcome: Outcome<T>) -> Outcome<T> {
        let closed = store.close().map_err(|error| self.failure(error));
        outcome.and_then(|done| closed.map(|()| done))
    }
}
