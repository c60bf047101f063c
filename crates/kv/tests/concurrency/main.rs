//! Writers, readers and cleaning at the same time.

mod cleaning;
mod threads;
