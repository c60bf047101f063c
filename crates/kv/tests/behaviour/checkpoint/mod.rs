//! Checkpoints of the index: what they save, and that losing one loses nothing.

mod cleaning;
mod files;
mod index;
mod storage;
mod threads;
