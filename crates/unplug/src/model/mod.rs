//! The disk as POSIX promises it: the durable state, the losses of a power cut, and the directory
//! that it leaves. Pure; only [`directory::DirectoryState::write`] touches files.

pub mod directory;
pub mod disk;
pub mod loss;
pub mod names;
pub mod sector;
