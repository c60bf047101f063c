//! The disk as POSIX or a file system promises it: the durable state, the losses of a power cut,
//! and the directory that it leaves. Only `DirectoryState::write_with_output` writes files.

pub mod directory;
pub mod disk;
pub mod ext4;
pub mod journal;
pub mod loss;
pub mod names;
pub mod sector;
