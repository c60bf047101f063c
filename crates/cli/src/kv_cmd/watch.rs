//! `esker kv watch`: prints changes as they become durable.
//!
//! It takes no lock and changes nothing, so it can run concurrently with a writer.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use clap::Args;
use esker_kv::{Action, Change, Changes, ReadOnlyStore, Seq, StoreError, Watch, WatchError};
use serde_json::json;

use super::open;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;
use esker_command::signals::Stop;

const EXAMPLES: &str = "\
Examples:
  # Changes from now on
  esker kv watch ./store

  # All changes that are left, then new ones
  esker kv watch ./store --from 0 --json

  # Continue after the last line seen
  esker kv watch ./store --from 1234 --json --keyspace accounts

A line has the position, put, delete, delete_range, create_keyspace or drop_keyspace, the keyspace, and \
the key and value, or the range, with tabs between. With --json, a line is an object with position, \
action and keyspace, and key and value, or from and to (key_b64 and so on where the bytes are not text). \
A keyspace that does not exist is waited for, with a note on standard error. It ends with exit status 0 \
at a signal, and when the reader of its output ends. It fails if changes after \
the position were dropped: then export the store, and watch again.";

/// Arguments of `esker kv watch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WatchArguments {
    /// The store's directory
    dir: PathBuf,
    /// Only changes after this position, which is that of the last change seen [default: the last
    /// durable one]
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
    /// Only changes of this keyspace [default: all]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// One JSON object per change
    #[arg(long)]
    json: bool,
}

/// Prints changes until a signal.
pub fn run(arguments: &WatchArguments) -> Outcome {
    let WatchArguments { dir, from, .. } = arguments;
    let failure = |error: WatchError| Failure::from_kv(error, dir);
    if let Some(name) = &arguments.keyspace {
        open::check_name(name)?;
    }
    let no_signals = |e| Failure::from_io("wait for signals", &e);
    let stop = Stop::on_signals().map_err(no_signals)?;
    let log = open::log(dir)?;
    let from = from.map_or_else(|| log.durable(), Seq);
    let mut watch = Watch::from_log(&log, from).map_err(failure)?;
    let mut out = output::buffered()?;
    let stopped = stop.end_follower(out.get_ref(), move || log.close()).map_err(no_signals)?;
    if let Some(name) = &arguments.keyspace {
        note_if_absent(dir, name);
    }
    loop {
        let next = match watch.try_next() {
            Ok(None) => {
                if !output::unless_closed(out.flush())? {
                    return Ok(());
                }
                watch.blocking_next()
            }
            Ok(Some(changes)) => Ok(changes),
            Err(error) => Err(error),
        };
        let written = match next {
            Ok(changes) => print_changes(&mut out, &changes, arguments, &stopped),
            Err(WatchError::Store(StoreError::Closed)) => {
                return output::unless_closed(out.flush()).map(drop);
            }
            Err(error) => {
                output::unless_closed(out.flush())?;
                let printed = format!("printed through position {}", watch.position());
                return Err(failure(error).and(printed));
            }
        };
        if !output::unless_closed(written)? {
            return Ok(());
        }
    }
}

/// Prints a note if the keyspace does not exist. It may be created later.
fn note_if_absent(dir: &Path, name: &str) {
    // The watch itself reports a store that cannot be read.
    let absent = |store: ReadOnlyStore| store.find_keyspace(name).is_none();
    if ReadOnlyStore::open(dir).is_ok_and(absent) {
        complain(&format!(
            "note: the keyspace {name:?} does not exist yet; the command waits for it"
        ));
    }
}

fn print_changes(
    out: &mut BufWriter<File>,
    changes: &Changes,
    arguments: &WatchArguments,
    stopped: &AtomicBool,
) -> io::Result<()> {
    for change in changes {
        // The next call finds the log closed.
        if stopped.load(SeqCst) {
            break;
        }
        if arguments.keyspace.as_ref().is_some_and(|name| *name != *change.keyspace) {
            continue;
        }
        if arguments.json { print_json(out, &change)? } else { print_line(out, &change)? }
    }
    Ok(())
}

fn name(action: &Action<'_>) -> &'static str {
    match action {
        Action::Put { .. } => "put",
        Action::Delete { .. } => "delete",
        Action::DeleteRange { .. } => "delete_range",
        Action::CreateKeyspace => "create_keyspace",
        Action::DropKeyspace => "drop_keyspace",
        _ => "unknown",
    }
}

/// The fields of an action: its keys and its value.
fn fields<'a>(action: &Action<'a>) -> Vec<(&'static str, &'a [u8])> {
    match *action {
        Action::Put { key, value } => vec![("key", key), ("value", value)],
        Action::Delete { key } => vec![("key", key)],
        Action::DeleteRange { from, to: Some(to) } => vec![("from", from), ("to", to)],
        Action::DeleteRange { from, to: None } => vec![("from", from)],
        _ => Vec::new(),
    }
}

fn print_line(out: &mut impl Write, change: &Change<'_>) -> io::Result<()> {
    write!(out, "{}\t{}\t{}", change.seq, name(&change.action), output::escaped(change.keyspace))?;
    for (_, bytes) in fields(&change.action) {
        out.write_all(b"\t")?;
        out.write_all(bytes)?;
    }
    out.write_all(b"\n")
}

fn print_json(out: &mut impl Write, change: &Change<'_>) -> io::Result<()> {
    let (position, action) = (change.seq.0, name(&change.action));
    let mut object = json!({ "position": position, "action": action, "keyspace": change.keyspace });
    for (name, bytes) in fields(&change.action) {
        output::add_bytes(&mut object, name, bytes);
    }
    writeln!(out, "{object}")
}
