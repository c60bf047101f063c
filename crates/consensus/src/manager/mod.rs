//! Many logs by key: opened when they are used, and closed when they are idle and others are used.
//!
//! `open_logs` finds the log of a key; `guard` is a reference to it. `registry` keeps the keys, and
//! `glob` matches them; `names` has the directory of a key. `open` opens a manager, `lookup` a log,
//! and `close` closes both. `remove` removes a log, `backup` copies all, `renumber` makes a copy
//! writable, and `inspect` lists the logs without the lock.
//!
//! # The crash argument
//!
//! A log is a directory of its own, with its own crash argument. A log that is closed to make room
//! is closed as any other: what it accepted is there when it is opened again. The registry's
//! argument is there.

pub(crate) mod backup;
pub(crate) mod close;
mod glob;
pub(crate) mod guard;
pub(crate) mod inspect;
pub(crate) mod lookup;
mod names;
pub(crate) mod open;
mod open_logs;
mod registry;
pub(crate) mod remove;
mod renumber;
