//! Reads of records that left the tail cache.

mod cancellation;
mod failed_reads;
mod hung_reads;
mod shared_reads;
mod truncated_while_reading;
