//! Values that several commands take.

use clap::ValueEnum;

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

/// How records are separated in a stream of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    /// One record a line, without its newline; an empty line is an empty record
    #[default]
    Lines,
    /// A length of 4 bytes, little-endian, before each record
    Len32,
    /// One JSON object a line, as `esker log cat --json` prints it
    Json,
}
