//! Values that several commands take.

use clap::ValueEnum;
use esker_disk::Readers;

/// The disk implementations of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DiskChoice {
    /// Positioned reads and writes
    Std,
    /// io_uring; where it is unavailable, standard I/O, with a note
    Uring,
    /// The faster one: positioned reads and writes
    #[default]
    Auto,
}

/// The users who may read the files that a command creates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ReadableBy {
    /// Files have the mode 0600, directories 0700
    #[default]
    Owner,
    /// 0640 and 0750
    Group,
    /// 0644 and 0755
    All,
}

impl From<ReadableBy> for Readers {
    fn from(by: ReadableBy) -> Self {
        match by {
            ReadableBy::Owner => Self::Owner,
            ReadableBy::Group => Self::Group,
            ReadableBy::All => Self::All,
        }
    }
}

/// A setting with an automatic default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Always
    On,
    /// Never
    Off,
    /// Where the file system supports it
    #[default]
    Auto,
}

impl Choice {
    /// Returns the value as typed on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Choice::On => "on",
            Choice::Off => "off",
            Choice::Auto => "auto",
        }
    }
}
