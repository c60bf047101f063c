//! Writers, readers and cleaning at the same time.

mod backup;
mod cleaning;
mod cold_reads;
mod read_only;
mod threads;
mod wakers;
mod watch;
